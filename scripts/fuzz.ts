import { parseArgs } from 'node:util'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import fc from 'fast-check'
import { serveApi } from '../src/api/server.ts'
import { apiUnderTest } from '../test/api/recording-instance.ts'
import { fuzzedRequest, sendFuzzed } from '../test/support/fuzz.ts'

/**
 * Arbitrary requests over real HTTP to the served API, in front of the tests' recording instance: what is tried is the
 * door, not a sync behind it. Fails by an answer of 5xx or in another shape, by an internal error, and when memory grows.
 */

const { values } = parseArgs({
  options: {
    requests: { type: 'string', default: '10000' },
    seed: { type: 'string', default: String(Date.now() % 1_000_000) },
  },
})
const [requests, seed] = [Number(values.requests), Number(values.seed)]
if (!Number.isInteger(requests) || requests < 100 || !Number.isInteger(seed)) {
  console.error('error: --requests takes a whole number from 100, --seed a whole number')
  process.exit(2)
}

/** Requests under way at a time, and drawn at a time. */
const lanes = 8
const drawnMax = 500
/** Between the two looks at it, after which memory counts as growing: what engines keep, they keep early. */
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
let early: number | null = null
console.log(`${requests} requests, --seed ${seed}`)

function failing(what: string): void {
  failed += 1
  if (failed <= failuresShown) console.log(what)
}

for (let round = 0; sent < requests; round += 1) {
  const drawn = fc.sample(fuzzedRequest, { seed: seed + round, numRuns: Math.min(drawnMax, requests - sent) })
  sent += drawn.length
  const lane = async (): Promise<void> => {
    for (let next = drawn.pop(); next; next = drawn.pop()) {
      const problem = await sendFuzzed(server.port, next)
      if (problem === null) passed += 1
      else failing(`${problem}\n  to ${JSON.stringify(next)}`)
    }
  }
  await Promise.all(Array.from({ length: lanes }, lane))
  // What the tests' instance notes down is no memory of the API.
  instance.calls = []
  instance.recorded = []
  if (early === null && sent >= requests / 5) early = heapUsed()
}

for (const error of internalErrors) failing(`internal error: ${error instanceof Error ? error.stack : String(error)}`)
const [begin, end] = [early ?? 0, heapUsed()]
const megabytes = (bytes: number): string => (bytes / 1024 / 1024).toFixed(1)
console.log(`heap after collection: ${megabytes(begin)} MiB at 20 %, ${megabytes(end)} MiB at 100 %`)
if (end - begin > growthMax) failing('memory grows')
await server.close()
console.log(`${passed} passed, ${failed} failed`)
process.exitCode = failed === 0 ? 0 : 1
