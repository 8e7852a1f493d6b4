import { afterAll, beforeAll, expect, it } from 'vitest'
import { type ShardedCluster, startShardedCluster } from '../support/sharded-cluster.ts'
import { runShardedTeam } from '../support/sharded-team.ts'

/** A sample of `npm run chaos:sharded`. */

let source: ShardedCluster
let destination: ShardedCluster

beforeAll(async () => {
  ;[source, destination] = await Promise.all([startShardedCluster(), startShardedCluster()])
})
afterAll(async () => {
  await Promise.all([source?.stop(), destination?.stop()])
})

it.each([
  [2, 101],
  [4, 102],
])(
  '%i instances sync sharded clusters while documents, chunks and definitions move (seed %i)',
  async (instances, seed) => {
    const { differences, copied, total } = await runShardedTeam({ source, destination }, seed, instances, 80)
    expect(differences).toEqual([])
    expect(copied.reduce((sum, bytes) => sum + bytes, 0)).toBe(total)
  },
)
