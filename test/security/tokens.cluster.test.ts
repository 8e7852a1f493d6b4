import { chmodSync, rmSync, writeFileSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { afterAll, beforeAll, expect, it, vi } from 'vitest'
import { pairedSets } from '../support/paired-sets.ts'
import { patience } from '../support/reversible-pair.ts'
import { startTandem, type Tandem } from '../support/tandem-process.ts'

/** docs/security.md: the token of --readTokenFile allows only reads. On SIGHUP, tandem reads both files again. */

const pair = pairedSets()
const tokens = { control: 'c1'.repeat(20), read: 'd2'.repeat(20) }
let folder: string
let files: { control: string; read: string }
beforeAll(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'tandem-tokens-'))
  files = { control: path.join(folder, 'control'), read: path.join(folder, 'read') }
})
afterAll(() => rm(folder, { recursive: true }))

const store = (which: 'control' | 'read', token: string): void =>
  writeFileSync(files[which], `${token}\n`, { mode: 0o600 })

const request = async (tandem: Tandem, method: string, endpoint: string, token: string) => {
  const start = endpoint.endsWith('/start') ? { source: 'cluster0', destination: 'cluster1' } : {}
  const body = method === 'GET' ? null : JSON.stringify(start)
  const headers = { Authorization: `Bearer ${token}` }
  const response = await fetch(`${tandem.url}${endpoint}`, { method, headers, body })
  return { status: response.status, text: await response.text() }
}
const logged = (tandem: Tandem, message: string): Record<string, unknown>[] =>
  tandem
    .output()
    .split('\n')
    .filter((line) => line.includes(`"message":"${message}"`))
    .map((line) => JSON.parse(line))

it('one token allows commands, the other only reads; SIGHUP replaces both if both files can be read and are safe', async () => {
  store('control', tokens.control)
  store('read', tokens.read)
  const extraArgs = ['--tokenFile', files.control, '--readTokenFile', files.read]
  const { source, destination } = pair
  await using tandem = await startTandem({ cluster0: source.uri, cluster1: destination.uri, extraArgs })
  const status = async (method: string, endpoint: string, token: string): Promise<number> =>
    (await request(tandem, method, endpoint, token)).status
  await vi.waitFor(async () => {
    expect(await status('GET', '/api/v1/progress', tokens.read)).toBe(200)
  }, patience)
  expect(await status('GET', '/metrics', tokens.read)).toBe(200)
  const refused = await request(tandem, 'POST', '/api/v1/start', tokens.read)
  expect(refused).toMatchObject({
    status: 403,
    text: expect.stringMatching(/"Forbidden".*--readTokenFile.*--tokenFile/),
  })
  expect(await status('POST', '/api/v1/start', tokens.control)).toBe(200)
  expect(logged(tandem, 'audit')).toMatchObject([
    { command: 'start', token: 'read', outcome: 'refused', error: 'Forbidden' },
    { command: 'start', token: 'control', outcome: 'received', error: null },
    { command: 'start', token: 'control', outcome: 'accepted', error: null },
  ])
  const trail = JSON.parse((await request(tandem, 'GET', '/api/v1/audit', tokens.read)).text)
  expect(trail.entries).toMatchObject([{ command: 'start', token: 'control', outcome: 'accepted' }])

  const renewed = { control: 'e3'.repeat(20), read: 'f4'.repeat(20) }
  store('control', renewed.control)
  rmSync(files.read)
  process.kill(tandem.pid, 'SIGHUP')
  await vi.waitFor(() => {
    expect(logged(tandem, 'tokens not read again')).toMatchObject([
      { level: 'error', error: expect.stringMatching(/--readTokenFile: cannot read .*ENOENT/) },
    ])
  }, patience)
  expect(await status('GET', '/api/v1/progress', tokens.read)).toBe(200)
  expect(await status('GET', '/api/v1/progress', tokens.control)).toBe(200)
  expect(await status('GET', '/api/v1/progress', renewed.control)).toBe(401)

  store('read', renewed.read)
  chmodSync(files.read, 0o644)
  process.kill(tandem.pid, 'SIGHUP')
  await vi.waitFor(() => {
    expect(logged(tandem, 'tokens not read again')).toMatchObject([
      {},
      { level: 'error', error: expect.stringMatching(/--readTokenFile: .*every user of this machine.*chmod o-r/) },
    ])
  }, patience)
  expect(await status('GET', '/api/v1/progress', tokens.read)).toBe(200)
  expect(await status('GET', '/api/v1/progress', tokens.control)).toBe(200)
  for (const token of Object.values(renewed)) expect(await status('GET', '/api/v1/progress', token)).toBe(401)

  chmodSync(files.read, 0o640)
  process.kill(tandem.pid, 'SIGHUP')
  await vi.waitFor(() => expect(logged(tandem, 'tokens read again')).toHaveLength(1), patience)
  for (const token of Object.values(tokens)) expect(await status('GET', '/api/v1/progress', token)).toBe(401)
  expect(await status('GET', '/api/v1/progress', renewed.read)).toBe(200)
  expect(await status('POST', '/api/v1/pause', renewed.read)).toBe(403)
  await vi.waitFor(async () => expect(await status('POST', '/api/v1/pause', renewed.control)).toBe(200), patience)
  for (const secret of [...Object.values(tokens), ...Object.values(renewed)]) {
    expect(tandem.output()).not.toContain(secret.slice(0, 20))
  }
})
