import { BSONRegExp, type Document, MongoClient } from 'mongodb'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { listCollections } from '../../src/definitions/listing.ts'
import { identityKey, unread } from '../../src/documents/identity.ts'
import { existingPlaces } from '../../src/documents/placed-elsewhere.ts'
import { reconcileDocuments } from '../../src/documents/reconcile-documents.ts'
import { removeDeleted } from '../../src/documents/remove-keyed.ts'
import { DocumentWriter } from '../../src/documents/write-identities.ts'
import type { CatalogEntry } from '../../src/domain/catalog.ts'
import { idElementOf } from '../../src/domain/id-element.ts'
import { requestedShardKey, type ShardKey, shardKeyValues } from '../../src/domain/shard-key.ts'
import type { Cluster } from '../../src/mongo/cluster.ts'
import { MovedError } from '../../src/mongo/collection-name.ts'
import { readFacts } from '../../src/mongo/identity.ts'
import { Metadata } from '../../src/mongo/metadata.ts'
import { testCluster, testContext } from '../mongo/clusters.ts'
import { nested, type RawField, rawDocument } from '../support/bson-values.ts'
import { emptyCluster } from '../support/empty-cluster.ts'
import { type ShardedCluster, startShardedCluster } from '../support/sharded-cluster.ts'

/**
 * A collection whose shard key is not `_id` may hold the same `_id` on several shards. The writer must leave only one
 * document.
 */
describe('writing into a collection whose shard key is not _id', () => {
  let sharded: ShardedCluster
  let cluster: Cluster
  let client: MongoClient
  let writer: DocumentWriter

  beforeAll(async () => {
    sharded = await startShardedCluster()
    cluster = testCluster(sharded.uri, 'keyed-writes')
    await readFacts(cluster)
    client = new MongoClient(sharded.uri)
    writer = new DocumentWriter(cluster, async () => false)
  })
  afterAll(async () => {
    await Promise.all([cluster?.close(), client?.close()])
    await sharded?.stop()
  })
  beforeEach(() => emptyCluster(client))

  async function create(fields: Record<string, 1 | 'hashed'>[], options: Document = {}): Promise<CatalogEntry> {
    const admin = client.db('admin')
    const key = Object.assign({}, ...fields) as Record<string, 1 | 'hashed'>
    await admin.command({ enableSharding: 'app', primaryShard: sharded.shards[0]?.name })
    await client.db('app').createCollection('things', options)
    const simple = options['collation'] ? { collation: { locale: 'simple' } } : {}
    await admin.command({ shardCollection: 'app.things', key, ...simple })
    if (Object.values(key)[0] === 1) {
      const middle = Object.fromEntries(Object.keys(key).map((path, at) => [path, at === 0 ? 50 : 0]))
      await sharded.split('app.things', middle)
      await sharded.moveChunk('app.things', middle, 1)
    }
    const [listed] = await listCollections(cluster, 'app', 'things')
    if (!listed) throw new Error('not created')
    return {
      uuid: listed.uuid,
      database: 'app',
      name: 'things',
      sourceName: 'things',
      destinationUUID: listed.uuid,
      state: 'copied',
      wanted: { options: listed.options, indexes: [] },
      shardKey: requestedShardKey(fields) as ShardKey,
    } as unknown as CatalogEntry
  }

  const document = (...fields: RawField[]): Buffer => rawDocument(fields)
  const stored = () =>
    client
      .db('app')
      .collection('things')
      .find({}, { sort: { _id: 1 }, promoteValues: true, bsonRegExp: true })
      .toArray()

  it('an upsert replaces a document whose shard key changed, also on another shard', async () => {
    const entry = await create([{ k: 1 }])
    await writer.insert(entry, [document(['_id', 1], ['k', 10]), document(['_id', 2], ['k', 20])])
    await writer.upsert(entry, [document(['_id', 1], ['k', 90]), document(['_id', 2], ['x', 1])])
    expect(await stored()).toEqual([
      { _id: 1, k: 90 },
      { _id: 2, x: 1 },
    ])
  })

  it('an insert replaces the document with the same _id and another shard key on the same shard', async () => {
    const entry = await create([{ k: 1 }])
    await writer.insert(entry, [document(['_id', 1], ['k', 10])])
    await writer.insert(entry, [document(['_id', 1], ['k', 11])])
    expect(await stored()).toEqual([{ _id: 1, k: 11 }])
  })

  it('a delete removes the document from every shard', async () => {
    const entry = await create([{ k: 1 }])
    await writer.insert(entry, [document(['_id', 1], ['k', 10])])
    await client
      .db('app')
      .collection<{ _id: number }>('things')
      .insertOne({ _id: 1, k: 90 } as never)
    expect(await stored()).toHaveLength(2)
    await writer.delete(entry, [document(['_id', 1]).subarray(4, -1)])
    expect(await stored()).toEqual([])
  })

  it.each<[string, RawField[]]>([
    ['null', [['k', null]]],
    ['a pattern', [['k', new BSONRegExp('^a', 'i')]]],
    ['a document', [['k', nested([['x', 1]])]]],
    ['a document with a field name like an operator', [['k', nested([['$x', 1]])]]],
    ['NaN', [['k', Number.NaN]]],
    ['a missing field', []],
  ])('an upsert replaces a document whose shard key value is %s', async (_what, fields) => {
    const entry = await create([{ k: 1 }])
    await writer.insert(entry, [document(['_id', 1], ['k', 90])])
    for (const version of [1, 2]) {
      await writer.upsert(entry, [document(['_id', 1], ['v', version], ...fields)])
      const found = await stored()
      expect(found).toHaveLength(1)
      expect(found[0]?.['v']).toBe(version)
    }
  })

  it('an upsert replaces documents whose shard key is a hashed nested field', async () => {
    const entry = await create([{ 'a.b': 'hashed' }])
    await writer.insert(
      entry,
      Array.from({ length: 50 }, (_, i) => document(['_id', i], ['a', nested([['b', i]])])),
    )
    await writer.upsert(
      entry,
      Array.from({ length: 50 }, (_, i) => document(['_id', i], ['a', nested([['b', i + 1]])])),
    )
    expect((await stored()).map(({ _id, a }) => a.b - (_id as unknown as number))).toEqual(Array(50).fill(1))
  })

  it('every identity is recorded before it is written while its collection is copied', async () => {
    const entry = { ...(await create([{ k: 1 }])), state: 'copying' as const }
    const context = testContext()
    const metadata = new Metadata(cluster, context)
    const changed = document(['_id', 1], ['k', 90])
    const idElement = idElementOf(changed)
    const identity = { ...unread(idElement), document: changed, fresh: true, inserted: true }
    const dependencies = { source: cluster, destination: cluster, metadata, writer, context, nextOrder: () => 7 }
    await reconcileDocuments(dependencies, entry, new Map([[identityKey(idElement), identity]]), cluster.latest)
    // The copy writes the document, as it was before the change, to the other shard, where no unique index refuses it.
    await writer.insert(entry, [document(['_id', 1], ['k', 10])])
    expect(await stored()).toHaveLength(2)
    expect(entry.hasTombstones).toBe(true)
    expect((await metadata.tombstones.read(entry.uuid, null, 10)).map((one) => one.idElement)).toEqual([idElement])
  })

  it.each([
    ['its event contains', true],
    ['is read', false],
  ])(
    'a document that was inserted and then given another key, which %s, is not kept under both keys',
    async (_what, isContained) => {
      const entry = await create([{ k: 1 }])
      // This document was written before a crash. The source is treated as a replica set, so tandem relies on the events.
      await writer.insert(entry, [document(['_id', 1], ['k', 10])])
      await client
        .db('app')
        .collection<{ _id: number }>('wanted')
        .insertOne({ _id: 1, k: 90 } as never)
      const [wanted] = await listCollections(cluster, 'app', 'wanted')
      const read = { ...entry, uuid: wanted?.uuid ?? '', sourceName: 'wanted' }
      const source = testCluster(sharded.uri, 'keyed-writes-source')
      await using _ = { [Symbol.asyncDispose]: () => source.close() }
      await readFacts(source)
      source.idsMayRepeat = false
      const context = testContext()
      const metadata = new Metadata(cluster, context)
      const dependencies = { source, destination: cluster, metadata, writer, context, nextOrder: () => 1 }
      const changed = document(['_id', 1], ['k', 90])
      const idElement = idElementOf(changed)
      const identity = {
        ...unread(idElement),
        document: isContained ? changed : null,
        fresh: true,
        inserted: true,
        folded: true,
      }
      await reconcileDocuments(dependencies, read, new Map([[identityKey(idElement), identity]]), cluster.latest)
      expect(await stored()).toEqual([{ _id: 1, k: 90 }])
    },
  )

  it('tandem keeps only the shard key values of a document in memory, and not the fields that contain them', async () => {
    const entry = await create([{ 'a.b': 1 }])
    const large = document(
      ['_id', 1],
      [
        'a',
        nested([
          ['b', 7],
          ['c', 'x'.repeat(1_000_000)],
        ]),
      ],
    )
    await writer.insert(entry, [large])
    const places = await existingPlaces(cluster, entry, entry.shardKey as ShardKey, [idElementOf(large)])
    expect(places).toEqual([
      { idElement: idElementOf(large), values: shardKeyValues(large, entry.shardKey as ShardKey) },
    ])
    const buffers = places.flatMap(({ idElement, values }) => [idElement, ...values])
    for (const { buffer } of buffers) expect(buffer.byteLength).toBeLessThan(100_000)
  })

  it('when a collection was renamed meanwhile, a delete makes tandem locate the collection again', async () => {
    const entry = await create([{ k: 1 }])
    class Renaming extends DocumentWriter {
      override async remove(...parameters: Parameters<DocumentWriter['remove']>): Promise<number> {
        const removed = await super.remove(...parameters)
        await client.db('app').renameCollection('things', 'renamed')
        return removed
      }
    }
    const parts = { destination: cluster, writer: new Renaming(cluster, async () => false) }
    const deletedKey = document(['_id', 1], ['k', 10])
    const gone = { ...unread(idElementOf(deletedKey)), deletedKey, deleted: true }
    await expect(removeDeleted(parts, entry, [gone])).rejects.toBeInstanceOf(MovedError)
  })

  it('under a collation, a document whose shard key changed on the source exists once afterwards', async () => {
    const collation = { locale: 'en', strength: 2 }
    const entry = await create([{ k: 1 }], { collation })
    await writer.insert(entry, [document(['_id', 'abc'], ['k', 10])])
    // Another collection of the same cluster represents the source.
    const source = await client.db('app').createCollection<{ _id: string; k: number }>('wanted', { collation })
    await source.insertOne({ _id: 'abc', k: 90 })
    const [wanted] = await listCollections(cluster, 'app', 'wanted')
    const read = { ...entry, uuid: wanted?.uuid ?? '', sourceName: 'wanted' }
    const context = testContext()
    const metadata = new Metadata(cluster, context)
    const dependencies = { source: cluster, destination: cluster, metadata, writer, context }
    const idElement = idElementOf(document(['_id', 'abc']))
    const identities = new Map([[identityKey(idElement), unread(idElement)]])
    await reconcileDocuments({ ...dependencies, nextOrder: () => 1 }, read, identities, cluster.latest)
    expect(await stored()).toEqual([{ _id: 'abc', k: 90 }])
  })

  it('an upsert under a collation replaces the document whose _id is spelled differently', async () => {
    const entry = await create([{ k: 1 }], { collation: { locale: 'en', strength: 2 } })
    await writer.insert(entry, [document(['_id', 'abc'], ['k', 10])])
    await writer.upsert(entry, [document(['_id', 'ABC'], ['k', 90])])
    expect(await stored()).toEqual([{ _id: 'ABC', k: 90 }])
  })
})
