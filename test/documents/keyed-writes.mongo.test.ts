import { BSONRegExp, type Document, MongoClient } from 'mongodb'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { listCollections } from '../../src/definitions/listing.ts'
import { identityKey } from '../../src/documents/identity.ts'
import { reconcileDocuments } from '../../src/documents/reconcile-documents.ts'
import { DocumentWriter } from '../../src/documents/write-identities.ts'
import type { CatalogueEntry } from '../../src/domain/catalogue.ts'
import { idElementOf } from '../../src/domain/id-element.ts'
import { askedShardKey, type ShardKey } from '../../src/domain/shard-key.ts'
import type { Cluster } from '../../src/mongo/cluster.ts'
import { readFacts } from '../../src/mongo/identity.ts'
import { Metadata } from '../../src/mongo/metadata.ts'
import { testCluster, testContext } from '../mongo/clusters.ts'
import { nested, type RawField, rawDocument } from '../support/bson-values.ts'
import { emptyCluster } from '../support/empty-cluster.ts'
import { type ShardedCluster, startShardedCluster } from '../support/sharded-cluster.ts'

/** A collection whose key is not `_id` may hold one `_id` on each shard, and the writer must see to it that it does not. */
describe('writing into a collection distributed by other fields than _id', () => {
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

  async function create(fields: Record<string, 1 | 'hashed'>[], options: Document = {}): Promise<CatalogueEntry> {
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
      shardKey: askedShardKey(fields) as ShardKey,
    } as unknown as CatalogueEntry
  }

  const document = (...fields: RawField[]): Buffer => rawDocument(fields)
  const stored = () =>
    client
      .db('app')
      .collection('things')
      .find({}, { sort: { _id: 1 }, promoteValues: true, bsonRegExp: true })
      .toArray()

  it('a document whose key changed has moved, not multiplied', async () => {
    const entry = await create([{ k: 1 }])
    await writer.insert(entry, [document(['_id', 1], ['k', 10]), document(['_id', 2], ['k', 20])])
    await writer.upsert(entry, [document(['_id', 1], ['k', 90]), document(['_id', 2], ['x', 1])])
    expect(await stored()).toEqual([
      { _id: 1, k: 90 },
      { _id: 2, x: 1 },
    ])
  })

  it('an insert that meets its _id on the same shard under another key replaces it', async () => {
    const entry = await create([{ k: 1 }])
    await writer.insert(entry, [document(['_id', 1], ['k', 10])])
    await writer.insert(entry, [document(['_id', 1], ['k', 11])])
    expect(await stored()).toEqual([{ _id: 1, k: 11 }])
  })

  it('a delete takes every copy', async () => {
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
    ['an operator’s name', [['k', nested([['$x', 1]])]]],
    ['NaN', [['k', Number.NaN]]],
    ['nothing', []],
  ])('values of every kind serve as key: %s', async (_what, fields) => {
    const entry = await create([{ k: 1 }])
    await writer.insert(entry, [document(['_id', 1], ['k', 90])])
    for (const version of [1, 2]) {
      await writer.upsert(entry, [document(['_id', 1], ['v', version], ...fields)])
      const found = await stored()
      expect(found).toHaveLength(1)
      expect(found[0]?.['v']).toBe(version)
    }
  })

  it('goes by dotted and by hashed fields', async () => {
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

  it('while its collection is copied every identity is recorded before it is written', async () => {
    const entry = { ...(await create([{ k: 1 }])), state: 'copying' as const }
    const context = testContext()
    const metadata = new Metadata(cluster, context)
    const changed = document(['_id', 1], ['k', 90])
    const idElement = idElementOf(changed)
    const identity = { idElement, document: changed, deleted: false, fresh: true, inserted: true, folded: false }
    const dependencies = { source: cluster, metadata, writer, context, nextOrder: () => 7 }
    await reconcileDocuments(dependencies, entry, new Map([[identityKey(idElement), identity]]), cluster.latest)
    // What the copy read before the change lands on the other shard, where nothing keeps it out.
    await writer.insert(entry, [document(['_id', 1], ['k', 10])])
    expect(await stored()).toHaveLength(2)
    expect(entry.hasTombstones).toBe(true)
    expect((await metadata.tombstones.read(entry.uuid, null, 10)).map((one) => one.idElement)).toEqual([idElement])
  })

  it('an _id spelled anew under a collation is one document', async () => {
    const entry = await create([{ k: 1 }], { collation: { locale: 'en', strength: 2 } })
    await writer.insert(entry, [document(['_id', 'abc'], ['k', 10])])
    await writer.upsert(entry, [document(['_id', 'ABC'], ['k', 90])])
    expect(await stored()).toEqual([{ _id: 'ABC', k: 90 }])
  })
})
