import { chmodSync, mkdtempSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { tlsFiles, tlsPem } from '../support/tls/files.ts'
import * as parsed from './parsed.ts'

const folder = mkdtempSync(join(tmpdir(), 'tandem-redis-options-'))
const file = (name: string, text: string, mode = 0o600): string => {
  const path = join(folder, name)
  writeFileSync(path, text)
  chmodSync(path, mode)
  return path
}
const uris = ['--cluster0', 'mongodb://a', '--cluster1', 'mongodb://b']
const redis = ['--redis', 'rediss://cache.test']
const client = file('client.pem', tlsPem.client)

test('a Redis with TLS accepts authorities and a certificate, from options or from the environment', () => {
  const tls = { ca: tlsPem.authority, cert: tlsPem.client, key: tlsPem.client }
  const given = ['--redisTlsCAFile', tlsFiles.authority, '--redisTlsCert', client]
  expect(parsed.served([...uris, ...redis, ...given])).toMatchObject({ redisTls: tls, notices: [] })
  const env = {
    TANDEM_REDIS_TLS_CA_FILE: tlsFiles.authority,
    TANDEM_REDIS_TLS_CERT: client,
    TANDEM_REDIS_TLS_KEY: client,
  }
  expect(parsed.served([...uris, ...redis], env)).toMatchObject({ redisTls: tls })
  expect(parsed.served([...uris, ...redis])).toMatchObject({ redisTls: {} })
})

test.each([
  [
    ['--redis', 'redis://cache.test', '--redisTlsCAFile', tlsFiles.authority],
    /--redisTlsCAFile: is only for a Redis with TLS/,
  ],
  [['--redisTlsCert', client], /--redisTlsCert: is only for a Redis with TLS; set --redis rediss:/],
  [[...redis, '--redisTlsKey', client], /--redisTlsKey: requires its certificate; add --redisTlsCert/],
  [[...redis, '--redisTlsCAFile', join(folder, 'none')], /--redisTlsCAFile: cannot read .*none: ENOENT/],
  [
    [...redis, '--redisTlsCAFile', file('text', 'x')],
    /--redisTlsCAFile: .* contains no certificate; it must contain one or more as PEM/,
  ],
  [
    [...redis, '--redisTlsCert', tlsFiles.authority],
    /--redisTlsCert: .* must hold a certificate, and .* its private key/,
  ],
  [[...redis, '--redisTlsCert', client, '--redisTlsKey', tlsFiles.server], /--redisTlsCert: .*MISMATCH/],
])('%j is refused with the name of the option', (given, message) => {
  expect(parsed.refused([...uris, ...given])).toMatch(message)
})

test('a key that other users can read is refused', () => {
  const open = file('open.pem', tlsPem.client, 0o644)
  const refused = (given: string[]) => parsed.refused([...uris, ...redis, ...given])
  expect(refused(['--redisTlsCert', open])).toMatch(/--redisTlsCert: .*open\.pem holds a secret.*chmod o-r/)
  const both = ['--redisTlsCert', client, '--redisTlsKey', open]
  expect(refused(both)).toMatch(/--redisTlsKey: .*open\.pem holds a secret/)
  chmodSync(open, 0o440)
  expect(parsed.served([...uris, ...redis, ...both]).notices).toEqual([])
})
