import type { MongoClient } from 'mongodb'
import { expect, test } from 'vitest'
import { canCommit, commit } from '../support/commits.ts'
import { compareBoth } from '../support/compare-both.ts'
import { rowsOf } from '../support/rows.ts'
import { ShardedPair, shardedCollection } from '../support/sharded-pair.ts'

/** Databases that get other names on a sharded destination. The shards of both clusters have the same names. */

const pair = new ShardedPair({ name: 'renamed' }, { name: 'renamed' })
const renamed = { app: 'store', store: 'depot' }
const body = {
  namespaceRemap: Object.entries(renamed).map(([from, to]) => ({ from: { database: from }, to: { database: to } })),
  excludeNamespaces: [{ database: 'depot' }],
}
/** Excludes `depot`, because no database of the source has this name on the destination. */
const selects = (database: string): boolean => database !== 'depot'
const documents = (from: number, to: number) =>
  Array.from({ length: to - from }, (_, at) => ({ _id: from + at, k: from + at }))
const configOf = (client: MongoClient, name: string) =>
  client.db('config').collection<{ _id: string; noBalance?: boolean; permitMigrations?: boolean }>(name)

test('the renamed collections have the shard keys, chunks, zones and balancer settings of the source', async () => {
  const { source, sourceClient, destinationClient } = pair
  const admin = sourceClient.db('admin')
  await admin.command({ enableSharding: 'app', primaryShard: source.shards[0]?.name })
  const ranged = await shardedCollection(source, sourceClient, 'ranged', { k: 1 }, [100])
  const hashed = await shardedCollection(source, sourceClient, 'hashed', { _id: 'hashed' })
  const refined = await shardedCollection(source, sourceClient, 'refined', { k: 1 }, [50])
  const plain = rowsOf(sourceClient, 'plain')
  const all = [ranged, hashed, refined, plain]
  for (const collection of all) await collection.insertMany(documents(0, 400))
  await sourceClient.db('store').collection<{ _id: number }>('things').insertMany(documents(0, 9))
  const other = source.shards[1]?.name
  await admin.command({ addShardToZone: other, zone: 'upper' })
  const zone = async (min: number, max: number, name: string | null) =>
    await admin.command({ updateZoneKeyRange: 'app.ranged', min: { k: min }, max: { k: max }, zone: name })
  await zone(200, 400, 'upper')
  await configOf(sourceClient, 'collections').updateOne({ _id: 'app.hashed' }, { $set: { noBalance: true } })
  await admin.command({ setAllowMigrations: 'app.refined', allowMigrations: false })

  const tandem = await pair.startSync(body)
  await canCommit(tandem)
  const ranges = async () =>
    await configOf(destinationClient, 'tags')
      .find({}, { projection: { _id: 0 } })
      .toArray()
  expect(await ranges()).toEqual([{ ns: 'store.ranged', min: { k: 200 }, max: { k: 400 }, tag: 'upper' }])
  for (const collection of all) {
    await collection.insertMany(documents(1_000, 1_050))
    await collection.deleteOne({ _id: 3, k: 3 })
    await collection.updateOne({ _id: 10, k: 10 }, { $set: { x: 1 } })
  }
  await refined.createIndex({ k: 1, x: 1 })
  await admin.command({ setAllowMigrations: 'app.refined', allowMigrations: true })
  await admin.command({ refineCollectionShardKey: 'app.refined', key: { k: 1, x: 1 } })
  await admin.command({ setAllowMigrations: 'app.refined', allowMigrations: false })
  await sourceClient.db('app').renameCollection('hashed', 'hashed again')
  await sourceClient.db('app').createCollection('view', { viewOn: 'hashed again', pipeline: [] })
  await admin.command({ shardCollection: 'store.later', key: { k: 1 } })
  await sourceClient.db('store').collection<{ _id: number }>('later').insertMany(documents(0, 20))
  await zone(200, 400, null)
  await zone(100, 300, 'upper')
  await commit(tandem)

  expect((await compareBoth(pair.sourceUri, pair.destinationUri, { renamed })).differences).toEqual([])
  expect(await ranges()).toEqual([{ ns: 'store.ranged', min: { k: 100 }, max: { k: 300 }, tag: 'upper' }])
  const settings = await configOf(destinationClient, 'collections')
    .find({ _id: /^(store|depot)\./ })
    .toArray()
  expect(
    Object.fromEntries(
      settings.map(({ _id, noBalance = false, permitMigrations = true }) => [_id, [noBalance, permitMigrations]]),
    ),
  ).toEqual({
    'store.ranged': [false, true],
    'store.hashed again': [true, true],
    'store.refined': [false, false],
    'depot.later': [false, true],
  })
  await zone(100, 300, null)
  await admin.command({ removeShardFromZone: other, zone: 'upper' })
})

test('an existing destination converges under the other names', async () => {
  const { source, destination, sourceClient, destinationClient } = pair
  const ranged = await shardedCollection(source, sourceClient, 'ranged', { k: 1 }, [100])
  await ranged.insertMany(documents(0, 200))
  await sourceClient.db('store').collection<{ _id: number }>('things').insertMany(documents(0, 9))
  const [first, second] = destination.shards.map(({ name }) => name)
  const admin = destinationClient.db('admin')
  await admin.command({ enableSharding: 'store', primaryShard: first })
  await admin.command({ shardCollection: 'store.ranged', key: { k: 1 } })
  await admin.command({ split: 'store.ranged', middle: { k: 50 } })
  await admin.command({ moveChunk: 'store.ranged', find: { k: 60 }, to: second })
  await destinationClient.db('store').collection<{ _id: number }>('ranged').insertMany(documents(100, 250))
  await destinationClient.db('depot').collection<{ _id: number }>('extra').insertMany(documents(0, 3))
  // Nothing may change this database, because no database of the source has its name on the destination.
  await destinationClient.db('app').collection<{ _id: number }>('kept').insertMany(documents(0, 3))

  const tandem = await pair.startSync({ ...body, existingData: 'converge' })
  await canCommit(tandem)
  await ranged.deleteOne({ _id: 1, k: 1 })
  await commit(tandem)
  expect((await compareBoth(pair.sourceUri, pair.destinationUri, { renamed, selects })).differences).toEqual([])
  await pair.expectOwned()
  expect(await destinationClient.db('app').collection('kept').countDocuments()).toBe(3)
})
