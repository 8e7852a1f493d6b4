import { type Binary, type Document, MaxKey, MinKey, MongoClient, MongoServerError } from 'mongodb'
import { afterAll, beforeAll, beforeEach, expect, it, onTestFinished, vi } from 'vitest'
import type { CheckedClusters } from '../../src/checks/check.ts'
import { checkZones } from '../../src/checks/zones.ts'
import { DestinationSharding } from '../../src/definitions/destination-sharding.ts'
import { copyZones } from '../../src/definitions/zones.ts'
import { type CatalogEntry, newEntry } from '../../src/domain/catalog.ts'
import { requestedShardKey } from '../../src/domain/shard-key.ts'
import { shardNamesOf } from '../../src/domain/shard-names.ts'
import type { Cluster } from '../../src/mongo/cluster.ts'
import { readFacts } from '../../src/mongo/identity.ts'
import { Selection } from '../../src/mongo/selection.ts'
import { fromUuid } from '../../src/mongo/uuid.ts'
import { testCluster, testContext } from '../mongo/clusters.ts'
import { emptyCluster } from '../support/empty-cluster.ts'
import { type ShardedCluster, startShardedCluster } from '../support/sharded-cluster.ts'

/** The source has one shard more than the destination. The names of all other shards are the same on both clusters. */

let from: ShardedCluster
let to: ShardedCluster
let source: Cluster
let destination: Cluster
let sourceClient: MongoClient
let destinationClient: MongoClient

beforeAll(async () => {
  ;[from, to] = await Promise.all([
    startShardedCluster({ name: 'zoned', shards: 3 }),
    startShardedCluster({ name: 'zoned', shards: 2 }),
  ])
  source = testCluster(from.uri, 'zones')
  destination = testCluster(to.uri, 'zones')
  await Promise.all([readFacts(source), readFacts(destination)])
  sourceClient = new MongoClient(from.uri)
  destinationClient = new MongoClient(to.uri)
})
afterAll(async () => {
  await Promise.all([source?.close(), destination?.close(), sourceClient?.close(), destinationClient?.close()])
  await Promise.all([from?.stop(), to?.stop()])
})
beforeEach(async () => {
  await Promise.all([emptyCluster(sourceClient), emptyCluster(destinationClient)])
  for (const client of [sourceClient, destinationClient]) {
    const admin = client.db('admin')
    const shards = (await admin.command({ listShards: 1 }))['shards'] as { _id: string; tags?: string[] }[]
    for (const { _id, tags = [] } of shards)
      for (const zone of tags) await admin.command({ removeShardFromZone: _id, zone })
    await admin.command({ enableSharding: 'app', primaryShard: 'zoned-shard0' })
  }
})

const zoned = (name: string, min: Document, max: Document, zone: string | null, client = sourceClient) =>
  client.db('admin').command({ updateZoneKeyRange: `app.${name}`, min, max, zone })
const inZone = (shard: number, zone: string, client = sourceClient) =>
  client.db('admin').command({ addShardToZone: `zoned-shard${shard}`, zone })

async function shardedOnSource(name: string, key: Record<string, 1 | 'hashed'>, count = 300): Promise<void> {
  await sourceClient.db('admin').command({ shardCollection: `app.${name}`, key })
  const documents = Array.from({ length: count }, (_, k) => ({ k, r: `r${k % 3}` }))
  await sourceClient.db('app').collection(name).insertMany(documents)
}

async function entryOf(name: string, key: Record<string, 1 | 'hashed'>): Promise<CatalogEntry> {
  const uuidOf = async (client: MongoClient): Promise<string> => {
    const [listed] = await client.db('app').listCollections({ name }).toArray()
    return fromUuid((listed as unknown as { info: { uuid: Binary } }).info.uuid)
  }
  const entry = newEntry('app', { uuid: await uuidOf(sourceClient), name }, { options: [], indexes: [] }, 'copied')
  const shardKey = requestedShardKey(Object.entries(key).map(([field, direction]) => ({ [field]: direction })))
  return Object.assign(entry, { destinationUUID: await uuidOf(destinationClient), shardKey })
}

async function distribute(name: string, key: Record<string, 1 | 'hashed'>): Promise<CatalogEntry> {
  await destinationClient.db('app').createCollection(name)
  const entry = await entryOf(name, key)
  await new DestinationSharding(destination, source, testContext()).distribute(entry)
  return entry
}

async function rangesOf(client: MongoClient, name: string): Promise<Document[]> {
  const tags = client.db('config').collection('tags')
  return await tags
    .find({ ns: `app.${name}` }, { projection: { _id: 0, ns: 0 } })
    .sort({ min: 1 })
    .toArray()
}

async function chunksOf(name: string): Promise<Document[]> {
  const config = destinationClient.db('config')
  const found = await config.collection<{ _id: string; uuid: Binary }>('collections').findOne({ _id: `app.${name}` })
  return await config.collection('chunks').find({ uuid: found?.uuid }).sort({ min: 1 }).toArray()
}

it('zones are copied with a new collection, and its chunks are placed on the shards of their zones', async () => {
  await shardedOnSource('things', { k: 1 })
  await inZone(0, 'old')
  await inZone(1, 'new')
  await zoned('things', { k: new MinKey() }, { k: 30 }, 'new')
  await zoned('things', { k: 100 }, { k: 200 }, 'old')
  await from.split('app.things', { k: 150 })
  await distribute('things', { k: 1 })
  expect(await rangesOf(destinationClient, 'things')).toEqual(await rangesOf(sourceClient, 'things'))
  const chunks = await chunksOf('things')
  const starts = chunks.map(({ min }) => min.k)
  expect(starts).toEqual([new MinKey(), 30, 100, 150, 200])
  const shards = chunks.map(({ shard }) => shard)
  expect([shards[0], shards[2], shards[3]]).toEqual(['zoned-shard1', 'zoned-shard0', 'zoned-shard0'])
})

it('zones of a hashed shard key are copied', async () => {
  await shardedOnSource('hashed', { r: 1, k: 'hashed' })
  await shardedOnSource('byHash', { k: 'hashed' })
  await inZone(1, 'one')
  await zoned('hashed', { r: 'r1', k: new MinKey() }, { r: 'r2', k: new MinKey() }, 'one')
  await zoned('byHash', { k: new MinKey() }, { k: new MaxKey() }, 'one')
  await distribute('hashed', { r: 1, k: 'hashed' })
  await distribute('byHash', { k: 'hashed' })
  const inside = (await chunksOf('hashed')).filter(({ min }) => min.r === 'r1')
  expect(inside).toMatchObject([{ shard: 'zoned-shard1', max: { r: 'r2' } }])
  for (const { shard } of await chunksOf('byHash')) expect(shard).toBe('zoned-shard1')
})

it('zones change as on the source, and a collection without zones on the source keeps its zones on the destination', async () => {
  await shardedOnSource('things', { k: 1 })
  await shardedOnSource('own', { k: 1 })
  await inZone(0, 'old')
  await zoned('things', { k: 0 }, { k: 10 }, 'old')
  const entries = [await distribute('things', { k: 1 }), await distribute('own', { k: 1 })]
  await inZone(0, 'mine', destinationClient)
  await zoned('own', { k: 0 }, { k: 10 }, 'mine', destinationClient)
  await zoned('things', { k: 0 }, { k: 10 }, null)
  await zoned('things', { k: 5 }, { k: 20 }, 'old')
  const refused = vi.fn()
  await copyZones(source, destination, entries, refused)
  await copyZones(source, destination, entries, refused)
  expect(refused).not.toHaveBeenCalled()
  expect(await rangesOf(destinationClient, 'things')).toEqual([{ min: { k: 5 }, max: { k: 20 }, tag: 'old' }])
  expect(await rangesOf(destinationClient, 'own')).toEqual([{ min: { k: 0 }, max: { k: 10 }, tag: 'mine' }])
})

it('zones that the destination refuses are reported, and the others are copied', async () => {
  await shardedOnSource('things', { k: 1 })
  const entry = await distribute('things', { k: 1 })
  await inZone(0, 'old')
  await zoned('things', { k: 0 }, { k: 10 }, 'old')
  await zoned('things', { k: 10 }, { k: 20 }, 'old')
  const write = destination.write.bind(destination)
  let ranges = 0
  const refusing = vi.spyOn(destination, 'write').mockImplementation(async (database, command, options) => {
    if ('updateZoneKeyRange' in command && ranges++ === 0) throw new MongoServerError({ message: 'refused', code: 13 })
    return await write(database, command, options)
  })
  onTestFinished(() => refusing.mockRestore())
  const refused = vi.fn()
  await copyZones(source, destination, [entry], refused)
  expect(refused.mock.calls).toEqual([
    ['a range of app.things in the zone old', expect.objectContaining({ failure: 'ShardingFailed' })],
  ])
  expect(await rangesOf(destinationClient, 'things')).toEqual([{ min: { k: 10 }, max: { k: 20 }, tag: 'old' }])
})

it('a zone is not copied if one of its shards does not exist on the destination, and `check` reports that zone', async () => {
  await shardedOnSource('things', { k: 1 })
  await inZone(2, 'far')
  await zoned('things', { k: 0 }, { k: 10 }, 'far')
  await distribute('things', { k: 1 })
  expect(await rangesOf(destinationClient, 'things')).toEqual([])
  const checked = (includeNamespaces: { database: string }[] | null) => {
    const selection = new Selection(source, { includeNamespaces, excludeNamespaces: null })
    return checkZones({ source, destination, selection, configuration: { namespaceRemap: null } } as CheckedClusters)
  }
  expect(await checked(null)).toMatchObject([
    {
      severity: 'warning',
      name: 'ZonesNotCopied',
      namespace: 'app.things',
      message: expect.stringContaining('zoned-shard2'),
    },
  ])
  expect(await checked([{ database: 'other' }])).toEqual([])
  await zoned('things', { k: 0 }, { k: 10 }, null)
  expect(await checked(null)).toEqual([])
})

it('a zone is copied to the shard that --shardNames pairs with the shard of the source', async () => {
  await shardedOnSource('things', { k: 1 })
  await inZone(2, 'far')
  await zoned('things', { k: 0 }, { k: 10 }, 'far')
  source.shardNames = shardNamesOf([['zoned-shard2', 'zoned-shard1']]).cluster0
  onTestFinished(() => {
    source.shardNames = new Map()
  })
  await distribute('things', { k: 1 })
  expect(await rangesOf(destinationClient, 'things')).toEqual(await rangesOf(sourceClient, 'things'))
  expect((await chunksOf('things')).filter(({ min }) => min.k === 0)).toMatchObject([{ shard: 'zoned-shard1' }])
  const selection = new Selection(source, { includeNamespaces: null, excludeNamespaces: null })
  const checked = { source, destination, selection, configuration: { namespaceRemap: null } } as CheckedClusters
  expect(await checkZones(checked)).toEqual([])
})

it('zones that exist on the destination before a collection is sharded determine where its chunks are', async () => {
  await shardedOnSource('things', { k: 1 })
  await inZone(1, 'mine', destinationClient)
  await zoned('things', { k: 0 }, { k: 10 }, 'mine', destinationClient)
  await distribute('things', { k: 1 })
  expect(await rangesOf(destinationClient, 'things')).toEqual([{ min: { k: 0 }, max: { k: 10 }, tag: 'mine' }])
  expect((await chunksOf('things')).filter(({ min }) => min.k === 0)).toMatchObject([
    { shard: 'zoned-shard1', max: { k: 10 } },
  ])
})
