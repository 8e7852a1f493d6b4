import { readdirSync, readFileSync } from 'node:fs'
import path from 'node:path'
import { expect, test } from 'vitest'
import { journalLevels } from '../../src/domain/journal.ts'
import { repositoryRoot } from '../support/mongo-binaries.ts'

/** Users write alerts with the messages of docs/logs.md, so that page lists exactly the messages of the log. */
test('docs/logs.md lists every message of the log', () => {
  const documented = readFileSync(path.join(repositoryRoot, 'docs/logs.md'), 'utf8')
  const listed = [...documented.matchAll(/^\| `([^`]+)` +\| ([A-Z]+) /gm)].map(([, message, level]) => [message, level])
  const levels = Object.entries(journalLevels).map(([message, level]) => [message, level.toUpperCase()])
  expect(Object.fromEntries(listed)).toEqual(Object.fromEntries(levels))
})

const sources = readdirSync(path.join(repositoryRoot, 'src'), { recursive: true, encoding: 'utf8' })
  .filter((file) => file.endsWith('.ts') && file !== 'domain/journal.ts')
  .map((file) => [file, readFileSync(path.join(repositoryRoot, 'src', file), 'utf8')] as const)

test('only the journal writes lines, so every message is in its list', () => {
  const writing = sources.filter(([, source]) => /\blog\.(trace|debug|info|warn|error|fatal)\(/.test(source))
  expect(writing.map(([file]) => file)).toEqual([])
})

test.each(Object.keys(journalLevels))('the message %s is used in src', (message) => {
  expect(sources.some(([, source]) => source.includes(`'${message}'`))).toBe(true)
})
