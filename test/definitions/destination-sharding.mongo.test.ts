import { type Binary, type Document, MongoClient, UUID } from 'mongodb'
import { afterAll, beforeAll, beforeEach, describe, expect, it, onTestFinished, vi } from 'vitest'
import { DestinationDefinitions } from '../../src/definitions/destination-definitions.ts'
import { DestinationSharding } from '../../src/definitions/destination-sharding.ts'
import { type CatalogEntry, newEntry } from '../../src/domain/catalog.ts'
import { NamespaceRemap } from '../../src/domain/namespace-remap.ts'
import { requestedShardKey, type ShardKey } from '../../src/domain/shard-key.ts'
import { restoreBalancer, stopBalancer } from '../../src/mongo/balancer.ts'
import type { Cluster } from '../../src/mongo/cluster.ts'
import { TransientReplyError } from '../../src/mongo/errors.ts'
import { readFacts } from '../../src/mongo/identity.ts'
import { Metadata } from '../../src/mongo/metadata.ts'
import { fromUuid } from '../../src/mongo/uuid.ts'
import { testCluster, testContext } from '../mongo/clusters.ts'
import { emptyCluster } from '../support/empty-cluster.ts'
import { type ShardedCluster, startShardedCluster } from '../support/sharded-cluster.ts'

/** Tests commands that change the distribution of a sharded destination, and commands that arrive late. */
describe('the distribution of a sharded destination', () => {
  let sharded: ShardedCluster
  let cluster: Cluster
  let client: MongoClient

  beforeAll(async () => {
    sharded = await startShardedCluster()
    cluster = testCluster(sharded.uri, 'destination-sharding')
    await readFacts(cluster)
    client = new MongoClient(sharded.uri)
  })
  afterAll(async () => {
    await Promise.all([cluster?.close(), client?.close()])
    await sharded?.stop()
  })
  beforeEach(() => emptyCluster(client))

  const keyOf = (...fields: Record<string, 1 | 'hashed'>[]) => requestedShardKey(fields) as ShardKey

  /** Drops the collection if it exists, creates it, and returns its catalog entry. */
  async function createdAgain(shardKey: ShardKey) {
    await client
      .db('app')
      .dropCollection('things')
      .catch(() => {})
    await client.db('app').createCollection('things')
    const [listed] = await client.db('app').listCollections({ name: 'things' }).toArray()
    const { uuid } = (listed as unknown as { info: { uuid: Binary } }).info
    const identified = { uuid: fromUuid(uuid), name: 'things' }
    const entry = newEntry('app', identified, { options: [], indexes: [] }, 'copied')
    return Object.assign(entry, { destinationUUID: identified.uuid, shardKey })
  }

  const storedKey = async (): Promise<Document | undefined> =>
    (await client.db('config').collection<Document & { _id: string }>('collections').findOne({ _id: 'app.things' }))?.[
      'key'
    ]

  function observedWrites() {
    const write = vi.spyOn(cluster, 'write')
    onTestFinished(() => write.mockRestore())
    return (name: string) => write.mock.calls.find(([, command]) => name in command) as Parameters<typeof cluster.write>
  }

  it('is not changed by a shardCollection that arrives after the collection was created again', async () => {
    const written = observedWrites()
    const sharding = new DestinationSharding(cluster, cluster, testContext())
    await sharding.assignPrimary('app')
    await sharding.distribute(await createdAgain(keyOf({ k: 'hashed' })))
    expect(await storedKey()).toEqual({ k: 'hashed' })
    const delayed = written('shardCollection')
    const again = await createdAgain(keyOf({ other: 'hashed' }))
    await expect(cluster.write(...delayed)).rejects.toMatchObject({ code: 361 })
    expect(await storedKey()).toBeUndefined()
    await sharding.distribute(again)
    await sharding.distribute(again)
    expect(await storedKey()).toEqual({ other: 'hashed' })
    // After the collection was dropped, neither the delayed command nor a new one creates it again.
    await client.db('app').dropCollection('things')
    await expect(cluster.write(...delayed)).rejects.toMatchObject({ code: 361 })
    await expect(sharding.distribute(again)).rejects.toThrow('renamed or dropped before it was sharded')
    expect(await client.db('app').listCollections({ name: 'things' }).toArray()).toEqual([])
  })

  it('is not changed by a refineCollectionShardKey that arrives after the collection was created again', async () => {
    const written = observedWrites()
    const sharding = new DestinationSharding(cluster, cluster, testContext())
    await sharding.assignPrimary('app')
    const entry = await createdAgain(keyOf({ k: 'hashed' }))
    await sharding.distribute(entry)
    await client.db('app').collection('things').createIndex({ k: 'hashed', j: 1 })
    expect(await sharding.follow(entry, keyOf({ k: 'hashed' }, { j: 1 }))).toBe(true)
    expect(await storedKey()).toEqual({ k: 'hashed', j: 1 })
    const delayed = written('refineCollectionShardKey')
    await sharding.distribute(await createdAgain(keyOf({ k: 'hashed' })))
    await client.db('app').collection('things').createIndex({ k: 'hashed', j: 1 })
    await expect(cluster.write(...delayed)).rejects.toMatchObject({ code: 361 })
    expect(await storedKey()).toEqual({ k: 'hashed' })
  })

  it('is completed by a second command when the time limit has ended the first one', async () => {
    const write = cluster.write.bind(cluster)
    let sent = 0
    const limited = vi.spyOn(cluster, 'write').mockImplementation(async (database, command, options) => {
      if ('shardCollection' in command && sent++ === 0) throw new TransientReplyError('out of time', 50)
      return await write(database, command, options)
    })
    onTestFinished(() => limited.mockRestore())
    const sharding = new DestinationSharding(cluster, cluster, testContext())
    await sharding.assignPrimary('app')
    await sharding.distribute(await createdAgain(keyOf({ k: 'hashed' })))
    expect([sent, await storedKey()]).toEqual([2, { k: 'hashed' }])
  })

  it('is changed by commands with a time limit that ends before the writes of their sender count as drained', async () => {
    const run = vi.spyOn(cluster, 'run')
    onTestFinished(() => run.mockRestore())
    const wanted = client.db('app').collection('wanted')
    await client.db('admin').command({ enableSharding: 'app' })
    await wanted.insertMany(Array.from({ length: 200 }, (_, k) => ({ k })))
    const [listed] = await client.db('app').listCollections({ name: 'wanted' }).toArray()
    const { uuid } = (listed as unknown as { info: { uuid: Binary } }).info
    const entry = await createdAgain(keyOf({ k: 1 }))
    const sharding = new DestinationSharding(cluster, cluster, testContext())
    await sharding.distribute(Object.assign(entry, { uuid: fromUuid(uuid), sourceName: 'wanted' }))
    const metadata = new Metadata(cluster, testContext())
    await stopBalancer(cluster, metadata, testContext())
    await metadata.sharding.saveBalancer('full')
    await restoreBalancer(cluster, metadata)
    await client.db('admin').command({ balancerStop: 1 })
    for (const name of ['shardCollection', 'split', 'moveChunk', 'balancerStop', 'balancerStart']) {
      const sent = run.mock.calls.filter(([, command]) => name in command)
      expect(sent.length, name).toBeGreaterThan(0)
      for (const [, command] of sent) expect(command['maxTimeMS'], name).toBeLessThan(28_000)
    }
  })

  it('gets a database whose name differs only in case from that of an empty one, and refuses it beside one with a collection', async () => {
    const sharding = new DestinationSharding(cluster, cluster, testContext())
    const definitions = new DestinationDefinitions(cluster, 'beforeDataCopy', sharding)
    const entryOf = (database: string, shardKey: ShardKey | null = null) =>
      Object.assign(
        newEntry(database, { uuid: fromUuid(new UUID()), name: 'things' }, { options: [], indexes: [] }, 'copied'),
        { shardKey },
      )
    const createIn = (entry: CatalogEntry) => definitions.create(entry.database, [entry])
    const listed = async (): Promise<string[]> => {
      const placed = await client.db('config').collection<{ _id: string }>('databases').find().toArray()
      return placed.map(({ _id }) => _id).filter((name) => name.toLowerCase() === 'shop')
    }
    await createIn(entryOf('Shop'))
    const create = () => createIn(entryOf('shop', keyOf({ k: 1 })))
    await expect(create()).rejects.toMatchObject({
      failure: 'DestinationConflict',
      message: expect.stringMatching(
        /creating the database shop .* the database Shop whose name differs only .*DatabaseDifferCase \(13297\).* Drop that database on the destination/,
      ),
    })
    expect(await listed()).toEqual(['Shop'])
    await client.db('Shop').dropCollection('things')
    expect((await client.db('admin').admin().listDatabases()).databases.map(({ name }) => name)).not.toContain('Shop')
    expect(await listed()).toEqual(['Shop'])
    await create()
    expect(await listed()).toEqual(['shop'])
    // A config server compares all letters, and a replica set of 6.0 only A to Z (`caseKey`).
    await createIn(entryOf('École'))
    await expect(createIn(entryOf('école'))).rejects.toMatchObject({ failure: 'DestinationConflict' })
    // This instance has given Shop its primary shard before.
    await client.db('shop').dropCollection('things')
    await createIn(entryOf('Shop'))
    expect(await listed()).toEqual(['Shop'])
  })

  it('refuses a sharded collection whose namespace is too long on it by its name', async () => {
    const renamed = cluster.openWith(new NamespaceRemap([{ from: { database: 'app' }, to: { database: 'stores' } }]))
    onTestFinished(() => renamed.close())
    const sharding = new DestinationSharding(renamed, renamed, testContext())
    const definitions = new DestinationDefinitions(renamed, 'beforeDataCopy', sharding)
    const create = async (name: string, shardKey: ShardKey | null) => {
      const entry = newEntry('app', { uuid: fromUuid(new UUID()), name }, { options: [], indexes: [] }, 'copied')
      await definitions.create(entry.database, [Object.assign(entry, { shardKey })])
      return entry
    }
    const longest = 'x'.repeat(235 - 'stores.'.length)
    const tooLong = {
      failure: 'UnsupportedCollection',
      message: expect.stringMatching(
        /would be stores\.x+ on the destination, which has 236 bytes, .* at most 235 for a sharded/,
      ),
    }
    const key = keyOf({ k: 'hashed' })
    await create(longest, key)
    await expect(create(`${longest}x`, key)).rejects.toMatchObject(tooLong)
    const plain = await create('plain', null)
    await definitions.rename(plain, `${longest}xx`)
    await expect(sharding.follow(Object.assign(plain, { name: `${longest}xx` }), key)).rejects.toMatchObject({
      failure: 'UnsupportedCollection',
    })
    const short = await create('short', key)
    await expect(definitions.rename(short, `${longest}x`)).rejects.toMatchObject(tooLong)
    await definitions.rename(short, longest.slice(1))
  })
})
