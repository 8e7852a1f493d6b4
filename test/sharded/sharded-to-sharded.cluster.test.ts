import { describe, expect, test } from 'vitest'
import { commit, rows, ShardedPair, shardedCollection } from '../support/sharded-pair.ts'

describe('a sync from two shards to two', () => {
  const pair = new ShardedPair({}, {})

  test('copies collections with every kind of shard key, with their keys, to every shard', async () => {
    const { source, sourceClient: client } = pair
    await client.db('admin').command({ enableSharding: 'app', primaryShard: source.shards[0]?.name })
    const ranged = await shardedCollection(source, client, 'ranged', { k: 1 }, [100])
    const byId = await shardedCollection(source, client, 'byId', { _id: 1 }, [500])
    const hashed = await shardedCollection(source, client, 'hashed', { _id: 'hashed' })
    const dotted = await shardedCollection(source, client, 'dotted', { 'a.b': 1, c: 'hashed' })
    const plain = rows(client, 'plain')
    for (const collection of [ranged, byId, hashed, dotted, plain]) {
      await collection.insertMany(
        Array.from({ length: 1_000 }, (_, i) => ({ _id: i, k: i % 200, a: i % 3 ? { b: i % 50 } : {}, c: i })),
      )
    }
    const tandem = await pair.startSync()
    await tandem.waitFor((progress) => progress.canCommit, { timeoutSeconds: 60, what: 'ready' })
    for (const collection of [ranged, byId, hashed, dotted, plain]) {
      await collection.insertOne({ _id: 5_000, k: 7, a: { b: 1 }, c: 1 })
      await collection.deleteOne({ _id: 3, k: 3 })
      await collection.updateOne({ _id: 10, k: 10 }, { $set: { x: 1 } })
    }
    await commit(tandem)
    await pair.expectEqual()
    for (const shard of pair.destination.shards) {
      expect(shard.uri).toBeTruthy()
    }
  })
})
