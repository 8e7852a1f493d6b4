import { expect, test } from 'vitest'
import { canCommit, commit } from '../support/commits.ts'
import { type Row, rowsOf } from '../support/rows.ts'
import { failure, ShardedPair, shardedCollection, start } from '../support/sharded-pair.ts'

/** Syncs from a cluster of two shards to a replica set. All collections become unsharded. */

const pair = new ShardedPair({}, 'replicaSet')
const documents = Array.from({ length: 1_000 }, (_, _id): Row => ({ _id, k: _id % 200, u: _id, z: 0 }))
const unblocked = { enableUserWriteBlocking: 'none' }

async function placeDatabase(): Promise<void> {
  const admin = pair.sourceClient.db('admin')
  await admin.command({ balancerStop: 1 })
  await admin.command({ enableSharding: 'app', primaryShard: pair.source.shards[0]?.name })
}

test('sharded collections become unsharded collections with the same documents, options and indexes', async () => {
  const { source, sourceClient: client } = pair
  await placeDatabase()
  const keys = { ranged: { k: 1 }, byId: { _id: 1 }, hashed: { k: 'hashed' }, plain: null } as const
  for (const [name, key] of Object.entries(keys)) {
    const collection = key
      ? await shardedCollection(source, client, name, key, name === 'hashed' ? [] : [100])
      : rowsOf(client, name)
    await collection.createIndex({ u: 1 }, { sparse: true })
    await collection.insertMany(documents)
  }
  const tandem = await pair.startSync()
  await canCommit(tandem)

  const ranged = rowsOf(client, 'ranged')
  await ranged.insertOne({ _id: 'written', k: 150 })
  await ranged.deleteMany({ _id: { $in: [1, 101] } })
  // The shard key changes, so the document moves to the other shard. Its delete event and its insert event have the same time.
  await ranged.updateOne({ _id: 3, k: 3 }, { $set: { k: 199 } })
  await source.moveChunk('app.ranged', { k: 150 }, 0)
  await ranged.updateOne({ _id: 4, k: 4 }, { $inc: { z: 1 } })
  await ranged.createIndex({ k: 1, z: 1 })
  await client.db('admin').command({ refineCollectionShardKey: 'app.ranged', key: { k: 1, z: 1 } })
  await ranged.updateOne({ _id: 5, k: 5, z: 0 }, { $set: { z: 7 } })
  const created = await shardedCollection(source, client, 'created', { k: 1 }, [100])
  await created.insertMany(documents.slice(0, 300))
  await client.db('admin').command({ renameCollection: 'app.byId', to: 'app.renamed' })
  await rowsOf(client, 'plain').drop()

  await commit(tandem)
  await pair.expectEqual()
  const names = (await pair.destinationClient.db('app').listCollections().toArray()).map(({ name }) => name)
  expect(names.sort()).toEqual(['created', 'hashed', 'ranged', 'renamed'])
})

test('check, the copy and event application each detect an _id on two shards, and no document is lost silently', async () => {
  const { source, sourceClient: client } = pair
  await placeDatabase()
  const ranged = await shardedCollection(source, client, 'ranged', { k: 1 }, [100])
  await ranged.insertMany(documents)
  await ranged.insertOne({ _id: 7, k: 150 })
  const tandem = await pair.startTandem()
  const { body } = await tandem.post('check', { source: 'cluster0', destination: 'cluster1' })
  expect(body).toMatchObject({
    findings: expect.arrayContaining([
      expect.objectContaining({ name: 'DuplicateDocumentId', namespace: 'app.ranged' }),
    ]),
  })
  expect(await start(tandem, unblocked)).toMatchObject({ status: 200 })
  const expected = { error: 'DuplicateDocumentId', errorDescription: expect.stringMatching(/app\.ranged .* _id .*"7"/) }
  expect(await failure(tandem)).toMatchObject(expected)

  await ranged.deleteOne({ _id: 7, k: 150 })
  expect(await tandem.post('resume')).toMatchObject({ status: 200 })
  await canCommit(tandem)
  await ranged.insertOne({ _id: 8, k: 151 })
  expect(await failure(tandem)).toMatchObject({
    ...expected,
    errorDescription: expect.stringMatching(/app\.ranged .* _id .*"8"/),
  })
  await ranged.deleteOne({ _id: 8, k: 151 })
  expect(await tandem.post('resume')).toMatchObject({ status: 200 })
  await commit(tandem)
  await pair.expectEqual()
})

test('resync and start with converge make existing collections equal without dropping them', async () => {
  const { source, sourceClient: client, destinationClient } = pair
  await placeDatabase()
  const ranged = await shardedCollection(source, client, 'ranged', { k: 1 }, [100])
  await ranged.insertMany(documents)
  const there = rowsOf(destinationClient, 'ranged')
  await there.insertMany([...documents.slice(0, 700), { _id: 'extra', k: 1 }])
  await there.updateMany({ _id: { $lt: 10 } }, { $set: { z: 5 } })
  const uuidOf = async () => {
    const [found] = (await destinationClient.db('app').command({ listCollections: 1, filter: { name: 'ranged' } }))[
      'cursor'
    ].firstBatch
    return found.info.uuid
  }
  const before = await uuidOf()
  const tandem = await pair.startSync({ ...unblocked, existingData: 'converge' })
  await canCommit(tandem)
  await there.deleteMany({ _id: { $gte: 500 } })
  await there.updateOne({ _id: 1 }, { $set: { z: 9 } })
  expect(await tandem.post('resync', { namespaces: [{ database: 'app', collection: 'ranged' }] })).toMatchObject({
    status: 200,
  })
  await ranged.updateOne({ _id: 2, k: 2 }, { $set: { k: 180 } })
  await commit(tandem)
  await pair.expectEqual()
  expect(await uuidOf()).toEqual(before)
})

test('a start is refused with reversible, and with sharding', async () => {
  const tandem = await pair.startTandem()
  const refused = (error: string) => ({ status: 422, body: { success: false, error } })
  expect(await start(tandem, { reversible: true })).toMatchObject(refused('ReversibleNotSupported'))
  const sharding = { createSupportingIndexes: false, shardingEntries: [] }
  expect(await start(tandem, { sharding })).toMatchObject(refused('ShardingNotAllowed'))
  expect((await tandem.progress()).state).toBe('IDLE')
})
