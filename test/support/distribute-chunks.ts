import { MinKey } from 'mongodb'
import type { ShardedCluster } from './sharded-cluster.ts'

export type ShardKeyPattern = Record<string, 1 | 'hashed'>

/**
 * Splits a sharded collection at values of its shard key's first field, and distributes the chunks to the shards in
 * turn.
 */
export async function distributeChunks(
  cluster: ShardedCluster,
  namespace: string,
  key: ShardKeyPattern,
  splitPoints: readonly unknown[],
): Promise<void> {
  const [first, ...others] = Object.keys(key) as [string, ...string[]]
  const rest = Object.fromEntries(others.map((field) => [field, new MinKey()]))
  for (const [at, splitPoint] of splitPoints.entries()) {
    const middle = { [first]: splitPoint, ...rest }
    await cluster.split(namespace, middle)
    await cluster.moveChunk(namespace, middle, (at + 1) % cluster.shards.length)
  }
}
