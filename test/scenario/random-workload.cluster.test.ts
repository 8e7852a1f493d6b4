import { afterAll, beforeAll, expect, test } from 'vitest'
import { type Pair, startPair } from '../faults/clusters.ts'
import { migrateUnderWorkload } from '../faults/under-workload.ts'

/** One of the random workloads that `npm run chaos -- --seeds 50` runs. chaos.long.test.ts adds faults to such workloads. */

let pair: Pair
beforeAll(async () => {
  pair = await startPair({ oplogSizeMB: 1_024 })
})
afterAll(() => pair?.[Symbol.asyncDispose]())

test.each([201])(
  'seed %i: both clusters are equal after a workload that lasts from before the copy until the commit',
  async (seed) => {
    expect(await migrateUnderWorkload({ pair, seed })).toMatchObject({ problems: [], segmentsReadAgain: 0 })
  },
)
