import { afterAll, beforeAll, expect, test } from 'vitest'
import { type Pair, startPair } from '../faults/clusters.ts'
import { migrateUnderWorkload } from '../faults/under-workload.ts'

/** One random workload of those that `npm run chaos -- --seeds 50` runs. With faults they are in chaos.long.test.ts. */

let pair: Pair
beforeAll(async () => {
  pair = await startPair({ oplogSizeMB: 1_024 })
})
afterAll(() => pair?.[Symbol.asyncDispose]())

test.each([201])('seed %i ends equal, from before the copy until the commit', async (seed) => {
  expect(await migrateUnderWorkload({ pair, seed })).toMatchObject({ problems: [], segmentsReadAgain: 0 })
})
