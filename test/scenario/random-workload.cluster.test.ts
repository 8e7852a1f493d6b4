import { afterAll, beforeAll, expect, test } from 'vitest'
import { type Pair, startPair } from '../faults/clusters.ts'
import { migrateUnderWorkload } from '../faults/under-workload.ts'

/** Runs one of the random workloads of `npm run chaos -- --seeds 50`. chaos.long.test.ts runs such workloads with faults. */

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
