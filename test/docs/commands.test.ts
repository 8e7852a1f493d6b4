import { readdirSync, readFileSync } from 'node:fs'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'
import { parseCommandLine } from '../../src/cli/options.ts'

/** The command line accepts every command and option in the shell blocks of the pages. */

const root = fileURLToPath(new URL('../../', import.meta.url))
const pages = [...readdirSync(root), ...readdirSync(path.join(root, 'docs')).map((name) => `docs/${name}`)].filter(
  (name) => name.endsWith('.md'),
)

function commandsOf(page: string): string[] {
  const text = readFileSync(path.join(root, page), 'utf8')
  const blocks = [...text.matchAll(/^ *```sh\n([\s\S]*?)^ *```/gm)].map(([, block = '']) => block)
  const lines = blocks.flatMap((block) => block.replaceAll(/\\\n\s*/g, ' ').split('\n'))
  return lines
    .flatMap((line) => line.replace(/\s#.*$/, '').split('&&'))
    .map((line) => line.trim())
    .filter((line) => line.startsWith('npx tandem'))
}

/** Splits a command like a shell, with the syntax that the pages use: words, single quotes, and variables for addresses. */
function wordsOf(command: string): string[] {
  const known = command
    .replaceAll('$all', '--url http://localhost:27182 --url http://localhost:27183')
    .replaceAll(/"\$(SOURCE|DESTINATION|SHOP|BLOG)"/g, "'mongodb://h/?replicaSet=x'")
    .replaceAll('mongodb://…', 'mongodb://h')
  return [...known.matchAll(/'([^']*)'|(\S+)/g)].map(([, quoted, plain]) => quoted ?? plain ?? '').slice(2)
}

const all = pages.flatMap((page) => commandsOf(page).map((command): [string, string] => [page, command]))

test.each(all)('the command line accepts the command in %s: %s', (_, command) => {
  const env = { TANDEM_CLUSTER0: 'mongodb://a/', TANDEM_CLUSTER1: 'mongodb://b/' }
  const parsed = parseCommandLine(wordsOf(command), env, '1.2.3')
  // These files belong to the reader of the page. The command line reads them only after it has accepted all options.
  if (
    parsed.kind === 'print' &&
    /cannot read ((key|server|authority|read|tandem)[.-])?(pem|token|yaml): ENOENT/.test(parsed.text)
  )
    return
  expect(parsed).not.toMatchObject({ stream: 'stderr' })
})

test('the pages contain commands', () => {
  expect(all.length).toBeGreaterThan(25)
})
