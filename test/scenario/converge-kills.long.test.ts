import { afterAll, beforeAll, expect, test } from 'vitest'
import { type Pair, startPair } from '../faults/clusters.ts'
import { kill, stop } from '../faults/instance-faults.ts'
import { type InstanceFault, migrateBySeveral } from '../faults/several-instances.ts'
import { converging } from '../support/older-copy.ts'

/** Runs a fixed sample of the cases of `npm run chaos -- --converge 100`. A failed test names the seed with which to replay it there. */

let pair: Pair
beforeAll(async () => {
  pair = await startPair({ oplogSizeMB: 1_024, bulk: 40_000 })
})
afterAll(() => pair?.[Symbol.asyncDispose]())

const sample: [number, InstanceFault][] = [
  [901, kill('an instance', 3, true)],
  [902, kill('the coordinator', 1, false)],
  [903, stop('an instance', { awayMS: 13_000 })],
]

test.each(sample.map(([seed, fault]) => ({ seed, fault: converging(fault) })))(
  'seed $seed, two instances, $fault.name: the clusters are equal',
  async ({ seed, fault }) => {
    const result = await migrateBySeveral({ pair, seed, instances: 2, fault, steps: 60 })
    expect(result).toMatchObject({ problems: [] })
    expect(result.faults).toBeGreaterThan(0)
  },
)
