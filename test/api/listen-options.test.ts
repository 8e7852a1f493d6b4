import { generateKeyPairSync } from 'node:crypto'
import { chmodSync, mkdtempSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { parseCommandLine } from '../../src/cli/options.ts'
import { tlsFiles, tlsPem } from '../support/tls/files.ts'
import * as parsed from './parsed.ts'

const folder = mkdtempSync(join(tmpdir(), 'tandem-listen-'))
function file(name: string, text: string, mode = 0o600): string {
  const path = join(folder, name)
  writeFileSync(path, text)
  chmodSync(path, mode)
  return path
}
const token = 'secret-token-of-more-than-32-characters'
const tokenFile = file('token', `${token}\n`)
const certificate = file('server.pem', tlsPem.server)
const uris = ['--cluster0', 'mongodb://a', '--cluster1', 'mongodb://b']

/** Parses the options of an instance. The connection strings name two clusters that no test contacts. */
const served = (argv: string[], env: Record<string, string> = {}) => parsed.served([...uris, ...argv], env)
const { refused } = parsed

describe('an instance', () => {
  test('listens beyond loopback with a certificate and a token', () => {
    const given = ['--bind', '0.0.0.0', '--tlsCert', certificate, '--tokenFile', tokenFile]
    expect(served(given)).toMatchObject({
      bind: '0.0.0.0',
      tls: { cert: tlsPem.server, key: tlsPem.server },
      tokens: { control: token, read: null },
      notices: [],
    })
    const env = { TANDEM_BIND: '::', TANDEM_TLS_CERT: certificate, TANDEM_TOKEN_FILE: tokenFile }
    expect(served([], env)).toMatchObject({ bind: '::', tokens: { control: token } })
  })

  test.each([
    [[], /--bind: 10.0.0.5 .*add --tlsCert FILE .* and --tokenFile FILE/],
    [['--tokenFile', tokenFile], /--bind: .*add --tlsCert FILE .*or bind 127/],
    [['--tlsCert', certificate], /--bind: .*add --tokenFile FILE, or bind 127/],
  ])('does not listen beyond loopback without both a certificate and a token: %j', (given, message) => {
    expect(refused([...uris, '--bind', '10.0.0.5', ...given])).toMatch(message)
    expect(refused([...uris, ...given], { TANDEM_BIND: '10.0.0.5' })).toMatch(message)
  })

  test.each(['127.0.0.1', '127.0.0.2', '::1'])('on %s accepts a token, or a certificate, or neither', (bind) => {
    expect(served(['--bind', bind])).toMatchObject({ bind, tls: null, tokens: null })
    expect(served(['--bind', bind, '--tokenFile', tokenFile])).toMatchObject({ tls: null, tokens: { control: token } })
    expect(served(['--bind', bind, '--tlsCert', certificate])).toMatchObject({ tokens: null })
  })

  test.each(['localhost', 'example.com', '', '127.1', '::ffff:127.0.0.1'])(
    'does not accept %j as a loopback address',
    (bind) => {
      expect(refused([...uris, `--bind=${bind}`])).toMatch(/--bind/)
    },
  )

  const otherKey = generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey
  const onlyCertificate = tlsPem.server.slice(0, tlsPem.server.indexOf('-----BEGIN PRIVATE'))
  test.each([
    ['tokenFile', '', /not be empty/],
    ['tokenFile', join(folder, 'none'), /--tokenFile: cannot read .*none: ENOENT/],
    ['tokenFile', file('short', token.slice(0, 31)), /must hold 32 or more printable characters; make one with/],
    ['tokenFile', file('two', `${token}\n${token}`), /must hold 32 or more printable characters/],
    ['tlsCert', '', /not be empty/],
    ['tlsCert', folder, /--tlsCert: cannot read .*EISDIR/],
    ['tlsCert', file('no-key', onlyCertificate), /must hold a certificate, and .* its private key/],
    ['tlsCert', tokenFile, /must hold a certificate, and .* its private key/],
    [
      'tlsCert',
      file('other', onlyCertificate + otherKey.export({ type: 'pkcs8', format: 'pem' })),
      /must hold a certificate, and .*MISMATCH/,
    ],
    [
      'tlsCert',
      file(
        'locked',
        onlyCertificate + otherKey.export({ type: 'pkcs8', format: 'pem', cipher: 'aes-256-cbc', passphrase: 'x' }),
      ),
      /its private key \(unencrypted\)/,
    ],
  ])('refuses --%s %s and names the option', (option, given, message) => {
    const text = refused([...uris, `--${option}`, given])
    expect(text).toMatch(message)
    expect(text).not.toContain(token.slice(0, 20))
  })

  test('reads certificate and key from separate files', () => {
    const at = tlsPem.server.indexOf('-----BEGIN PRIVATE')
    const [cert, key] = [tlsPem.server.slice(0, at), tlsPem.server.slice(at)]
    const tls = ['--tlsCert', file('cert.pem', cert, 0o644), '--tlsKey', file('key.pem', key)]
    expect(served(tls)).toMatchObject({ tls: { cert, key }, notices: [] })
    expect(refused([...uris, ...tls.slice(2)])).toMatch(/--tlsKey: requires its certificate; add --tlsCert/)
    expect(refused([...uris, ...tls.slice(0, 2), '--tlsKey', folder])).toMatch(/--tlsKey: cannot read .*EISDIR/)
  })

  test('also accepts the token itself instead of a file, and never prints the token', () => {
    expect(served(['--token', token])).toMatchObject({ tokens: { control: token } })
    expect(served([], { TANDEM_TOKEN: token })).toMatchObject({ tokens: { control: token } })
    expect(refused([...uris, '--token', token, '--tokenFile', tokenFile])).toMatch(/either --token or --tokenFile/)
    const short = refused([...uris, '--token', token.slice(0, 31)])
    expect(short).toMatch(/--token: it must hold 32 or more/)
    const shown = parseCommandLine(['config', '--json', ...uris, '--token', token], {})
    expect(shown).toMatchObject({ kind: 'print', text: expect.stringContaining('***') })
    for (const output of [short, JSON.stringify(shown)]) expect(output).not.toContain(token.slice(0, 20))
  })

  test('accepts a second token that allows only reads, if the first one is given and differs', () => {
    const other = token.toUpperCase()
    const readTokenFile = file('read-token', `${other}\n`)
    const both = { tokens: { control: token, read: other } }
    expect(served(['--tokenFile', tokenFile, '--readTokenFile', readTokenFile])).toMatchObject(both)
    expect(served(['--token', token], { TANDEM_READ_TOKEN_FILE: readTokenFile })).toMatchObject(both)
    expect(refused([...uris, '--readTokenFile', readTokenFile])).toMatch(
      /--readTokenFile: .*give --tokenFile FILE as well/,
    )
    for (const [given, message] of [
      [tokenFile, /--readTokenFile: .*holds the token for commands/],
      [join(folder, 'none'), /--readTokenFile: cannot read .*ENOENT/],
      [file('short-read', other.slice(0, 31)), /--readTokenFile: .*must hold 32 or more/],
    ] as const) {
      const text = refused([...uris, '--tokenFile', tokenFile, '--readTokenFile', given])
      expect(text).toMatch(message)
      expect(text).not.toContain(other.slice(0, 20))
    }
  })

  test.each([
    ['--tokenFile', file('open', token, 0o644), []],
    ['--tokenFile', file('open to others alone', token, 0o604), []],
    ['--readTokenFile', file('open-read', token.toUpperCase(), 0o644), ['--tokenFile', tokenFile]],
    ['--tlsCert', file('open.pem', tlsPem.server, 0o644), []],
    ['--tlsKey', file('open-key.pem', tlsPem.server, 0o444), ['--tlsCert', certificate]],
  ])(
    'refuses %s with a file that other users can read; the message names the file and the remedy',
    (option, path, besides) => {
      const text = refused([...uris, ...besides, option, path])
      expect(text).toContain(
        `error: ${option}: ${path} holds a secret, and every user of this machine can read it (mode 0`,
      )
      expect(text).toContain(`"chmod o-r ${path}" removes that permission`)
      expect(text).not.toContain(token.slice(0, 20))
    },
  )

  // Kubernetes gives the group of the pod access to a Secret's files:
  // https://kubernetes.io/docs/concepts/configuration/secret/
  test.each(['0600', '0400', '0440', '0640'])('accepts files of mode %s', (octal) => {
    const mode = Number.parseInt(octal, 8)
    const [own, key] = [file(`token-${mode}`, token, mode), file(`key-${mode}.pem`, tlsPem.server, mode)]
    const given = ['--tokenFile', own, '--tlsCert', certificate, '--tlsKey', key]
    expect(served(given)).toMatchObject({ tokens: { control: token }, notices: [] })
  })

  test('shows no secrets', () => {
    const shown = parseCommandLine(['config', '--json', ...uris, '--tokenFile', tokenFile], {})
    expect(shown).toMatchObject({ kind: 'print', text: expect.stringContaining(tokenFile) })
    expect(JSON.stringify(shown)).not.toContain(token)
  })
})

test.each(['serve', 'verify'])('%s refuses a connection string whose key file other users can read', (command) => {
  const key = file('client key.pem', tlsPem.client, 0o644)
  const uri = `mongodb://a/?tls=true&tlsCertificateKeyFile=${encodeURIComponent(key)}`
  const argv = [...(command === 'verify' ? ['verify'] : []), '--cluster0', 'mongodb://b', '--cluster1', uri]
  expect(refused(argv)).toContain(`error: cluster1: tlsCertificateKeyFile: ${key} holds a secret`)
  chmodSync(key, 0o440)
  expect(parseCommandLine(argv, {}).kind).toBe(command)
  expect(parseCommandLine(argv.with(-1, uri.replace('client', 'missing')), {}).kind).toBe(command)
})

describe('a client', () => {
  const access = { token, ca: tlsPem.authority }
  const request = (argv: string[], env: Record<string, string> = {}) => {
    const command = parseCommandLine(argv, env)
    if (command.kind === 'client' || command.kind === 'wait' || command.kind === 'watch') return command.request
    throw new Error(JSON.stringify(command))
  }
  const urls = ['--url', 'https://sync.test:1']
  const commands = [
    ['progress'],
    ['start', '--source', 'cluster0'],
    ['limit', '--readConcurrency', '1'],
    ['audit'],
    ['watch'],
    ['wait', '--until', 'paused'],
  ]

  test.each(commands)('%s accepts token and authority, as options or from the environment', (...argv) => {
    const options = ['--tokenFile', tokenFile, '--tlsCAFile', tlsFiles.authority]
    expect(request([...argv, ...urls, ...options]).access).toEqual(access)
    const env = { TANDEM_TOKEN_FILE: tokenFile, TANDEM_TLS_CA_FILE: tlsFiles.authority }
    expect(request([...argv, ...urls], env).access).toEqual(access)
    expect(request([...argv, ...urls], { ...env, TANDEM_TOKEN_FILE: '', TANDEM_TOKEN: token }).access).toEqual(access)
    expect(request([...argv, ...urls, ...options.slice(0, 2)], { ...env, TANDEM_TOKEN: 'x' }).access).toEqual(access)
    expect(request([...argv, ...urls])).not.toHaveProperty('access')
  })

  test('sends its token only over https or to this machine', () => {
    const text = refused([
      'progress',
      '--url',
      'http://127.0.0.1:1',
      '--url',
      'http://sync.test:1',
      '--tokenFile',
      tokenFile,
    ])
    expect(text).toMatch(/--url: the token would be readable on the way to http:\/\/sync\.test:1; give its https/)
    expect(request(['progress', '--url', 'http://localhost:1', '--tokenFile', tokenFile]).access?.token).toBe(token)
    expect(refused(['progress', '--url', 'http://127.evil.test', '--tokenFile', tokenFile])).toMatch(
      /readable on the way/,
    )
  })

  test('refuses files that it cannot read or that others can read, and names them', () => {
    expect(refused(['progress', '--tokenFile', join(folder, 'none')])).toMatch(/--tokenFile: cannot read/)
    const open = file('open-client', token, 0o644)
    expect(refused(['progress', '--tokenFile', open])).toMatch(/--tokenFile: .*open-client .*chmod o-r/)
    expect(refused(['wait', '--until', 'paused', '--tlsCAFile', folder])).toMatch(/--tlsCAFile: cannot read .*EISDIR/)
  })
})
