import fc from 'fast-check'
import { expect, test } from 'vitest'
import { serveApi } from '../../src/api/server.ts'
import { apiUnderTest } from '../api/recording-instance.ts'
import { fuzzedRequest, sendFuzzed } from '../support/fuzz.ts'

/** Runs a small fixed sample of the requests of `npm run fuzz`. */
test('no request makes the API fail over HTTP', async () => {
  const { api, internalErrors } = apiUnderTest()
  const server = await serveApi({ api, port: 0 })
  const requests = fc.sample(fuzzedRequest, { seed: 20, numRuns: 500 })
  for (const request of requests) expect([request, await sendFuzzed(server.port, request)]).toEqual([request, null])
  expect(internalErrors).toEqual([])
  expect((await fetch(`http://127.0.0.1:${server.port}/healthz`)).status).toBe(200)
  await server.close()
})
