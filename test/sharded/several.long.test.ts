import { afterAll, beforeAll, expect, it } from 'vitest'
import { type ShardedClusters, startShardedClusters } from '../faults/clusters.ts'
import { migrateSharded } from '../faults/sharded-instances.ts'

/** Runs a sample of the cases of `npm run chaos:sharded`. */

let clusters: ShardedClusters

beforeAll(async () => {
  clusters = await startShardedClusters()
})
afterAll(() => clusters?.[Symbol.asyncDispose]())

it.each([
  [2, 101],
  [4, 102],
])(
  '%i instances sync sharded clusters while documents and chunks move and definitions change (seed %i)',
  async (instances, seed) => {
    const { problems, copied, total } = await migrateSharded(clusters, seed, instances, 80)
    expect(problems).toEqual([])
    expect(copied.reduce((sum, bytes) => sum + bytes, 0)).toBe(total)
  },
)
