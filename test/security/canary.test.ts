import { chmodSync, mkdtempSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { parseCommandLine } from '../../src/cli/options.ts'
import { redactUris } from '../../src/domain/uri-rules.ts'
import { apiUnderTest, minimalStart } from '../api/recording-instance.ts'
import { type Canary, canary, formsIn } from './canary.ts'

/** The tests pass secrets of all shapes to the program and search its output for them. */

const encoded = ({ text }: Canary): string => encodeURIComponent(text)

test('the search finds a secret in a text in every form', () => {
  const [one] = fc.sample(canary, { seed: 1, numRuns: 1 }) as [Canary]
  const shown = [one.text, encoded(one), Buffer.from(`ab${one.text}`).toString('base64'), one.core.toUpperCase()]
  for (const text of shown) expect(formsIn(`something ${text} else`, [one])).not.toEqual([])
  expect(formsIn('something else', [one])).toEqual([])
})

test('connection strings in texts are shown without user, password and secret options', () => {
  fc.assert(
    fc.property(canary, canary, canary, (user, password, option) => {
      const uri =
        `mongodb://${encoded(user)}:${encoded(password)}@host.test/?tls=true&tlsCertificateKeyFilePassword=${encoded(option)}` +
        `&authMechanismProperties=AWS_SESSION_TOKEN:${encoded(option)}`
      const texts = [uri, `cannot reach ${uri}: refused`, JSON.stringify({ error: `at "${uri}"`, uri })]
      for (const text of texts) expect(formsIn(redactUris(text), [user, password, option])).toEqual([])
    }),
  )
})

test('when a command line, environment variable or file is refused, the refusal does not show its secrets', () => {
  const folder = mkdtempSync(path.join(tmpdir(), 'tandem-canary-'))
  const config = path.join(folder, 'tandem.yaml')
  writeFileSync(config, '')
  chmodSync(config, 0o600)
  const mistakes = fc.constantFrom('&w=1', '&readPreference=secondary', '&socketTimeoutMS=5', '&readConcernLevel=local')
  fc.assert(
    fc.property(canary, canary, mistakes, (user, password, mistake) => {
      const uri = `mongodb://${encoded(user)}:${encoded(password)}@host.test/?tls=true${mistake}`
      const good = ['--cluster1', 'mongodb://b']
      writeFileSync(config, `cluster0: ${JSON.stringify(uri)}\nredis: ${JSON.stringify(uri)}\n`)
      const parsed = [
        parseCommandLine(['--cluster0', uri, ...good], {}),
        parseCommandLine([uri], { TANDEM_CLUSTER0: uri, TANDEM_CLUSTER1: uri, TANDEM_REDIS: uri }),
        parseCommandLine(['--config', config, ...good], {}),
        parseCommandLine(['config', '--json', '--config', config, ...good], {}),
        parseCommandLine(['config', '--config', config, ...good], {}),
        parseCommandLine(['--port', uri, ...good], {}),
        parseCommandLine(['progress', '--url', uri], {}),
        parseCommandLine(['verify', '--cluster0', uri, ...good], {}),
      ]
      for (const one of parsed) {
        if (one.kind !== 'print') throw new Error(one.kind)
        expect(formsIn(one.text, [user, password])).toEqual([])
      }
    }),
    { numRuns: 50 },
  )
})

test('no value of a request body and no header appears in a response or in the audit trail', async () => {
  const commands = fc.constantFrom('start', 'check', 'pause', 'resume', 'commit', 'reverse', 'repair')
  const fields = fc.constantFrom('source', 'buildIndexes', 'verification', 'includeNamespaces', 'password', 'sharding')
  const wrapped = (one: Canary) =>
    fc.constantFrom<unknown>(one.text, [one.text], { enabled: one.text }, [
      { databaseRegex: { pattern: 1, options: one.text } },
    ])
  const property = fc.asyncProperty(
    fc
      .tuple(commands, fields, canary)
      .chain(([command, field, one]) => fc.tuple(fc.constant([command, field, one] as const), wrapped(one))),
    async ([[command, field, one], value]) => {
      const { post, instance } = apiUnderTest({ token: 't'.repeat(32) })
      const headers = { Authorization: `Bearer ${'t'.repeat(32)}`, 'X-Secret': encoded(one) }
      const body = { ...minimalStart, [field]: value }
      const answers = [
        await post(`/api/v1/${command}`, body, headers),
        await post(`/api/v1/${command}`, `${JSON.stringify(body)}}`, headers),
        await post(`/api/v1/${command}`, {}, { Authorization: `Bearer ${encoded(one)}` }),
      ]
      expect(formsIn(JSON.stringify([answers.map(({ body: content }) => content), instance.recorded]), [one])).toEqual(
        [],
      )
    },
  )
  await fc.assert(property, { numRuns: 300 })
})
