import { describe, expect, test } from 'vitest'
import { apiUnderTest } from './recording-instance.ts'

const progress = '/api/v1/progress'

describe('Host', () => {
  test.each([
    'localhost',
    'localhost:27182',
    'LOCALHOST:27182',
    'localhost.:27182',
    '127.0.0.1',
    '127.0.0.1:27182',
    '127.255.3.4:1',
    '[::1]',
    '[::1]:27182',
    '[0:0:0:0:0:0:0:1]:27182',
  ])('%s is a loopback name and accepted', async (host) => {
    const { get, post } = apiUnderTest()
    expect((await get(progress, { Host: host })).status).toBe(200)
    expect((await post('/api/v1/pause', {}, { Host: host })).status).toBe(200)
  })

  test.each([
    'evil.test',
    'evil.test:27182',
    'localhost.evil.test',
    'evil-localhost',
    '127.0.0.1.evil.test',
    '127.evil.test',
    '128.0.0.1',
    '0.0.0.0',
    '10.0.0.5:27182',
    '[::2]',
    'localhost@evil.test',
    'evil.test/localhost',
    '',
    'localhost:port',
    'localhost, evil.test',
  ])('%j is refused (DNS rebinding)', async (host) => {
    const { get, post, instance } = apiUnderTest()
    const replies = [
      await get(progress, { Host: host }),
      await post('/api/v1/commit', {}, { Host: host }),
      await get('/openapi.json', { Host: host }),
      await get('/healthz', { Host: host }),
    ]
    for (const reply of replies) {
      expect(reply.status).toBe(403)
      expect(reply.body).toMatchObject({
        success: false,
        error: 'InvalidRequest',
        errorDescription: expect.stringMatching(/^Host: /),
      })
    }
    expect(instance.calls).toEqual([])
  })

  test('any valid host name is accepted when other machines may connect', async () => {
    const { get } = apiUnderTest({ anyHost: true })
    for (const host of ['10.0.0.5:27182', 'sync.internal', '[fe80::5]:1', 'localhost']) {
      expect((await get(progress, { Host: host })).status, host).toBe(200)
    }
    expect((await get(progress, { Host: 'a b' })).status).toBe(403)
    expect((await get(progress, { Host: 'sync.internal', Origin: 'http://evil.test' })).status).toBe(403)
  })
})

describe('Origin', () => {
  test.each([
    ['http://evil.test', 'localhost:27182'],
    ['http://localhost:3000', 'localhost:27182'],
    ['http://localhost', 'localhost:27182'],
    ['http://127.0.0.1:27182', 'localhost:27182'],
    ['https://localhost:27182', 'localhost:27182'],
    ['null', 'localhost:27182'],
    ['', 'localhost:27182'],
    ['file://', 'localhost:27182'],
    ['http://localhost:27182.evil.test', 'localhost:27182'],
    ['http://evil.test, http://localhost:27182', 'localhost:27182'],
  ])('%j calling %s is foreign and refused', async (origin, host) => {
    const { get, post, instance } = apiUnderTest()
    for (const reply of [
      await get(progress, { Host: host, Origin: origin }),
      await post('/api/v1/commit', {}, { Host: host, Origin: origin }),
    ]) {
      expect(reply.status).toBe(403)
      expect(reply.body).toMatchObject({ success: false, error: 'InvalidRequest' })
      expect(reply.body.errorDescription).toMatch(/^Origin: /)
    }
    expect(instance.calls).toEqual([])
  })

  test.each([
    ['http://localhost:27182', 'localhost:27182'],
    ['http://localhost', 'localhost'],
    ['http://localhost', 'localhost:80'],
    ['http://[::1]:27182', '[::1]:27182'],
  ])('%s calling %s is the same origin and accepted', async (origin, host) => {
    const { post } = apiUnderTest()
    expect((await post('/api/v1/pause', {}, { Host: host, Origin: origin })).status).toBe(200)
  })
})

test('no CORS header is ever sent', async () => {
  const { api } = apiUnderTest()
  const requests: [string, RequestInit][] = [
    [progress, {}],
    [progress, { headers: { Host: 'localhost:27182', Origin: 'http://localhost:27182' } }],
    [progress, { headers: { Origin: 'http://evil.test' } }],
    ['/api/v1/start', { method: 'OPTIONS', headers: { 'Access-Control-Request-Method': 'POST' } }],
    ['/api/v1/start', { method: 'POST' }],
    ['/nowhere', {}],
    ['/openapi.json', {}],
  ]
  for (const [path, init] of requests) {
    const response = await api.request(path, init)
    expect([...response.headers.keys()].filter((name) => name.startsWith('access-control-'))).toEqual([])
  }
})

describe('Sec-Fetch-Site', () => {
  const crossSite = { 'Sec-Fetch-Site': 'cross-site' }

  test.each([progress, '/metrics', '/openapi.json', '/healthz', '/'])('cross-site: GET %s is refused', async (path) => {
    const { get, instance } = apiUnderTest()
    const reply = await get(path, { ...crossSite, 'Sec-Fetch-Mode': 'no-cors', 'Sec-Fetch-Dest': 'image' })
    expect(reply.status).toBe(403)
    expect(reply.body).toMatchObject({
      error: 'InvalidRequest',
      errorDescription: expect.stringMatching(/^Sec-Fetch-Site: /),
    })
    expect(instance.calls).toEqual([])
  })

  test('cross-site: a frame and a command are refused, and a link to the dashboard is accepted', async () => {
    const { api, get, post } = apiUnderTest()
    const navigation = { ...crossSite, 'Sec-Fetch-Mode': 'navigate' }
    expect((await get('/', { ...navigation, 'Sec-Fetch-Dest': 'iframe' })).status).toBe(403)
    expect((await get(progress, { ...navigation, 'Sec-Fetch-Dest': 'document' })).status).toBe(403)
    expect((await post('/api/v1/pause', {}, { ...navigation, 'Sec-Fetch-Dest': 'document' })).status).toBe(403)
    for (const page of ['/', '/docs/troubleshooting.md']) {
      expect((await api.request(page, { headers: { ...navigation, 'Sec-Fetch-Dest': 'document' } })).status).toBe(200)
      expect((await api.request(page, { headers: { ...navigation, 'Sec-Fetch-Dest': 'iframe' } })).status).toBe(403)
    }
  })

  test.each(['same-origin', 'same-site', 'none'])('%s is accepted', async (site) => {
    expect((await apiUnderTest().get(progress, { 'Sec-Fetch-Site': site })).status).toBe(200)
  })
})
