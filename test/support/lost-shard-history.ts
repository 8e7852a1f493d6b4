import { MongoClient, type Timestamp } from 'mongodb'
import { expect, vi } from 'vitest'
import type { ShardedCluster } from './sharded-cluster.ts'

const megabyte = 'x'.repeat(1_000_000)

/** Writes until the oplog of the source's first shard no longer reaches back to the time of the call. */
export async function loseShardHistory(source: ShardedCluster): Promise<void> {
  const [shard] = source.shards
  await using client = await MongoClient.connect(source.uri)
  await using direct = await MongoClient.connect(shard?.uri ?? '')
  const edge = async (order: 1 | -1): Promise<Timestamp> => {
    const oplog = direct.db('local').collection('oplog.rs')
    const [entry] = await oplog.find().sort({ $natural: order }).limit(1).toArray()
    return entry?.['ts'] as Timestamp
  }
  const lost = await edge(-1)
  await client.db('admin').command({ enableSharding: 'filler', primaryShard: shard?.name })
  const filler = client.db('filler').collection('filler')
  await vi.waitFor(
    async () => {
      await filler.insertMany(Array.from({ length: 4 }, () => ({ text: megabyte })))
      expect((await edge(1)).greaterThan(lost)).toBe(true)
    },
    { timeout: 120_000, interval: 20 },
  )
  await client.db('filler').dropDatabase()
}
