import type { Document, MongoClient } from 'mongodb'
import { expect, test } from 'vitest'
import type { Finding } from '../../src/domain/finding.ts'
import { canCommit, commit } from '../support/commits.ts'
import { convergencesOf } from '../support/lost-history.ts'
import { type Row, rowsOf } from '../support/rows.ts'
import { ShardedPair, shardedCollection } from '../support/sharded-pair.ts'

/** The destination is a sharded cluster whose collections already have documents. It becomes equal to the source. */

const pair = new ShardedPair({}, {})

const documents = Array.from({ length: 600 }, (_, _id): Row => ({ _id, k: _id % 40, z: _id }))
const unblocked = { enableUserWriteBlocking: 'none' }

async function placeDatabases(...clients: MongoClient[]): Promise<void> {
  for (const client of clients) {
    const cluster = client === pair.sourceClient ? pair.source : pair.destination
    await client.db('admin').command({ balancerStop: 1 })
    await client.db('admin').command({ enableSharding: 'app', primaryShard: cluster.shards[0]?.name })
  }
}

/** Creates a collection with documents. If the collection is sharded, both shards have some of the documents. */
async function seeded(client: MongoClient, name: string, key: Record<string, 1 | 'hashed'> | null): Promise<void> {
  const cluster = client === pair.sourceClient ? pair.source : pair.destination
  const isHashed = Object.values(key ?? {})[0] === 'hashed'
  if (key) await shardedCollection(cluster, client, name, key, isHashed ? [] : [20])
  await rowsOf(client, name).insertMany(documents)
}

/** Creates differences of each kind on the destination. No event of the source corrects them. */
async function corrupt(name: string): Promise<void> {
  const there = rowsOf(pair.destinationClient, name)
  await there.updateMany({ _id: { $in: [1, 30] } }, { $set: { corrupt: true } })
  await there.deleteMany({ _id: { $in: [2, 31, 599] } })
  await there.insertMany([
    { _id: 'extra', k: 3 },
    { _id: 10_000, k: 39 },
  ])
}

/** Stores documents with wrong shard key values: two in place of the correct document, two in addition to it. */
async function corruptKeys(name: string): Promise<void> {
  const there = rowsOf(pair.destinationClient, name)
  await there.deleteMany({ _id: { $in: [3, 33] } })
  await there.insertMany([
    { _id: 3, k: 39, z: 3 },
    { _id: 33, k: 1, z: 33 },
    { _id: 4, k: 39, z: 4 },
    { _id: 34, k: 1, z: 34 },
  ])
}

const resync = (...names: string[]) => ({ namespaces: names.map((collection) => ({ database: 'app', collection })) })

test('resync makes sharded collections equal, with each document only under its own shard key value', async () => {
  const { source, sourceClient, destinationClient } = pair
  await placeDatabases(sourceClient)
  await seeded(sourceClient, 'ranged', { k: 1 })
  await seeded(sourceClient, 'byId', { _id: 1 })
  await seeded(sourceClient, 'hashed', { _id: 'hashed' })
  await seeded(sourceClient, 'plain', null)
  await seeded(sourceClient, 'refined', { k: 1 })
  await seeded(sourceClient, 'dropped', { k: 1 })
  const tandem = await pair.startSync(unblocked)
  await canCommit(tandem)

  for (const name of ['ranged', 'byId', 'hashed', 'plain']) await corrupt(name)
  await corruptKeys('ranged')
  await rowsOf(destinationClient, 'dropped').drop()
  // No command can remove a field from a shard key again, so the resync has to recreate this collection.
  await rowsOf(destinationClient, 'refined').createIndex({ k: 1, z: 1 })
  await destinationClient.db('admin').command({ refineCollectionShardKey: 'app.refined', key: { k: 1, z: 1 } })

  const body = resync('ranged', 'byId', 'hashed', 'plain', 'refined', 'dropped')
  expect(await tandem.post('resync', body)).toMatchObject({ status: 200 })
  expect(await tandem.progress()).toMatchObject({ state: 'RUNNING', canCommit: false })
  await source.moveChunk('app.ranged', { k: 25 }, 0)
  const ranged = rowsOf(sourceClient, 'ranged')
  await ranged.updateOne({ _id: 5, k: 5 }, { $set: { z: -1 } })
  await ranged.deleteOne({ _id: 6, k: 6 })
  await ranged.insertOne({ _id: 'written', k: 30 })
  await commit(tandem)
  await pair.expectEqual()
  expect(await ranged.countDocuments()).toBe(600)
  expect(await rowsOf(destinationClient, 'ranged').countDocuments()).toBe(600)
  expect(await convergencesOf(destinationClient)).toBe(1)
})

test('documents with the same _id on two shards of the source are two documents after a resync', async () => {
  const { sourceClient, destinationClient } = pair
  await placeDatabases(sourceClient)
  await seeded(sourceClient, 'ranged', { k: 1 })
  await rowsOf(sourceClient, 'ranged').insertMany([
    { _id: 7, k: 39 },
    { _id: 47, k: 39 },
    { _id: 35, k: 1 },
  ])
  const tandem = await pair.startSync(unblocked)
  await canCommit(tandem)
  const there = rowsOf(destinationClient, 'ranged')
  await there.deleteOne({ _id: 7, k: 39 })
  await there.deleteMany({ _id: 47 })
  await there.updateOne({ _id: 35, k: 1 }, { $set: { corrupt: true } })
  await there.insertOne({ _id: 8, k: 39 })
  expect(await tandem.post('resync', resync('ranged'))).toMatchObject({ status: 200 })
  await commit(tandem)
  await pair.expectEqual()
  expect(await there.countDocuments({ _id: { $in: [7, 47, 35, 8] } })).toBe(7)
})

test('start with converge makes a sharded destination equal, and recreates collections that have another shard key', async () => {
  const { sourceClient, destinationClient } = pair
  await placeDatabases(sourceClient, destinationClient)
  const collections: Record<string, Record<'source' | 'destination', Record<string, 1 | 'hashed'> | null>> = {
    ranged: { source: { k: 1 }, destination: { k: 1 } },
    byId: { source: { _id: 1 }, destination: { _id: 1 } },
    hashed: { source: { _id: 'hashed' }, destination: { _id: 'hashed' } },
    plain: { source: null, destination: null },
    refined: { source: { k: 1, z: 1 }, destination: { k: 1 } },
    otherKey: { source: { k: 1 }, destination: { z: 1 } },
    unsharded: { source: { k: 1 }, destination: null },
    sharded: { source: null, destination: { k: 1 } },
  }
  for (const [name, keys] of Object.entries(collections)) {
    await seeded(sourceClient, name, keys.source)
    await seeded(destinationClient, name, keys.destination)
  }
  for (const name of Object.keys(collections)) await corrupt(name)
  for (const name of ['ranged', 'refined']) await corruptKeys(name)
  // tandem also defers the uniqueness of the index of a shard key.
  for (const client of [sourceClient, destinationClient]) {
    await client.db('admin').command({ shardCollection: 'app.unique', key: { z: 1 }, unique: true })
    await rowsOf(client, 'unique').insertMany(documents)
  }
  await rowsOf(destinationClient, 'unique').deleteOne({ _id: 5, z: 5 })
  await rowsOf(destinationClient, 'unique').insertOne({ _id: 'extra', z: -1 })
  // Options and indexes differ.
  await rowsOf(sourceClient, 'ranged').createIndex({ k: 1, z: 1 }, { unique: true, name: 'unique' })
  await rowsOf(destinationClient, 'byId').createIndex({ z: 1 }, { name: 'extra' })
  await sourceClient.db('app').command({ collMod: 'byId', validator: { k: { $exists: true } } })
  // The source does not have these namespaces.
  await seeded(destinationClient, 'extra', { k: 1 })
  await destinationClient.db('other').collection<Document>('extra').insertOne({ a: 1 })

  const tandem = await pair.startTandem()
  const body = { source: 'cluster0', destination: 'cluster1', existingData: 'converge' }
  const checked = (await tandem.post('check', body)).body['findings'] as Finding[]
  const found = new Map(
    checked
      .filter(({ name }) => name === 'ExistingData')
      .map((one) => [one.namespace, `${one.severity}: ${one.message}`]),
  )
  for (const name of ['ranged', 'byId', 'hashed', 'plain', 'refined']) {
    expect(found.get(`app.${name}`)).toMatch(/^info: .* made equal/)
  }
  for (const name of ['otherKey', 'unsharded', 'sharded']) {
    expect(found.get(`app.${name}`)).toMatch(/^warning: .* dropped and copied.* shard key/)
  }
  for (const name of ['app.extra', 'other.extra']) expect(found.get(name)).toMatch(/^warning: .* is dropped/)

  expect(await tandem.post('start', body)).toMatchObject({ status: 200 })
  await rowsOf(sourceClient, 'ranged').updateOne({ _id: 8, k: 8 }, { $set: { z: -1 } })
  await commit(tandem)
  await pair.expectEqual()
  expect(await rowsOf(destinationClient, 'ranged').countDocuments()).toBe(600)
  for (const documentsOnShard of await pair.spread('unsharded')) expect(documentsOnShard).toBeGreaterThan(0)
})
