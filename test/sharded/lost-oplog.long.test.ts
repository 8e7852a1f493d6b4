import { expect, test } from 'vitest'
import { canCommit, commit } from '../support/commits.ts'
import { convergencesOf, loseShardHistory } from '../support/lost-history.ts'
import { type Row, rowsOf } from '../support/rows.ts'
import { ShardedPair, shardedCollection } from '../support/sharded-pair.ts'
import type { Tandem } from '../support/tandem-process.ts'

/** When the oplog of one shard has lost the position of a sync, a resume converges, and the clusters become equal. */

const pair = new ShardedPair({ oplogSizeMB: 16, extraArgs: ['--syncdelay', '1'] }, {})

const documents = Array.from({ length: 400 }, (_, _id): Row => ({ _id, k: _id % 40, z: _id }))
const keys = {
  changed: { k: 1 },
  refined: { k: 1 },
  rekeyed: { k: 1 },
  dropped: { k: 1 },
  recreated: { k: 1 },
  renamed: { k: 1 },
  byId: { _id: 1 },
} as const

async function seed(): Promise<void> {
  const { source, sourceClient: client } = pair
  const admin = client.db('admin')
  await admin.command({ balancerStop: 1 })
  await admin.command({ enableSharding: 'app', primaryShard: source.shards[0]?.name })
  await admin.command({ enableSharding: 'moved', primaryShard: source.shards[0]?.name })
  for (const [name, key] of Object.entries(keys)) {
    await (await shardedCollection(source, client, name, key, [20])).insertMany(documents)
  }
  await rowsOf(client, 'plain').insertMany(documents)
  await client.db('moved').collection<Row>('plain').insertMany(documents)
}

/** Makes changes of each kind on the source, while the sync is paused. */
async function change(): Promise<void> {
  const { source, sourceClient: client } = pair
  const admin = client.db('admin')
  const app = client.db('app')
  for (const name of ['changed', 'refined', 'rekeyed', 'renamed', 'byId', 'plain']) {
    const here = rowsOf(client, name)
    await here.insertMany(Array.from({ length: 50 }, (_, at): Row => ({ _id: 1_000 + at, k: at % 40, z: -at })))
    await here.updateMany({ _id: { $lt: 50 } }, { $inc: { z: 1 } })
    await here.deleteMany({ _id: { $gte: 50, $lt: 100 } })
    // If the collection is sharded by `k`, these documents move to the other shard.
    await here.deleteMany({ _id: { $in: [200, 225] } })
    await here.insertMany([
      { _id: 200, k: 39 },
      { _id: 225, k: 1 },
    ])
  }
  await source.moveChunk('app.changed', { k: 30 }, 0)
  await rowsOf(client, 'refined').createIndex({ k: 1, z: 1 })
  await admin.command({ refineCollectionShardKey: 'app.refined', key: { k: 1, z: 1 } })
  await rowsOf(client, 'rekeyed').createIndex({ z: 1 })
  await admin.command({ reshardCollection: 'app.rekeyed', key: { z: 1 }, numInitialChunks: 2 })
  await app.collection('dropped').drop()
  await app.collection('recreated').drop()
  await (await shardedCollection(source, client, 'recreated', { z: 1 }, [100])).insertMany(documents.slice(100, 200))
  await app.renameCollection('renamed', 'otherName')
  await rowsOf(client, 'plain').createIndex({ z: 1 })
  await admin.command({ shardCollection: 'app.plain', key: { z: 1 } })
  await (await shardedCollection(source, client, 'created', { k: 'hashed' })).insertMany(documents)
  // The server clones the collection to the other shard and emits no events for its documents.
  await admin.command({ movePrimary: 'moved', to: source.shards[1]?.name })
}

/** Sends resume until tandem requests the convergence. The first resume may only detect that the oplog has lost the position. */
async function resumeLost(tandem: Tandem): Promise<void> {
  for (let resumes = 0; resumes < 2; resumes++) {
    expect(await tandem.post('resume')).toMatchObject({ status: 200 })
    const requested = async () => (await convergencesOf(pair.destinationClient)) === 1
    const couldCommit: boolean[] = []
    const lost = async () => {
      const { failure, canCommit: can } = await tandem.progress()
      couldCommit.push(can)
      return failure?.error === 'OplogWindowLost'
    }
    await expect.poll(async () => (await requested()) || (await lost()), { timeout: 120_000, interval: 20 }).toBe(true)
    expect(couldCommit).not.toContain(true)
    if (await requested()) return
  }
  throw new Error('no convergence was requested')
}

test('after the oplog of one shard has lost the position, resume converges all collections', async () => {
  await seed()
  const tandem = await pair.startSync()
  await canCommit(tandem)
  expect(await tandem.post('pause')).toMatchObject({ status: 200 })
  await change()
  await loseShardHistory(pair.source)
  await resumeLost(tandem)
  await rowsOf(pair.sourceClient, 'changed').deleteOne({ _id: 1, k: 1 })
  await rowsOf(pair.sourceClient, 'plain').insertOne({ _id: 'written', k: 1, z: 7 })
  await commit(tandem)
  await pair.expectEqual()
  expect(await convergencesOf(pair.destinationClient)).toBe(1)
  expect(await rowsOf(pair.destinationClient, 'changed').countDocuments()).toBe(399)
})
