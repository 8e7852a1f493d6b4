import { expect, test } from 'vitest'
import { canCommit, commit } from '../support/commits.ts'
import { compareClusters, type Selects } from '../support/compare.ts'
import { fingerprints } from '../support/fingerprints.ts'
import { rowsOf } from '../support/rows.ts'
import { seedData } from '../support/seed-data.ts'
import { ShardedPair, shardedCollection, start } from '../support/sharded-pair.ts'
import { createWorkload } from '../support/workload.ts'

/** Syncs from a cluster of two shards to another cluster of two shards. */

const pair = new ShardedPair({}, {})
const seed = process.env['TANDEM_SEED'] ?? 'general'
const selects: Selects = (database, name) => database === 'app' && ['one', 'plain'].includes(name)

async function balancerOf(client: typeof pair.sourceClient): Promise<string> {
  return (await client.db('admin').command({ balancerStatus: 1 }))['mode']
}

test('the destination gets collections with every kind of shard key, with the same keys and with documents on every shard', async () => {
  const { source, sourceClient: client } = pair
  await client.db('admin').command({ enableSharding: 'app', primaryShard: source.shards[0]?.name })
  const ranged = await shardedCollection(source, client, 'ranged', { k: 1 }, [100])
  const byId = await shardedCollection(source, client, 'byId', { _id: 1 }, [500])
  const hashed = await shardedCollection(source, client, 'hashed', { _id: 'hashed' })
  const dotted = await shardedCollection(source, client, 'dotted', { 'a.b': 1, c: 'hashed' })
  const plain = rowsOf(client, 'plain')
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

test('unsharded collections of every kind are synced through mongos with their DDL, as between replica sets', async () => {
  await seedData(pair.sourceUri, seed, 0.1)
  const workload = createWorkload({ uri: pair.sourceUri, seed, ddl: true, transactions: false })
  const tandem = await pair.startTandem()
  await workload.runSteps(10)
  expect(await start(tandem)).toMatchObject({ status: 200, body: { success: true } })
  await workload.runSteps(60)
  await canCommit(tandem)
  await workload.runSteps(40)
  await commit(tandem)
  await pair.expectEqual()
})

test('4.5: between sharded clusters, collections that are left out do not change on the destination', async () => {
  const { sourceClient, destinationClient } = pair
  const numbered = (from: number) => Array.from({ length: 40 }, (_, at) => ({ _id: from + at, k: at }))
  for (const name of ['one', 'left']) {
    const collection = await shardedCollection(pair.source, sourceClient, name, { k: 1 }, [20])
    await collection.insertMany(numbered(0))
  }
  await rowsOf(sourceClient, 'plain').insertMany(numbered(0))
  // The destination already has the database, with a collection whose name the filter leaves out.
  await shardedCollection(pair.destination, destinationClient, 'left', { other: 1 })
  await rowsOf(destinationClient, 'left').insertOne({ _id: 1, other: 2 })
  const before = await fingerprints(pair.destination.uri, () => true)

  const includeNamespaces = [{ databaseRegex: { pattern: '^AP', options: 'i' } }]
  const excludeNamespaces = [{ database: 'app', collectionsRegex: { pattern: '^l' } }, { database: 'other' }]
  const tandem = await pair.startSync({ includeNamespaces, excludeNamespaces })
  for (const name of ['one', 'left', 'plain']) await rowsOf(sourceClient, name).insertMany(numbered(100))
  await rowsOf(sourceClient, 'one').deleteMany({ k: { $lt: 5 } })
  await rowsOf(sourceClient, 'left').createIndex({ k: 1, u: 1 })
  await sourceClient.db('other').collection('things').insertOne({})
  await commit(tandem)

  const { differences, documents } = await compareClusters(pair.sourceUri, pair.destination.uri, {
    selects,
    shardKeys: { 'app.one': '{"k":1}', 'app.left': '{"other":1}' },
  })
  expect(differences).toEqual([])
  expect(documents).toBe(150)
  expect(await fingerprints(pair.destination.uri, (...of) => !selects(...of))).toEqual(before)
})

test('after the commit, unique and hashed compound shard keys, and whether chunks may move, are as on the source', async () => {
  const { source, sourceClient: client, destinationClient } = pair
  const admin = client.db('admin')
  await admin.command({ enableSharding: 'app', primaryShard: source.shards[0]?.name })
  await admin.command({ shardCollection: 'app.unique', key: { k: 1 }, unique: true })
  await admin.command({ shardCollection: 'app.byId', key: { _id: 1 }, unique: true })
  await shardedCollection(source, client, 'hashedFirst', { h: 'hashed', k: 1 })
  await shardedCollection(source, client, 'hashedLast', { k: 1, h: 'hashed', u: 1 }, [20])
  const names = ['unique', 'byId', 'hashedFirst', 'hashedLast']
  const documents = Array.from({ length: 200 }, (_, k) => ({ _id: k, k, h: k % 7, u: k }))
  for (const name of names) await rowsOf(client, name).insertMany(documents)
  await admin.command({ setAllowMigrations: 'app.hashedFirst', allowMigrations: false })
  const tandem = await pair.startSync()
  await canCommit(tandem)

  // While tandem applies changes, one collection becomes sharded by a unique key, and the unique key of another is refined.
  await rowsOf(client, 'later').insertMany(documents)
  await rowsOf(client, 'later').createIndex({ u: 1 }, { unique: true })
  await admin.command({ shardCollection: 'app.later', key: { u: 1 }, unique: true })
  await rowsOf(client, 'unique').createIndex({ k: 1, u: 1 }, { unique: true })
  // The server refuses to refine a key while there is a unique index that does not begin with the new key.
  await rowsOf(client, 'unique').dropIndex('k_1')
  await admin.command({ refineCollectionShardKey: 'app.unique', key: { k: 1, u: 1 } })
  for (const name of [...names, 'later']) {
    await rowsOf(client, name).insertOne({ _id: 1_000, k: 1_000, h: 3, u: 1_000 })
    await rowsOf(client, name).deleteOne({ _id: 3, k: 3, h: 3, u: 3 })
  }
  await commit(tandem)
  await pair.expectEqual()
  const stored = await destinationClient
    .db('config')
    .collection<{ _id: string; unique: boolean; permitMigrations?: boolean }>('collections')
    .find({ _id: /^app\./ })
    .toArray()
  expect(
    stored
      .filter(({ unique }) => unique)
      .map(({ _id }) => _id)
      .sort(),
  ).toEqual(['app.byId', 'app.later', 'app.unique'])
  expect(stored.filter(({ permitMigrations }) => permitMigrations === false).map(({ _id }) => _id)).toEqual([
    'app.hashedFirst',
  ])
  const twice = rowsOf(destinationClient, 'unique').insertOne({ _id: 'twice', k: 5, u: 5 })
  await expect(twice).rejects.toMatchObject({ code: 11_000 })
})

/** Does the same as `sh.disableBalancing` and `sh.enableBalancing` of the shell. */
async function setNoBalance(client: typeof pair.sourceClient, noBalance: boolean): Promise<void> {
  await client
    .db('config')
    .collection<{ _id: string }>('collections')
    .updateOne({ _id: 'app.things' }, { $set: { noBalance } }, { writeConcern: { w: 'majority' } })
}

async function noBalanceOf(client: typeof pair.sourceClient): Promise<boolean> {
  const found = await client.db('config').collection<{ _id: string }>('collections').findOne({ _id: 'app.things' })
  return (found as { noBalance?: boolean } | null)?.noBalance ?? false
}

test('a sync between sharded clusters can be reversed; each balancer returns to its former mode, and noBalance is copied', async () => {
  const { source, sourceClient, destinationClient } = pair
  for (const client of [sourceClient, destinationClient]) await client.db('admin').command({ balancerStart: 1 })
  const things = await shardedCollection(source, sourceClient, 'things', { k: 1 }, [20])
  await things.createIndex({ k: 1, u: 1 }, { unique: true })
  await things.insertMany(Array.from({ length: 200 }, (_, i) => ({ _id: i, k: i % 40, u: i })))
  await setNoBalance(sourceClient, true)
  const tandem = await pair.startSync({ reversible: true, enableUserWriteBlocking: 'sourceAndDestination' })
  await canCommit(tandem)
  expect(await balancerOf(destinationClient)).toBe('off')
  await commit(tandem)
  await pair.expectEqual()
  expect(await balancerOf(destinationClient)).toBe('full')
  expect(await noBalanceOf(destinationClient)).toBe(true)

  await setNoBalance(destinationClient, false)
  const there = rowsOf(destinationClient, 'things')
  await there.insertOne({ _id: 'written after', k: 33, u: 1 })
  await there.deleteMany({ _id: { $in: [1, 2, 3] } })
  await destinationClient.db('app').collection('new').insertOne({ x: 1 })
  expect(await tandem.post('reverse')).toEqual({ status: 200, body: { success: true } })
  await canCommit(tandem)
  await there.insertOne({ _id: 'written later', k: 3, u: 2 })
  await commit(tandem)
  await pair.expectEqual()
  expect(await balancerOf(sourceClient)).toBe('full')
  expect(await noBalanceOf(sourceClient)).toBe(false)
})
