import { readdirSync, readFileSync } from 'node:fs'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'
import { clientErrors } from '../../src/cli/send.ts'
import { failureNames, refusalStatus } from '../../src/domain/errors.ts'
import { adviceNames } from '../../src/domain/finding.ts'
import { anchorsOf } from './pages.ts'

/**
 * docs/troubleshooting.md has an entry for every error name. The types of the names are derived from the product's lists, so every
 * name that is thrown is in one of these lists.
 */

const root = fileURLToPath(new URL('../../', import.meta.url))
const page = readFileSync(path.join(root, 'docs/troubleshooting.md'), 'utf8')

/** The part of the page about error names. The warnings, which have no names, follow it. */
const ofNames = page.slice(0, page.indexOf('\n## Warnings\n'))

const entries = new Map(
  ofNames
    .split(/^### /m)
    .slice(1)
    .map((text): [string, string] => [text.slice(0, text.indexOf('\n')), text]),
)

const names = [...new Set([...Object.keys(refusalStatus), ...failureNames, ...adviceNames, ...clientErrors])].sort()

test('every error name has an entry, and every entry is about an error name', () => {
  expect([...entries.keys()]).toEqual(names)
})

test.each(names)('the entry of %s says where the name is shown, and has all required parts', (name) => {
  const entry = entries.get(name) ?? ''
  const status = (refusalStatus as Record<string, number>)[name]
  const shown = /^_(.+)_$/m.exec(entry)?.[1] ?? ''
  expect(/Answer (\d+)\./.exec(shown)?.[1]).toBe(status?.toString())
  expect(shown.includes('Failure.')).toBe((failureNames as readonly string[]).includes(name))
  expect(/Finding \((warning|info)\)\./.test(shown)).toBe((adviceNames as readonly string[]).includes(name))
  expect(shown.includes('Command line.')).toBe((clientErrors as readonly string[]).includes(name))
  for (const part of ['What happened', 'Under way', 'Likely cause', 'What to do', 'Not lost'])
    expect(entry).toMatch(new RegExp(`^- \\*\\*${part}:\\*\\* .{5}`, 'm'))
})

/** Files that list the names. All other files use them in errors. */
const lists = ['src/domain/errors.ts', 'src/domain/finding.ts']

const sources = ['src', 'machines']
  .flatMap((folder) =>
    readdirSync(path.join(root, folder), { recursive: true, encoding: 'utf8' }).map((file) => path.join(folder, file)),
  )
  .filter((file) => file.endsWith('.ts') && !lists.includes(file))
  .map((file) => readFileSync(path.join(root, file), 'utf8'))
  .join('\n')

test.each(names)('the product uses %s in an error', (name) => {
  if (name === 'InternalError') return // toFailure uses it for errors without a name
  expect(sources.includes(`'${name}'`)).toBe(true)
})

test('every name that is used in an error is in the lists', () => {
  const uses = sources.matchAll(
    /(?:FatalError|RefusedError|problem|unsupported|failed|failure)\(\s*(?:context, \d+, )?'([A-Z]\w+)'/g,
  )
  const used = new Set([...uses].map(([, name]) => name))
  expect(used.size).toBeGreaterThan(25)
  expect([...used].filter((name) => name !== undefined && !names.includes(name))).toEqual([])
})

test('links within the page lead to entries', () => {
  const headings = anchorsOf('docs/troubleshooting.md')
  const links = [...page.matchAll(/\]\(#([^)]+)\)/g)].map(([, target]) => target)
  expect(links.filter((target) => !headings.includes(target ?? ''))).toEqual([])
})
