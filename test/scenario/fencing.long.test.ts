import { afterAll, beforeAll, expect, test } from 'vitest'
import { type Pair, startPair } from '../faults/clusters.ts'
import { clockSteps, lateDelivery, podReplacement, suspension } from '../faults/fencing-faults.ts'
import { type InstanceFault, migrateBySeveral } from '../faults/several-instances.ts'
import { podsAreAllowed } from '../support/pod.ts'
import { type SteppedClock, startSteppedClock } from '../support/stepped-clock.ts'

/** Runs a fixed sample of the cases of `npm run chaos -- --fencing 200`. A failed test names the seed with which to replay it there. */

let pair: Pair
let clock: SteppedClock
beforeAll(async () => {
  clock = await startSteppedClock()
  pair = await startPair({ oplogSizeMB: 1_024, destinationClock: clock, bulk: 20_000 })
})
afterAll(async () => {
  await pair?.[Symbol.asyncDispose]()
  clock?.close()
})

const lateMS: [number, number] = [5_000, 7_000]
/** Slightly longer than a lease term, ms. */
const awayMS: [number, number] = [13_000, 14_000]

const sample: [number, number, () => InstanceFault][] = [
  [801, 1, () => lateDelivery('cut', { lateMS, rounds: 2, when: 'running' })],
  [802, 1, () => lateDelivery('cut', { lateMS, rounds: 1, when: 'at commit' })],
  [803, 2, () => clockSteps(clock, 2)],
  [804, 2, () => suspension('coordinator', 'stop', awayMS)],
  ...((await podsAreAllowed())
    ? ([[805, 1, () => podReplacement('suspended', [2_000, 3_000])]] as [number, number, () => InstanceFault][])
    : []),
]

test.each(sample.map(([seed, instances, make]) => ({ seed, instances, make })))(
  'seed $seed, $instances instances: the clusters are equal without verification',
  async ({ seed, instances, make }) => {
    const result = await migrateBySeveral({ pair, seed, instances, fault: make(), steps: 60 })
    expect(result).toMatchObject({ problems: [] })
    expect(result.faults).toBeGreaterThan(0)
  },
)
