import { readdirSync, readFileSync } from 'node:fs'
import path from 'node:path'
import { expect, test } from 'vitest'
import { repositoryRoot } from '../support/mongo-binaries.ts'

/** docs/logs.md is what alerts are made by: it has every message there is, and no other. */
test('docs/logs.md lists every message of the log', () => {
  const found = new Map<string, string>()
  const levels = 'trace|debug|info|warn|error|fatal'
  const folder = path.join(repositoryRoot, 'src')
  for (const file of readdirSync(folder, { recursive: true, encoding: 'utf8' })) {
    if (!file.endsWith('.ts')) continue
    const source = readFileSync(path.join(folder, file), 'utf8')
    const calls = [...source.matchAll(new RegExp(`\\blog\\.(${levels})\\((?:[^']*?,\\s*)?'([^']+)'`, 'g'))]
    // None in another form: its message would be in no list.
    expect([file, calls.length]).toEqual([file, source.match(new RegExp(`\\blog\\.(${levels})\\(`, 'g'))?.length ?? 0])
    for (const [, level, message] of calls) found.set(message as string, (level as string).toUpperCase())
  }
  const documented = readFileSync(path.join(repositoryRoot, 'docs/logs.md'), 'utf8')
  const listed = [...documented.matchAll(/^\| `([^`]+)` +\| ([A-Z]+) /gm)].map(([, message, level]) => [message, level])
  expect(Object.fromEntries(listed)).toEqual(Object.fromEntries(found))
})
