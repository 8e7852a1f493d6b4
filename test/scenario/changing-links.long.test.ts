import { afterAll, beforeAll, expect, test } from 'vitest'
import { type Pair, startPair } from '../faults/clusters.ts'
import { kill } from '../faults/instance-faults.ts'
import { overChangingLinks, writesMS } from '../faults/plans/links.ts'
import { migrateBySeveral } from '../faults/several-instances.ts'

/** A fixed sample of what `npm run chaos -- --links 50` runs in full. A failing test names its seed for a replay there. */

let pair: Pair
beforeAll(async () => {
  pair = await startPair({ proxied: true, variableLinks: true, oplogSizeMB: 1_024, bulk: 20_000 })
})
afterAll(() => pair?.[Symbol.asyncDispose]())

const sample = [
  { seed: 1001, fault: overChangingLinks(null) },
  { seed: 1002, fault: overChangingLinks(kill('an instance', 1, true)) },
]

test.each(sample)('seed $seed, two instances, $fault.name: the clusters are equal', async ({ seed, fault }) => {
  const result = await migrateBySeveral({ pair, seed, instances: 2, fault, steps: 60, writesMS })
  expect(result).toMatchObject({ problems: [] })
  expect(result.faults).toBeGreaterThan(1)
})
