import { afterAll, beforeAll, expect, test } from 'vitest'
import { type Pair, startPair } from '../faults/clusters.ts'
import { coordinatorDies, cut, joinAndLeave, kill, stop } from '../faults/instance-faults.ts'
import { type InstanceFault, migrateBySeveral } from '../faults/several-instances.ts'

/** Runs a fixed sample of the cases of `npm run chaos -- --instanceFaults 100`. A failed test names the seed with which to replay it there. */

let pair: Pair
beforeAll(async () => {
  pair = await startPair({ oplogSizeMB: 1_024, bulk: 40_000 })
})
afterAll(() => pair?.[Symbol.asyncDispose]())

/** Slightly longer than a lease term, ms. */
const awayMS = 13_000

const sample: [number, number, InstanceFault][] = [
  [701, 3, kill('the coordinator', 1, true)],
  [702, 2, stop('an instance', { awayMS })],
  [703, 2, joinAndLeave()],
  [704, 2, cut('swallowed', { awayMS })],
  [705, 2, coordinatorDies('barrier', true)],
  [706, 2, coordinatorDies('restoreExpiry', false)],
]

test.each(sample.map(([seed, instances, fault]) => ({ seed, instances, fault, name: fault.name })))(
  'seed $seed, $instances instances, $name: the clusters are equal, each epoch has one owner, and takeovers are fast enough',
  async ({ seed, instances, fault }) => {
    const result = await migrateBySeveral({ pair, seed, instances, fault, steps: 60 })
    expect(result).toMatchObject({ problems: [] })
    expect(result.faults).toBeGreaterThan(0)
  },
)
