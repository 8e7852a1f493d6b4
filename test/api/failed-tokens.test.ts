import { describe, expect, test } from 'vitest'
import { FailedTokens, failuresPerMinuteMax, networkOf, type RefusedTokens } from '../../src/api/failed-tokens.ts'
import { apiUnderTest } from './recording-instance.ts'

const token = 'a1'.repeat(20)

function limiter() {
  const clock = { now: 0 }
  const reported: RefusedTokens[] = []
  const failed = new FailedTokens(
    (refused) => reported.push(refused),
    () => clock.now,
  )
  const fail = (address: string | null, times: number): (number | null)[] =>
    Array.from({ length: times }, () => failed.add(address))
  return { clock, reported, failed, fail }
}

describe('requests without a valid token', () => {
  test('are counted for each address, and forgotten a minute after the first', () => {
    const { clock, fail } = limiter()
    expect(fail('10.0.0.1', failuresPerMinuteMax)).toEqual(Array(failuresPerMinuteMax).fill(null))
    clock.now = 20_500
    expect(fail('10.0.0.1', 2)).toEqual([40, 40])
    expect(fail('10.0.0.2', 1)).toEqual([null])
    clock.now = 60_000
    expect(fail('10.0.0.1', 1)).toEqual([null])
  })

  test('are reported once a minute, with their number', () => {
    const { clock, reported, fail } = limiter()
    fail('10.0.0.1', failuresPerMinuteMax + 100)
    expect(reported).toEqual([{ remoteAddress: '10.0.0.1', attempts: 1, failuresPerMinuteMax }])
    clock.now = 59_999
    fail('10.0.0.1', 1)
    expect(reported).toHaveLength(1)
    clock.now = 61_000
    fail('10.0.0.1', failuresPerMinuteMax + 1)
    expect(reported.slice(1)).toEqual([{ remoteAddress: '10.0.0.1', attempts: 101, failuresPerMinuteMax }])
  })

  test('use a bounded amount of memory for any number of addresses', () => {
    const { clock, failed, fail } = limiter()
    for (let address = 0; address < 50_000; address += 1) {
      failed.add(`10.${address >> 16}.${(address >> 8) & 255}.${address & 255}`)
    }
    expect(failed.size).toBe(10_001)
    // Addresses beyond the maximum share one counter.
    expect(fail('192.0.2.1', 1)).toEqual([60])
    clock.now = 60_000
    expect(fail('192.0.2.1', 1)).toEqual([null])
    expect(failed.size).toBe(1)
  })

  test.each([
    ['127.0.0.1', '127.0.0.1'],
    ['::ffff:10.0.0.1', '10.0.0.1'],
    ['2001:db8:1:2:3:4:5:6', '2001:db8:1:2'],
    ['2001:db8:1:2::9', '2001:db8:1:2'],
    ['2001:0db8:0001:0002::', '2001:db8:1:2'],
    ['fe80::1%eth0', 'fe80:0:0:0'],
    ['::1', '0:0:0:0'],
    [null, ''],
  ])('from %s count for %s', (address, network) => {
    expect(networkOf(address)).toBe(network)
  })
})

describe('the API', () => {
  const wrong = { Authorization: `Bearer ${token}x` }

  test('answers 429 with Retry-After to clients that fail too often, reports it once, and accepts the right token', async () => {
    const { get, post, instance, tokensRefused } = apiUnderTest({ token })
    const statuses: number[] = []
    for (let sent = 0; sent < failuresPerMinuteMax; sent += 2) {
      statuses.push((await post('/api/v1/commit', {}, wrong)).status, (await get('/metrics')).status)
    }
    expect(new Set(statuses)).toEqual(new Set([401]))
    const recordedBefore = instance.recorded.length
    for (const reply of [
      await get('/api/v1/progress', wrong),
      await post('/api/v1/commit', {}, wrong),
      await get('/x'),
    ]) {
      expect(reply.status).toBe(429)
      expect(Number(reply.headers.get('Retry-After'))).toBeGreaterThan(50)
      expect(reply.body).toMatchObject({ success: false, error: 'TooManyRequests' })
    }
    // A log line for each attempt would fill the log.
    expect(instance.recorded).toHaveLength(recordedBefore)
    expect(tokensRefused).toEqual([{ remoteAddress: null, attempts: 1, failuresPerMinuteMax }])
    const right = { Authorization: `Bearer ${token}` }
    expect((await post('/api/v1/commit', {}, right)).status).toBe(200)
    expect((await get('/healthz')).status).toBe(200)
  })

  test('does not count requests that need no token, and counts nothing if no token is configured', async () => {
    const { get } = apiUnderTest({ token })
    for (let sent = 0; sent < 2 * failuresPerMinuteMax; sent += 1) {
      expect((await get('/healthz', wrong)).status).toBe(200)
    }
    expect((await get('/api/v1/progress', wrong)).status).toBe(401)
    const open = apiUnderTest()
    for (let sent = 0; sent < 2 * failuresPerMinuteMax; sent += 1) {
      expect((await open.get('/api/v1/progress', wrong)).status).toBe(200)
    }
  })
})
