import { chmodSync, mkdtempSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { expect, test } from 'vitest'
import { parseStartBody } from '../../src/api/start-body.ts'
import * as parsed from '../api/parsed.ts'
import { repositoryRoot } from '../support/mongo-binaries.ts'
import { tlsPem } from '../support/tls/files.ts'

/** The product's parsers accept the files in examples/, which are settings and bodies of start. */

const examples = path.join(repositoryRoot, 'examples')
const named = (ending: string) => readdirSync(examples).filter((name) => name.endsWith(ending))
const read = (name: string) => readFileSync(path.join(examples, name), 'utf8')

const folder = mkdtempSync(path.join(tmpdir(), 'tandem-examples-'))
/** Creates a file that only the current user may read, as the examples require. */
function file(name: string, text: string): string {
  const at = path.join(folder, name)
  writeFileSync(at, text)
  chmodSync(at, 0o600)
  return at
}
file('ca.pem', tlsPem.authority)
file('server.pem', tlsPem.server)
file('token', 'a'.repeat(32))
file('read-token', 'b'.repeat(32))

/** Creates a copy of the example in which the paths of files are replaced by paths in the test's folder. */
const installed = (name: string) => file(name, read(name).replaceAll('/etc/tandem', folder))

const ignored = [expect.stringContaining('--acceptDisclaimer'), expect.stringContaining('--disableTelemetry')]

test.each(named('.yaml'))('%s is a valid configuration that causes no unexpected notice', (name) => {
  const options = parsed.served(['--config', installed(name)])
  expect(options.cluster0).toMatch(/^mongodb:/)
  expect(options.notices).toEqual(name === 'mongosync.yaml' ? ignored : [])
})

test('the example of a remote API requires both tokens and has TLS', () => {
  const { bind, tls, tokens } = parsed.served(['--config', installed('remote-api.yaml')])
  expect([bind, tls?.cert]).toEqual(['0.0.0.0', tlsPem.server])
  expect(tokens).toEqual({ control: 'a'.repeat(32), read: 'b'.repeat(32) })
})

test.each(named('.json'))('%s is a valid body of start', (name) => {
  const body = JSON.parse(read(name))
  expect(parseStartBody(body)).toMatchObject(body)
})

test('the page lists every example', () => {
  const page = read('README.md')
  for (const name of [...named('.yaml'), ...named('.json')]) expect(page).toContain(`](${name})`)
})
