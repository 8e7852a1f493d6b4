import { connect } from 'node:tls'
import { afterEach, describe, expect, test } from 'vitest'
import { dashboardPaths } from '../../src/api/dashboard.ts'
import { type ServedApi, serveApi } from '../../src/api/server.ts'
import type { Access } from '../../src/cli/access.ts'
import { runClient } from '../../src/cli/client.ts'
import type { ClientRequest } from '../../src/cli/client-options.ts'
import { ask } from '../../src/cli/request.ts'
import { runWait } from '../../src/cli/wait.ts'
import { idleProgress } from '../../src/session/report-progress.ts'
import { tlsPem } from '../support/tls/files.ts'
import { apiUnderTest } from './recording-instance.ts'

const token = 'a1'.repeat(20)
const bearer = { Authorization: `Bearer ${token}` }
const open: ServedApi[] = []
afterEach(async () => {
  await Promise.all(open.splice(0).map((server) => server.close()))
})

describe('with a token', () => {
  const paths = [
    '/api/v1/progress',
    '/api/v1/collections',
    '/api/v1/events',
    '/dashboard/',
    '/api/v1/audit',
    '/metrics',
    '/openapi.json',
    '/nowhere',
    '/healthz/x',
  ]

  test.each([
    ['none', {}],
    ['another', { Authorization: `Bearer ${token.slice(1)}1` }],
    ['its beginning', { Authorization: `Bearer ${token.slice(0, -1)}` }],
    ['the token and one more character', { Authorization: `Bearer ${token}a` }],
    ['an empty one', { Authorization: 'Bearer ' }],
    ['another scheme', { Authorization: `Basic ${token}` }],
    ['the token without a scheme', { Authorization: token }],
  ])(
    '%s is refused on every path with Unauthorized, and the answer contains no part of the token',
    async (_what, headers) => {
      const { get, post, instance } = apiUnderTest({ token })
      for (const reply of [
        ...(await Promise.all(paths.map((path) => get(path, headers)))),
        await post('/api/v1/commit', {}, headers),
      ]) {
        expect(reply.status).toBe(401)
        expect(reply.headers.get('WWW-Authenticate')).toBe('Bearer')
        expect(reply.body).toMatchObject({
          success: false,
          error: 'Unauthorized',
          errorDescription: expect.stringMatching(/^Authorization: .*--tokenFile/),
        })
        expect(JSON.stringify(reply.body)).not.toContain('a1a1')
      }
      expect(instance.calls).toEqual([])
      expect(instance.recorded).toMatchObject([{ command: 'commit', error: 'Unauthorized', admitted: false }])
    },
  )

  test('the right token is accepted, and /healthz needs none', async () => {
    const { get, post, instance } = apiUnderTest({ token })
    expect((await get('/api/v1/progress', bearer)).status).toBe(200)
    expect((await post('/api/v1/commit', {}, { authorization: `bearer ${token}` })).status).toBe(200)
    expect((await get('/healthz')).status).toBe(200)
    expect(instance.calls).toMatchObject([{ command: 'commit' }])
    expect((await get('/openapi.json', bearer)).body.security).toEqual([{ token: [] }])
  })

  test('the dashboard is served without a token, contains no data of a sync, and accepts no command', async () => {
    const { api, get, post } = apiUnderTest({ token })
    for (const path of dashboardPaths) expect((await api.request(path)).status).toBe(200)
    expect((await api.request('/', { method: 'HEAD' })).status).toBe(200)
    expect((await post('/')).status).toBe(401)
    expect((await get('/', { Host: 'evil.test' })).status).toBe(403)
  })

  test('a request of a foreign page is refused even with the token', async () => {
    const { get } = apiUnderTest({ token })
    expect((await get('/api/v1/progress', { ...bearer, Host: 'evil.test' })).status).toBe(403)
    expect((await get('/api/v1/progress', { ...bearer, Origin: 'http://evil.test' })).status).toBe(403)
  })
})

describe('with a token that only reads as well', () => {
  const readToken = 'b2'.repeat(20)
  const reading = { Authorization: `Bearer ${readToken}` }

  test('the token that only reads is accepted for every GET request, and the other token for every request', async () => {
    const { api, get, post } = apiUnderTest({ token, readToken })
    for (const path of ['/api/v1/progress', '/api/v1/audit', '/metrics', '/openapi.json', '/api/v1/limits']) {
      for (const headers of [reading, bearer]) expect((await api.request(path, { headers })).status).toBe(200)
    }
    expect((await api.request('/api/v1/progress', { method: 'HEAD', headers: reading })).status).toBe(200)
    expect((await get('/nowhere', reading)).status).toBe(404)
    expect((await get('/api/v1/start', reading)).status).toBe(405)
    expect((await post('/api/v1/commit', {}, bearer)).status).toBe(200)
  })

  test.each(['POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS', 'TRACE2'])(
    '%s with the token that only reads is forbidden on any path',
    async (method) => {
      const { api, instance } = apiUnderTest({ token, readToken })
      for (const path of ['/api/v1/commit', '/api/v1/limits', '/api/v1/check', '/api/v1/all/abort', '/', '/nowhere']) {
        const response = await api.request(path, { method, headers: reading })
        expect(response.status).toBe(403)
        expect(await response.json()).toMatchObject({
          success: false,
          error: 'Forbidden',
          errorDescription: expect.stringMatching(/--readTokenFile allows only GET.*send the token of --tokenFile/),
        })
      }
      expect(instance.calls).toEqual([])
      expect(instance.received).toEqual([])
    },
  )

  test('each answer says which token was sent, also an answer that refuses a command', async () => {
    const { api } = apiUnderTest({ token, readToken })
    const access = async (path: string, init: RequestInit) =>
      (await api.request(path, init)).headers.get('Tandem-Access')
    expect(await access('/api/v1/events', { headers: reading, method: 'HEAD' })).toBe('read')
    expect(await access('/api/v1/progress', { headers: reading })).toBe('read')
    expect(await access('/api/v1/pause', { headers: reading, method: 'POST' })).toBe('read')
    expect(await access('/api/v1/progress', { headers: bearer })).toBe('control')
    expect(await access('/api/v1/progress', {})).toBeNull()
    expect(await access('/healthz', { headers: bearer })).toBeNull()
    const { api: open } = apiUnderTest({})
    expect((await open.request('/api/v1/progress')).headers.get('Tandem-Access')).toBeNull()
  })

  test('the audit trail records which token a command had', async () => {
    const { post, instance } = apiUnderTest({ token, readToken })
    await post('/api/v1/pause', {}, bearer)
    await post('/api/v1/pause', {}, reading)
    await post('/api/v1/pause', {}, { Authorization: `Bearer ${token}x` })
    await post('/api/v1/pause')
    expect(instance.received).toMatchObject([{ token: 'control' }])
    expect(instance.recorded).toMatchObject([
      { token: 'control', outcome: 'accepted', admitted: true },
      { token: 'read', outcome: 'refused', error: 'Forbidden', admitted: false },
      { token: 'none', outcome: 'refused', error: 'Unauthorized', admitted: false },
      { token: 'none', outcome: 'refused', error: 'Unauthorized', admitted: false },
    ])
  })
})

describe('over TLS', () => {
  async function served() {
    const { api, instance } = apiUnderTest({ token, anyHost: true })
    const server = await serveApi({
      api,
      port: 0,
      tls: { cert: tlsPem.server, key: tlsPem.server },
      headersTimeoutSeconds: 0.3,
    })
    open.push(server)
    return { instance, port: server.port, url: `https://localhost:${server.port}` }
  }
  const trusted: Access = { token, ca: tlsPem.authority }
  async function run(command: ClientRequest['command'], url: string, access: Access) {
    const [printed, said]: [string[], string[]] = [[], []]
    const exitCode = await runClient(
      { command, urls: [url], body: { inline: {} }, access },
      { out: (line) => void printed.push(line), err: (line) => void said.push(line), width: null },
    )
    const reply = printed.length === 0 ? null : (JSON.parse(printed.join('')) as Record<string, unknown>)
    return { exitCode, reply, said: said.join('\n') }
  }

  test('the client commands commit and wait succeed with the token', async () => {
    const { instance, url } = await served()
    expect(await run('commit', url, trusted)).toEqual({ exitCode: 0, reply: { success: true }, said: '' })
    expect(instance.recorded).toMatchObject([{ command: 'commit', outcome: 'accepted', admitted: true }])
    instance.shown = { ...idleProgress, state: 'PAUSED' }
    const output = { out: () => {}, err: () => {}, report: () => {}, interactive: false }
    const request = { urls: [url], access: trusted, until: 'paused', timeoutSeconds: 5, json: false } as const
    expect(await runWait({ ...request, urls: [url] }, output)).toBe(0)
    expect(await run('commit', url, { ...trusted, token: `${token}a` })).toMatchObject({
      exitCode: 4,
      reply: { error: 'Unauthorized' },
    })
  })

  test('a certificate of an untrusted authority is refused with --tlsCAFile as the remedy, and the command is not sent', async () => {
    const { instance, url } = await served()
    const { exitCode, said } = await run('commit', url, { token, ca: null })
    expect(exitCode).toBe(5)
    expect(said).toMatch(/InstanceUnreachable: .*--tlsCAFile/)
    expect(instance.recorded).toEqual([])
  })

  test('connections with plain HTTP or TLS 1.1 are closed, and other connections are still answered', async () => {
    const { port, url } = await served()
    await expect(ask(`http://localhost:${port}/healthz`, { method: 'GET', body: null })).rejects.toThrow()
    const old = { port, host: 'localhost', ca: tlsPem.authority, maxVersion: 'TLSv1.1', minVersion: 'TLSv1' } as const
    const refused = await new Promise((resolve) => {
      connect({ ...old, ciphers: 'DEFAULT@SECLEVEL=0' })
        .on('error', resolve)
        .on('secureConnect', () => resolve(null))
    })
    expect(refused).toMatchObject({ code: expect.stringMatching(/PROTOCOL_VERSION|NO_PROTOCOLS/) })
    const answer = await ask(`${url}/healthz`, { method: 'GET', body: null, access: { ...trusted, token: null } })
    expect(answer.status).toBe(200)
  })
})
