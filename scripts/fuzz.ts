import { parseArgs } from 'node:util'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import fc from 'fast-check'
import { serveApi } from '../src/api/server.ts'
import { apiUnderTest } from '../test/api/recording-instance.ts'
import { fuzzedRequest, sendFuzzed } from '../test/support/fuzz.ts'

/**
 * Sends arbitrary requests over real HTTP to the API. Behind the API is the recording instance of the tests, so this tests the
 * HTTP layer and not a sync. It fails on a 5xx response, on a response of an unknown shape, on an internal error, and if memory
 * grows.
 */

const { values } = parseArgs({
  options: {
    requests: { type: 'string', default: '10000' },
    seed: { type: 'string', default: String(Date.now() % 1_000_000) },
  },
})
const [requests, seed] = [Number(values.requests), Number(values.seed)]
if (!Number.isInteger(requests) || requests < 100 || !Number.isInteger(seed)) {
  console.error('error: --requests takes a whole number of at least 100, --seed takes a whole number')
  process.exit(2)
}

/** Number of concurrent requests. */
const concurrency = 8
/** Maximum number of requests that are generated in one round. */
const drawnMax = 500
/**
 * Bytes by which the heap may grow between 20 % and 100 % of the requests. The first 20 % are excluded, because they fill
 * caches.
 */
const growthMax = 8 * 1024 * 1024
const failuresShown = 10

setFlagsFromString('--expose-gc')
const collect = runInNewContext('gc') as () => void
function heapUsed(): number {
  collect()
  return process.memoryUsage().heapUsed
}

const { api, instance, internalErrors } = apiUnderTest()
const server = await serveApi({ api, port: 0 })
let [passed, failed, sent] = [0, 0, 0]
let heapAtStart: number | null = null
console.log(`${requests} requests, --seed ${seed}`)

function reportFailure(what: string): void {
  failed += 1
  if (failed <= failuresShown) console.log(what)
}

for (let round = 0; sent < requests; round += 1) {
  const drawn = fc.sample(fuzzedRequest, { seed: seed + round, numRuns: Math.min(drawnMax, requests - sent) })
  sent += drawn.length
  const sendRemaining = async (): Promise<void> => {
    for (let next = drawn.pop(); next; next = drawn.pop()) {
      const problem = await sendFuzzed(server.port, next)
      if (problem === null) passed += 1
      else reportFailure(`${problem}\n  to ${JSON.stringify(next)}`)
    }
  }
  await Promise.all(Array.from({ length: concurrency }, sendRemaining))
  // The recording instance's own records must not count as memory of the API.
  instance.calls = []
  instance.recorded = []
  if (heapAtStart === null && sent >= requests / 5) heapAtStart = heapUsed()
}

for (const error of internalErrors)
  reportFailure(`internal error: ${error instanceof Error ? error.stack : String(error)}`)
const [begin, end] = [heapAtStart ?? 0, heapUsed()]
const megabytes = (bytes: number): string => (bytes / 1024 / 1024).toFixed(1)
console.log(`heap after collection: ${megabytes(begin)} MiB at 20 %, ${megabytes(end)} MiB at 100 %`)
if (end - begin > growthMax) reportFailure('the heap grew by more than its limit')
await server.close()
console.log(`${passed} passed, ${failed} failed`)
process.exitCode = failed === 0 ? 0 : 1
