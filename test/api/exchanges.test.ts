import { expect, test } from 'vitest'
import { apiUnderTest, minimalStart } from './recording-instance.ts'

/** As docs/logs.md says, the log has each command and its answer, and no queries, because clients send them every second. */

test('a start is recorded with its body, and each command with its answer', async () => {
  const { post, exchanges } = apiUnderTest()
  await post('/api/v1/start', minimalStart)
  await post('/api/v1/pause')
  const [method, accepted] = ['POST', { status: 200, body: '{"success":true}' }]
  expect(exchanges).toEqual([
    { method, uri: '/api/v1/start', body: JSON.stringify(minimalStart) },
    { method, uri: '/api/v1/start', ...accepted },
    { method, uri: '/api/v1/pause' },
    { method, uri: '/api/v1/pause', ...accepted },
  ])
})

test('of an invalid start only the answer is recorded, because unknown fields may be secrets', async () => {
  const { post, exchanges } = apiUnderTest()
  await post('/api/v1/start', { ...minimalStart, password: 'canary' })
  expect(exchanges).toMatchObject([{ uri: '/api/v1/start', status: 400 }])
  expect(JSON.stringify(exchanges)).not.toContain('canary')
})

test('queries and requests without the token are not recorded', async () => {
  const { get, post, exchanges } = apiUnderTest({ token: 'a-long-enough-token' })
  await get('/api/v1/progress', { authorization: 'Bearer a-long-enough-token' })
  await post('/api/v1/start', minimalStart)
  expect(exchanges).toEqual([])
})

test('the log shows an empty object instead of a body that is too long for a log line', async () => {
  const { post, exchanges } = apiUnderTest()
  const includeNamespaces = Array.from({ length: 2_000 }, (_, at) => ({ database: `database${at}` }))
  await post('/api/v1/start', { ...minimalStart, includeNamespaces })
  expect(exchanges[0]).toEqual({ method: 'POST', uri: '/api/v1/start', body: '{}' })
})
