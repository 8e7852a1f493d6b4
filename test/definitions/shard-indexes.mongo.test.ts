import { type Document, MongoClient } from 'mongodb'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { DeferredOptions } from '../../src/definitions/deferred-options.ts'
import { DestinationIndexes } from '../../src/definitions/destination-indexes.ts'
import { listCollections, listIndexes } from '../../src/definitions/listing.ts'
import { findDefinitionMismatches } from '../../src/definitions/read-definitions.ts'
import { Catalog, type CatalogEntry, newEntry } from '../../src/domain/catalog.ts'
import { requestedShardKey } from '../../src/domain/shard-key.ts'
import type { Cluster } from '../../src/mongo/cluster.ts'
import { readFacts } from '../../src/mongo/identity.ts'
import { Selection } from '../../src/mongo/selection.ts'
import { testCluster, testContext } from '../mongo/clusters.ts'
import { emptyCluster } from '../support/empty-cluster.ts'
import { failPoint } from '../support/fail-point.ts'
import { borrowReplicaSet } from '../support/kept-sets.ts'
import type { ReplicaSet } from '../support/replica-set.ts'
import { type ShardedCluster, startShardedCluster } from '../support/sharded-cluster.ts'

const longEnough = { timeout: 60_000 }

/**
 * The router sends createIndexes to each shard separately, and listIndexes only to the shard of the first chunk, which is the
 * first one in `shards`.
 */
describe('indexes of a sharded collection that only some shards have', () => {
  let set: ReplicaSet
  let sharded: ShardedCluster
  let source: Cluster
  let destination: Cluster
  let sourceClient: MongoClient
  let client: MongoClient
  let shards: [MongoClient, MongoClient]

  beforeAll(async () => {
    ;[set, sharded] = await Promise.all([borrowReplicaSet(), startShardedCluster()])
    source = testCluster(set.uri)
    destination = testCluster(sharded.uri)
    await Promise.all([readFacts(source), readFacts(destination)])
    ;[sourceClient, client] = [new MongoClient(set.uri), new MongoClient(sharded.uri)]
    shards = sharded.shards.map(({ uri }) => new MongoClient(uri)) as typeof shards
  })
  afterAll(async () => {
    for (const one of [source, destination, sourceClient, client, ...(shards ?? [])]) await one?.close()
    await Promise.all([set?.stop(), sharded?.stop()])
  })
  beforeEach(async () => {
    for (const one of [sourceClient, client]) await emptyCluster(one)
  })

  const things = (of: MongoClient) => of.db('app').collection('things')
  const indexesOn = async (of: MongoClient): Promise<Document[]> =>
    (await things(of).indexes()).filter(({ name }) => name !== '_id_' && name !== 'k_1')
  const namesOn = async (of: MongoClient): Promise<unknown[]> => (await indexesOn(of)).map(({ name }) => name)

  /** Creates `app.things` on both clusters. On the destination it has a chunk on each shard, and only the index of the shard key. */
  async function entryWith(...wanted: { key: Record<string, 1>; unique?: boolean }[]): Promise<CatalogEntry> {
    await things(sourceClient).createIndexes([{ key: { k: 1 } }, ...wanted])
    const admin = client.db('admin')
    await admin.command({ enableSharding: 'app', primaryShard: sharded.shards[0]?.name })
    await admin.command({ shardCollection: 'app.things', key: { k: 1 } })
    await sharded.split('app.things', { k: 100 })
    await sharded.moveChunk('app.things', { k: 100 }, 1)
    await things(client).insertMany([50, 150].map((k) => ({ k, u: k })))
    const [ours] = await listCollections(source, 'app', 'things')
    const [theirs] = await listCollections(destination, 'app', 'things')
    const indexes = (await listIndexes(source, 'app', ours?.uuid ?? '')) ?? []
    const entry = newEntry('app', ours as { uuid: string; name: string }, { options: [], indexes }, 'copied')
    return Object.assign(entry, { destinationUUID: theirs?.uuid, shardKey: requestedShardKey([{ k: 1 }]) })
  }

  function mismatches(entry: CatalogEntry) {
    const catalog = new Catalog()
    catalog.add(entry)
    const selection = new Selection(source, { includeNamespaces: null, excludeNamespaces: null })
    const parts = { clusters: { source, destination }, selection, catalog, context: testContext() }
    return findDefinitionMismatches({ ...parts, buildIndexes: 'beforeDataCopy' }, 'prepared')
  }

  const deferredOptions = () => new DeferredOptions(destination, testContext())

  it('tandem builds an index that one shard has not built on that shard', async () => {
    const entry = await entryWith({ key: { a: 1 } })
    const indexes = new DestinationIndexes(destination, 'beforeDataCopy')
    const failing = { failCommands: ['createIndexes'], errorCode: 10_107, failInternalCommands: true }
    await using _ = await failPoint(shards[1], 'failCommand', failing, { times: 1 })
    await expect(indexes.buildAwaited(entry)).rejects.toMatchObject({ code: 10_107 })
    await expect.poll(() => namesOn(shards[0]), longEnough).toEqual(['a_1'])
    await indexes.buildAwaited(entry)
    expect(await Promise.all(shards.map(namesOn))).toEqual([['a_1'], ['a_1']])
  })

  it('tandem waits for an index that one shard is still building', async () => {
    const entry = await entryWith({ key: { a: 1 } })
    const indexes = new DestinationIndexes(destination, 'beforeDataCopy')
    await using held = await failPoint(shards[1], 'hangAfterStartingIndexBuild', {})
    const begun = client.db('app').command({ createIndexes: 'things', indexes: [{ key: { a: 1 }, name: 'a_1' }] })
    await held.reached()
    await expect.poll(() => namesOn(shards[0]), longEnough).toEqual(['a_1'])
    const builds = async (): Promise<number> => {
      const operations = shards[1].db('admin').aggregate([{ $currentOp: {} }])
      return (await operations.toArray()).filter((one) => one['command']?.createIndexes === 'things').length
    }
    const before = await builds()
    let ended = false
    const awaited = indexes.buildAwaited(entry).finally(() => {
      ended = true
    })
    await expect.poll(async () => ended || (await builds()) > before, longEnough).toBe(true)
    expect(ended).toBe(false)
    await held.release()
    await Promise.all([begun, awaited])
    expect(await mismatches(entry)).toEqual([])
  })

  it('indexes that the source does not have are dropped on every shard', async () => {
    const entry = await entryWith({ key: { a: 1 } })
    await things(shards[0]).createIndex({ b: 1 })
    await things(shards[1]).createIndex({ c: 1 })
    const indexes = new DestinationIndexes(destination, 'beforeDataCopy')
    await indexes.followIndexes(entry, entry.wanted.indexes)
    expect(await Promise.all(shards.map(namesOn))).toEqual([['a_1'], ['a_1']])
    expect(await mismatches(entry)).toEqual([])
  })

  it.each([0, 1] as const)(
    'the verdict finds an index that is missing on shard %i, and an index that only this shard has',
    async (at) => {
      const entry = await entryWith({ key: { a: 1 } })
      await things(client).createIndex({ a: 1 })
      expect(await mismatches(entry)).toEqual([])
      await things(shards[at]).dropIndex('a_1')
      expect(await mismatches(entry)).toEqual([{ namespace: 'app.things', kind: 'index', field: 'a_1' }])
      await things(client).createIndex({ a: 1 })
      await things(shards[at]).createIndex({ b: 1 })
      expect(await mismatches(entry)).toEqual([{ namespace: 'app.things', kind: 'index', field: 'b_1' }])
    },
  )

  it('an index that is unique only on one shard is found, and becomes unique on all shards', async () => {
    const entry = await entryWith({ key: { k: 1, u: 1 }, unique: true } as never)
    await things(client).createIndex({ k: 1, u: 1 })
    const index = { name: 'k_1_u_1', prepareUnique: true }
    await shards[0].db('app').command({ collMod: 'things', index })
    expect(await mismatches(entry)).toEqual([{ namespace: 'app.things', kind: 'index', field: 'k_1_u_1' }])
    await shards[0].db('app').command({ collMod: 'things', index: { name: 'k_1_u_1', unique: true } })
    await deferredOptions().prepareIndexes([entry])
    expect(await mismatches(entry)).toEqual([])
    await deferredOptions().finishIndexes([entry])
    for (const shard of shards) expect(await indexesOn(shard)).toEqual([expect.objectContaining({ unique: true })])
    await deferredOptions().deferAll([entry])
    for (const shard of shards) expect((await indexesOn(shard))[0]).not.toHaveProperty('unique')
  })

  it('an index that is missing on one shard cannot be prepared, and the error names that shard', async () => {
    const entry = await entryWith({ key: { k: 1, u: 1 }, unique: true } as never)
    await things(client).createIndex({ k: 1, u: 1 })
    await things(shards[1]).dropIndex('k_1_u_1')
    const prepared = deferredOptions().prepareIndexes([entry])
    await expect(prepared).rejects.toMatchObject({
      failure: 'IndexBuildFailed',
      message: expect.stringContaining(sharded.shards[1]?.name as string),
    })
    // After the decision, the index is built again on all shards.
    await deferredOptions().finishIndexes([entry])
    expect(await Promise.all(shards.map(namesOn))).toEqual([[], []])
  })

  it('an index that is missing on one shard is dropped before changes are applied again', async () => {
    const entry = await entryWith({ key: { k: 1, u: 1 }, unique: true } as never)
    await things(client).createIndex({ k: 1, u: 1 }, { unique: true })
    await things(shards[1]).dropIndex('k_1_u_1')
    await deferredOptions().deferAll([entry])
    expect(await Promise.all(shards.map(namesOn))).toEqual([[], []])
  })
})
