import { type Binary, type Document, MaxKey, MinKey, MongoClient } from 'mongodb'
import { afterAll, beforeAll, beforeEach, expect, it } from 'vitest'
import type { CheckedClusters } from '../../src/checks/check.ts'
import { checkShardingEntries } from '../../src/checks/sharding.ts'
import { DestinationSharding } from '../../src/definitions/destination-sharding.ts'
import { type CatalogEntry, newEntry } from '../../src/domain/catalog.ts'
import { readFields } from '../../src/domain/raw-bson.ts'
import { requestedShardKey } from '../../src/domain/shard-key.ts'
import type { ShardingEntry } from '../../src/domain/start-request.ts'
import type { Cluster } from '../../src/mongo/cluster.ts'
import { readFacts } from '../../src/mongo/identity.ts'
import { Selection } from '../../src/mongo/selection.ts'
import { fromUuid } from '../../src/mongo/uuid.ts'
import { testCluster, testContext } from '../mongo/clusters.ts'
import { rawDocument } from '../support/bson-values.ts'
import { emptyCluster } from '../support/empty-cluster.ts'
import { borrowReplicaSet } from '../support/kept-sets.ts'
import type { ReplicaSet } from '../support/replica-set.ts'
import { type ShardedCluster, startShardedCluster } from '../support/sharded-cluster.ts'

/**
 * tandem shards a collection of the destination with the options of a sharded source, or with those of the start request. In
 * these tests one sharded cluster is both the source and the destination.
 */

type Key = Record<string, 1 | 'hashed'>

let sharded: ShardedCluster
let set: ReplicaSet
let destination: Cluster
let replicaSet: Cluster
let client: MongoClient
let setClient: MongoClient
const notUnique: string[] = []

beforeAll(async () => {
  ;[sharded, set] = await Promise.all([startShardedCluster(), borrowReplicaSet()])
  destination = testCluster(sharded.uri, 'sharding-options')
  replicaSet = testCluster(set.uri, 'sharding-options')
  await Promise.all([readFacts(destination), readFacts(replicaSet)])
  client = new MongoClient(sharded.uri)
  setClient = new MongoClient(set.uri)
})
afterAll(async () => {
  await Promise.all([destination?.close(), replicaSet?.close(), client?.close(), setClient?.close()])
  await Promise.all([sharded?.stop(), set?.stop()])
})
beforeEach(async () => {
  notUnique.length = 0
  await Promise.all([emptyCluster(client), emptyCluster(setClient)])
  await client.db('admin').command({ enableSharding: 'app', primaryShard: sharded.shards[0]?.name })
})

const admin = (command: Document) => client.db('admin').command(command)
const keyOf = (key: Key) => Object.entries(key).map(([field, direction]) => ({ [field]: direction }))

/** Creates the collection on the destination with an index on the key that is not unique yet, and returns its catalog entry. */
async function created(source: MongoClient, key: Key, unique: boolean): Promise<CatalogEntry> {
  const things = await client.db('app').createCollection('things')
  await things.createIndex(key)
  const uuidOf = async (of: MongoClient, name: string): Promise<string> => {
    const [listed] = await of.db('app').listCollections({ name }).toArray()
    return fromUuid((listed as unknown as { info: { uuid: Binary } }).info.uuid)
  }
  const name = source === client ? 'wanted' : 'things'
  const index = rawDocument([
    ['v', 2],
    ['key', key],
    ['name', 'by key'],
    ['unique', unique],
  ])
  const definition = { options: [], indexes: [readFields(index)] }
  const entry = newEntry('app', { uuid: await uuidOf(source, name), name: 'things' }, definition, 'copied')
  const shardKey = requestedShardKey(keyOf(key))
  return Object.assign(entry, { sourceName: name, destinationUUID: await uuidOf(client, 'things'), shardKey })
}

const entryOf = (key: Key, options: Partial<ShardingEntry['shardCollection']>): ShardingEntry => ({
  database: 'app',
  collection: 'things',
  shardCollection: { key: keyOf(key), ...options },
})

function sharding(source: Cluster, request: { shardingEntries?: ShardingEntry[]; buildsIndexes?: boolean } = {}) {
  const journal = (message: string, fields: object): void => {
    if (message === 'shard key not unique') notUnique.push((fields as { namespace: string }).namespace)
  }
  return new DestinationSharding(destination, source, { ...testContext(), journal }, request)
}

const stored = () =>
  client.db('config').collection<Document & { _id: string }>('collections').findOne({ _id: 'app.things' })
async function chunks(): Promise<Document[]> {
  return await client
    .db('config')
    .collection('chunks')
    .find({ uuid: (await stored())?.['uuid'] })
    .sort({ min: 1 })
    .toArray()
}

it('a shard key that is unique on the source is unique on the destination before its index is, and stays unique when it is refined', async () => {
  const wanted = client.db('app').collection('wanted')
  await admin({ shardCollection: 'app.wanted', key: { k: 1 }, unique: true })
  await wanted.createIndex({ k: 1, u: 1 }, { unique: true })
  const entry = await created(client, { k: 1 }, true)
  const ours = sharding(destination)
  await ours.distribute(entry)
  expect(await stored()).toMatchObject({ key: { k: 1 }, unique: true })
  await ours.distribute(entry)
  const things = client.db('app').collection<Document & { _id: number }>('things')
  // The index still accepts duplicates, which may exist for a moment while documents are copied and changed.
  await things.insertMany([
    { _id: 1, k: 1 },
    { _id: 2, k: 1 },
  ])
  await things.createIndex({ k: 1, u: 1 })
  // The server refuses to refine a key while there is a unique index that does not begin with the new key.
  await wanted.dropIndex('k_1')
  await admin({ refineCollectionShardKey: 'app.wanted', key: { k: 1, u: 1 } })
  expect(await ours.follow(entry, requestedShardKey([{ k: 1 }, { u: 1 }]))).toBe(true)
  expect(await stored()).toMatchObject({ key: { k: 1, u: 1 }, unique: true })
  expect(notUnique).toEqual([])
})

it('a collection with documents that becomes sharded by a unique key on the source gets a unique key, even while it has duplicates', async () => {
  await admin({ shardCollection: 'app.wanted', key: { k: 1 }, unique: true })
  const entry = await created(client, { k: 1 }, true)
  await client
    .db('app')
    .collection('things')
    .insertMany([{ k: 1 }, { k: 1 }])
  entry.shardKey = null
  expect(await sharding(destination).follow(entry, requestedShardKey([{ k: 1 }]))).toBe(true)
  expect(await stored()).toMatchObject({ key: { k: 1 }, unique: true })
})

it('a shard key is not unique if it is not unique on the source, or if no index of the destination will be unique', async () => {
  await admin({ shardCollection: 'app.wanted', key: { k: 1 } })
  await sharding(destination).distribute(await created(client, { k: 1 }, true))
  expect(await stored()).toMatchObject({ unique: false })
  expect(notUnique).toEqual([])
  for (const [indexed, buildsIndexes] of [
    [false, true],
    [true, false],
  ] as const) {
    await emptyCluster(client)
    await admin({ shardCollection: 'app.wanted', key: { k: 1 }, unique: true })
    await sharding(destination, { buildsIndexes }).distribute(await created(client, { k: 1 }, indexed))
    expect(await stored()).toMatchObject({ unique: false })
  }
  expect(notUnique).toEqual(['app.things', 'app.things'])
})

it('a collection of a replica set is sharded with the options of the start request', async () => {
  await setClient.db('app').createCollection('things')
  const unique = entryOf({ k: 1 }, { unique: true })
  await sharding(replicaSet, { shardingEntries: [unique] }).distribute(await created(setClient, { k: 1 }, true))
  expect(await stored()).toMatchObject({ key: { k: 1 }, unique: true })

  await client.db('app').dropCollection('things')
  const hashed = entryOf({ k: 'hashed', u: 1 }, { numInitialChunks: 10 })
  await sharding(replicaSet, { shardingEntries: [hashed] }).distribute(
    await created(setClient, { k: 'hashed', u: 1 }, false),
  )
  expect(await stored()).toMatchObject({ key: { k: 'hashed', u: 1 }, unique: false })
  expect(await chunks()).toHaveLength(10)
})

it.each(['6.0.27', '7.2.0'])(
  'numInitialChunks has an effect on %s: from 7.2 on, tandem splits the chunks itself',
  async (version) => {
    await setClient.db('app').createCollection('things')
    const before = destination.version
    destination.version = version
    try {
      await sharding(replicaSet, { shardingEntries: [entryOf({ k: 'hashed' }, { numInitialChunks: 12 })] }).distribute(
        await created(setClient, { k: 'hashed' }, false),
      )
    } finally {
      destination.version = before
    }
    const found = await chunks()
    expect(found).toHaveLength(12)
    expect(new Set(found.map(({ shard }) => shard)).size).toBe(2)
  },
)

it('presplitHashedZones creates the chunks of the zones, and is left out after a drop has removed the zones', async () => {
  await setClient.db('app').createCollection('things')
  for (const [at, { name }] of sharded.shards.entries()) await admin({ addShardToZone: name, zone: `zone${at}` })
  const zone = (at: number, from: string, to: string) =>
    admin({
      updateZoneKeyRange: 'app.things',
      min: { r: from, k: new MinKey() },
      max: { r: to, k: new MinKey() },
      zone: `zone${at}`,
    })
  await zone(0, 'a', 'm')
  await zone(1, 'm', 'z')
  const key: Key = { r: 1, k: 'hashed' }
  const ours = sharding(replicaSet, {
    shardingEntries: [entryOf(key, { presplitHashedZones: true, numInitialChunks: 8 })],
  })
  await ours.distribute(await created(setClient, key, false))
  const within = (await chunks()).filter(({ min, max }) => min.r === 'a' && max.r === 'a')
  expect(within.length).toBeGreaterThanOrEqual(2)
  expect(new Set(within.map(({ shard }) => shard))).toEqual(new Set([sharded.shards[0]?.name]))

  await client.db('app').dropCollection('things')
  await ours.distribute(await created(setClient, key, false))
  expect(await stored()).toMatchObject({ key })
  expect((await chunks())[0]).toMatchObject({ min: { r: new MinKey() } })
  expect((await chunks()).at(-1)).toMatchObject({ max: { r: new MaxKey() } })
  for (const [at, { name }] of sharded.shards.entries()) await admin({ removeShardFromZone: name, zone: `zone${at}` })
})

it.each<[what: string, key: Key, options: Partial<ShardingEntry['shardCollection']>, never: boolean, expected: RegExp]>(
  [
    ['a hashed unique key', { k: 'hashed' }, { unique: true }, false, /\[0\]\.shardCollection\.unique .* hashed/],
    ['unique without indexes', { k: 1 }, { unique: true }, true, /\.unique .* buildIndexes 'never'/],
    ['unique without a unique index', { k: 1 }, { unique: true }, false, /app\.things has no unique index on exactly/],
    [
      'chunks of a ranged key',
      { k: 1 },
      { numInitialChunks: 2 },
      false,
      /\.numInitialChunks is for keys with a hashed/,
    ],
    ['chunks of a range', { r: 1, k: 'hashed' }, { numInitialChunks: 2 }, false, /\.numInitialChunks needs presplit/],
    [
      'too many chunks',
      { k: 'hashed' },
      { numInitialChunks: 16_385 },
      false,
      /\.numInitialChunks is larger than 16384/,
    ],
    [
      'zones of a ranged key',
      { k: 1 },
      { presplitHashedZones: true },
      false,
      /\.presplitHashedZones is true, but no field/,
    ],
    ['missing zones', { k: 'hashed' }, { presplitHashedZones: true }, false, /\.presplitHashedZones .* no zone ranges/],
  ],
)('%s is refused by start and check with the name of the field', async (_what, key, options, never, expected) => {
  const things = setClient.db('app').collection('things')
  await things.createIndex({ k: 1, u: 1 }, { unique: true })
  await things.createIndexes([{ key: { k: 'hashed' } }, { key: { r: 1, k: 'hashed' } }])
  const check = async (): Promise<string> => {
    const configuration = {
      buildIndexes: never ? 'never' : 'beforeDataCopy',
      sharding: { createSupportingIndexes: true, shardingEntries: [entryOf(key, options)] },
    }
    const selection = new Selection(replicaSet, { includeNamespaces: null, excludeNamespaces: null })
    const checked = { configuration, source: replicaSet, destination, selection } as unknown as CheckedClusters
    const found = await checkShardingEntries(checked)
    return found.map(({ message }) => message).join()
  }
  expect(await check().catch((error: Error) => error.message)).toMatch(expected)
})
