import { BSON, type Document, MongoClient } from 'mongodb'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { listCollections } from '../../src/definitions/listing.ts'
import { fold, type Identity, identityKey } from '../../src/documents/identity.ts'
import { readByIds } from '../../src/documents/read-documents.ts'
import { reconcileDocuments } from '../../src/documents/reconcile-documents.ts'
import { chunkMapOf } from '../../src/documents/source-chunks.ts'
import { DocumentWriter } from '../../src/documents/write-identities.ts'
import type { CatalogEntry } from '../../src/domain/catalog.ts'
import { type ChangeEvent, parseChangeEvent } from '../../src/domain/change-event.ts'
import { bsonType } from '../../src/domain/raw-bson.ts'
import { requestedShardKey } from '../../src/domain/shard-key.ts'
import { readChangeStream } from '../../src/mongo/change-stream.ts'
import type { Cluster } from '../../src/mongo/cluster.ts'
import { readFacts } from '../../src/mongo/identity.ts'
import { Metadata } from '../../src/mongo/metadata.ts'
import { appendOplogNote } from '../../src/mongo/oplog-note.ts'
import { rawSequence } from '../../src/mongo/raw-values.ts'
import { findDifferent } from '../../src/verify/recheck-documents.ts'
import { testCluster, testContext } from '../mongo/clusters.ts'
import { AskedDocuments } from '../support/asked-documents.ts'
import { emptyCluster } from '../support/empty-cluster.ts'
import { type Row, rowsOf } from '../support/rows.ts'
import { type ShardedCluster, startShardedCluster } from '../support/sharded-cluster.ts'
import { until } from '../support/until.ts'

type Key = Record<string, 1 | 'hashed'>

/**
 * Changed documents of a sharded source are asked for by the shard key values of their events. The result is that of a
 * read by `_id`. One cluster is both source and destination, in two collections.
 */
describe('reading changed documents of a sharded source', () => {
  let sharded: ShardedCluster
  let cluster: Cluster
  let client: MongoClient
  let writer: DocumentWriter
  let asked: AskedDocuments

  beforeAll(async () => {
    sharded = await startShardedCluster({ shards: 3 })
    cluster = testCluster(sharded.uri, 'targeted-reads')
    await readFacts(cluster)
    client = new MongoClient(sharded.uri)
    writer = new DocumentWriter(cluster, async () => false)
  })
  afterAll(async () => {
    await Promise.all([cluster?.close(), client?.close()])
    await sharded?.stop()
  })
  beforeEach(() => emptyCluster(client))

  const on = (name: string) => rowsOf(client, name)
  const content = async (name: string) => {
    const all = await on(name).find({}, { raw: true }).toArray()
    return all.map((document) => Buffer.from(document as unknown as Uint8Array).toString('hex')).sort()
  }

  async function create(name: string, key: Key, splitAt: unknown[]): Promise<string> {
    const admin = client.db('admin')
    await admin.command({ enableSharding: 'app', primaryShard: sharded.shards[0]?.name })
    await admin.command({ shardCollection: `app.${name}`, key })
    const [first, ...others] = Object.keys(key) as [string, ...string[]]
    for (const [at, value] of splitAt.entries()) {
      const middle = { [first]: value, ...Object.fromEntries(others.map((path) => [path, new BSON.MinKey()])) }
      await sharded.split(`app.${name}`, middle)
      await sharded.moveChunk(`app.${name}`, middle, at + 1)
    }
    const [listed] = await listCollections(cluster, 'app', name)
    return listed?.uuid ?? ''
  }

  /** Two equal collections, of which the first one is the source. Resolves when its chunks are known. */
  async function pair(key: Key, splitAt: unknown[], documents: Document[]): Promise<CatalogEntry> {
    const uuid = await create('source', key, splitAt)
    const destinationUUID = await create('copy', key, splitAt)
    for (const name of ['source', 'copy']) await on(name).insertMany(documents as Row[])
    const entry = {
      ...{ uuid, database: 'app', name: 'copy', sourceName: 'source', destinationUUID, state: 'copied' },
      wanted: { options: [], indexes: [] },
      shardKey: requestedShardKey(Object.entries(key).map(([path, direction]) => ({ [path]: direction }))),
    } as unknown as CatalogEntry
    await until('the chunks of the source', async () => {
      if (!chunkMapOf(cluster, entry)) throw new Error('not known yet')
    })
    asked = await AskedDocuments.from(sharded, 'source')
    return entry
  }

  /** The change events of the source that `work` causes, as tandem reads them. */
  async function changes({ uuid }: CatalogEntry, work: () => Promise<unknown>): Promise<ChangeEvent[]> {
    await appendOplogNote(cluster, 'test')
    const start = cluster.latest
    // A shard that has answered this read gives later writes a later time.
    const collection = { database: 'app', name: 'source', uuid }
    for await (const _ of readByIds(cluster, collection, [Buffer.from([bsonType.null])], start));
    await work()
    await appendOplogNote(cluster, 'test')
    const end = cluster.latest
    const events: ChangeEvent[] = []
    for await (const batch of readChangeStream(cluster, { kind: 'time', time: start }, testContext())) {
      events.push(...batch.events.map(parseChangeEvent))
      if (batch.position.time > end) break
    }
    return events.filter((event) => event.uuid === uuid && event.time > start)
  }

  /** Applies the changes as one batch. Returns how many documents each shard was asked for. */
  async function apply(
    entry: CatalogEntry,
    events: ChangeEvent[],
    locate?: (entry: CatalogEntry) => Promise<boolean>,
  ): Promise<number[]> {
    const identities = new Map<string, Identity>()
    let notBefore = 0n
    for (const event of events) {
      if (event.uuid !== entry.uuid || !event.idElement) continue
      const key = identityKey(event.idElement)
      identities.set(key, fold(identities.get(key), event, event.idElement))
      if (event.time > notBefore) notBefore = event.time
    }
    const context = testContext()
    const metadata = new Metadata(cluster, context)
    const clusters = { source: cluster, destination: cluster }
    const dependencies = { ...clusters, metadata, writer, context, nextOrder: () => 1, ...(locate && { locate }) }
    asked.restart()
    await reconcileDocuments(dependencies, entry, identities, notBefore)
    expect(context.retried).toEqual([])
    const counts = await asked.read()
    return counts.map(({ documents }) => documents)
  }

  const sum = (counts: number[]): number => counts.reduce((one, other) => one + other, 0)

  it.each<[string, Key, unknown[], (id: number) => Document]>([
    ['a number', { k: 1 }, [10, 20], (k) => ({ k })],
    ['a hashed text', { k: 'hashed' }, [], (id) => ({ k: `value ${id}` })],
    ['nested, and followed by another field', { 'a.b': 1, c: 1 }, [1, 2], (id) => ({ a: { b: id % 3 }, c: id })],
    ['a document', { k: 1 }, [{ x: 10 }, { x: 20 }], (x) => ({ k: { x } })],
    ['a decimal', { k: 1 }, [10, 20], (id) => ({ k: BSON.Decimal128.fromString(`${id}.0`) })],
    ['the _id and another field', { _id: 1, k: 1 }, [10, 20], (k) => ({ k })],
  ])('asks one shard for each updated document, if the key is %s', async (_what, key, splitAt, fields) => {
    const documents = Array.from({ length: 30 }, (_, _id) => ({ _id, ...fields(_id) }))
    const entry = await pair(key, splitAt, documents)
    await using _ = asked
    const events = await changes(entry, () => on('source').updateMany({}, { $set: { x: 1 } }))
    const counts = await apply(entry, events)
    expect(sum(counts)).toBe(30)
    expect(counts.filter((count) => count > 0).length).toBeGreaterThan(1)
    expect(await content('copy')).toEqual(await content('source'))
  })

  it('finds documents without key fields, and with null, NaN, -0, a pattern, undefined and texts that differ in case', async () => {
    const values = [
      null,
      Number.NaN,
      -0,
      0,
      new BSON.BSONRegExp('^a', 'i'),
      'a',
      'A',
      'ä',
      new BSON.MinKey(),
      new BSON.MaxKey(),
    ]
    const documents: Document[] = values.map((k, _id) => ({ _id, k }))
    const entry = await pair({ k: 1 }, [0, 'a'], [...documents, { _id: 100 }, { _id: 101, k: { $x: 1 } }])
    await using _ = asked
    // The driver cannot send the deprecated type `undefined`.
    const ofUndefined = Buffer.from(BSON.serialize({ _id: 102, k: null }))
    ofUndefined[ofUndefined.lastIndexOf(bsonType.null)] = bsonType.undefined
    for (const name of ['source', 'copy']) {
      await client.db('app').command({ insert: name, documents: rawSequence('documents', [ofUndefined]) })
    }
    const events = await changes(entry, () => on('source').updateMany({}, { $set: { x: 1 } }))
    expect(events.filter(({ kind }) => kind === 'update')).toHaveLength(values.length + 3)
    await apply(entry, events)
    expect(await content('copy')).toEqual(await content('source'))
  })

  it('finds a document whose key was changed in place, between shards, and back, in one batch and in several', async () => {
    const entry = await pair(
      { k: 1 },
      [10, 20],
      [1, 2, 3, 4].map((_id) => ({ _id, k: _id })),
    )
    await using _ = asked
    const events = await changes(entry, async () => {
      await on('source').updateOne({ _id: 1, k: 1 }, { $set: { k: 5 } })
      await on('source').updateOne({ _id: 2, k: 2 }, { $set: { k: 25 } })
      await on('source').updateOne({ _id: 3, k: 3 }, { $set: { k: 15 } })
      await on('source').updateOne({ _id: 3, k: 15 }, { $set: { k: 3 } })
      await on('source').replaceOne({ _id: 4, k: 4 }, { k: 6, x: 'x'.repeat(300_000) })
    })
    expect(events.length).toBeGreaterThan(5)
    for (const event of events) await apply(entry, [event])
    expect(await content('copy')).toEqual(await content('source'))
    await apply(entry, events)
    expect(await content('copy')).toEqual(await content('source'))
    await on('copy').updateOne({ _id: 1, k: 5 }, { $set: { k: 1 } })
    await apply(entry, events.toReversed())
    expect(await content('copy')).toEqual(await content('source'))
  })

  it('deletes a document that is gone, and keeps one that exists again under another key', async () => {
    const entry = await pair(
      { k: 1 },
      [10, 20],
      [1, 2, 3].map((_id) => ({ _id, k: _id })),
    )
    await using _ = asked
    const events = await changes(entry, async () => {
      await on('source').updateOne({ _id: 1, k: 1 }, { $set: { x: 1 } })
      await on('source').deleteOne({ _id: 1, k: 1 })
      await on('source').deleteOne({ _id: 2, k: 2 })
      await on('source').insertOne({ _id: 2, k: 22 })
      await on('source').updateOne({ _id: 3, k: 3 }, { $set: { x: 1 } })
    })
    const [update] = events
    // The update alone, whose document is gone by now.
    await apply(entry, [update as ChangeEvent])
    expect(await on('copy').countDocuments({ _id: 1 })).toBe(0)
    // The delete alone, whose document has been inserted again. The event of that insert follows.
    const ofSecond = events.filter(({ idElement }) => idElement?.readInt32LE(5) === 2)
    await apply(
      entry,
      ofSecond.filter(({ kind }) => kind === 'delete'),
    )
    expect(await on('copy').find({ _id: 2 }).toArray()).toEqual([])
    await apply(entry, events)
    expect(await content('copy')).toEqual(await content('source'))
    // The same delete again, after the insert.
    await apply(
      entry,
      ofSecond.filter(({ kind }) => kind === 'delete'),
    )
    expect(await content('copy')).toEqual(await content('source'))
  })

  it('leaves nothing under the former key of a document that was deleted, inserted again and given another key', async () => {
    const entry = await pair({ k: 1 }, [10, 20], [{ _id: 1, k: 1 }])
    await using _ = asked
    // The keys 1 and 15 are on one shard of the source, and on two of the destination.
    await sharded.moveChunk('app.source', { k: 15 }, 0)
    const before = await changes(entry, async () => {
      await on('source').deleteOne({ _id: 1, k: 1 })
      await on('source').insertOne({ _id: 1, k: 1 })
    })
    expect(before.map(({ kind }) => kind)).toEqual(['delete', 'insert'])
    await apply(entry, before.slice(0, 1))
    expect(await on('copy').find().toArray()).toEqual([{ _id: 1, k: 1 }])
    const after = await changes(entry, () => on('source').updateOne({ _id: 1, k: 1 }, { $set: { k: 15 } }))
    expect(after.map(({ kind }) => kind)).toEqual(['update'])
    await apply(entry, [...before.slice(1), ...after])
    const rekeyed = await on('copy').find().toArray()
    const deleted = await changes(entry, () => on('source').deleteOne({ _id: 1, k: 15 }))
    await apply(entry, deleted)
    expect({ rekeyed, deleted: await on('copy').find().toArray() }).toEqual({
      rekeyed: [{ _id: 1, k: 15 }],
      deleted: [],
    })
  })

  it.each<[string, Key, unknown[], (id: number) => Document]>([
    ['a number', { k: 1 }, [10, 20], (k) => ({ k })],
    ['a hashed text', { k: 'hashed' }, [], (id) => ({ k: `value ${id}` })],
    ['of two fields', { 'a.b': 1, c: 1 }, [1, 2], (id) => ({ a: { b: id % 3 }, c: id })],
  ])('asks one shard for each deleted document, and deletes it on one shard, if the key is %s', async (...parts) => {
    const [, key, splitAt, fields] = parts
    const entry = await pair(
      key,
      splitAt,
      Array.from({ length: 30 }, (_, _id) => ({ _id, ...fields(_id) })),
    )
    await using _ = asked
    const events = await changes(entry, () => on('source').deleteMany({ _id: { $lt: 20 } }))
    expect(sum(await apply(entry, events))).toBe(20)
    expect(sum(await asked.statements('copy', 'remove'))).toBe(20)
    expect(await content('copy')).toEqual(await content('source'))
    // Applied again, they find nothing.
    await apply(entry, events)
    expect(await content('copy')).toEqual(await content('source'))
  })

  it('sends one delete for each document whose key was changed, and for each that is gone when its update is applied', async () => {
    const entry = await pair(
      { k: 1 },
      [10, 20],
      Array.from({ length: 30 }, (_, _id) => ({ _id, k: _id })),
    )
    await using _ = asked
    const events = await changes(entry, async () => {
      for (let _id = 0; _id < 10; _id++) await on('source').updateOne({ _id, k: _id }, { $set: { k: _id + 15 } })
      for (let _id = 10; _id < 15; _id++) await on('source').updateOne({ _id, k: _id }, { $set: { x: 1 } })
      await on('source').deleteMany({ _id: { $gte: 10, $lt: 15 } })
    })
    await apply(entry, events)
    expect(await content('copy')).toEqual(await content('source'))
    expect(sum(await asked.statements('copy', 'remove'))).toBe(15)
    expect(sum(await asked.statements('copy', 'update'))).toBe(10)
  })

  it('deletes only the one of two documents with the same _id that its event names', async () => {
    const entry = await pair({ k: 1 }, [10, 20], [{ _id: 1, k: 1 }])
    await using _ = asked
    for (const name of ['source', 'copy']) await on(name).insertOne({ _id: 1, k: 25 })
    const events = await changes(entry, () => on('source').deleteOne({ _id: 1, k: 1 }))
    await apply(entry, events)
    expect(await content('copy')).toEqual(await content('source'))
    expect(await on('copy').countDocuments({ _id: 1 })).toBe(1)
  })

  it('deletes a document that the destination has under another key than its event, and one without the field', async () => {
    const entry = await pair({ k: 1 }, [10, 20], [{ _id: 1, k: 1 }, { _id: 2, k: 2 }, { _id: 3 }])
    await using _ = asked
    await on('copy').updateOne({ _id: 1, k: 1 }, { $set: { k: 25 } })
    const events = await changes(entry, () => on('source').deleteMany({}))
    await apply(entry, events)
    expect(await on('copy').find().toArray()).toEqual([])
  })

  it('keeps a document that moved after the source has refined a key that the destination still has', async () => {
    const entry = await pair(
      { k: 1 },
      [10, 20],
      [1, 2].map((_id) => ({ _id, k: 5, n: _id })),
    )
    await using _ = asked
    await on('source').createIndex({ k: 1, n: 1 })
    await client.db('admin').command({ refineCollectionShardKey: 'app.source', key: { k: 1, n: 1 } })
    await sharded.split('app.source', { k: 5, n: 50 })
    await sharded.moveChunk('app.source', { k: 5, n: 50 }, 1)
    const events = await changes(entry, async () => {
      await on('source').updateOne({ _id: 1, k: 5, n: 1 }, { $set: { n: 60 } })
      await on('source').deleteOne({ _id: 2, k: 5, n: 2 })
    })
    // The delete of the move last, as it may be emitted.
    const isDelete = ({ kind }: ChangeEvent): boolean => kind === 'delete'
    for (const event of [...events.filter((one) => !isDelete(one)), ...events.filter(isDelete)])
      await apply(entry, [event])
    expect(await content('copy')).toEqual(await content('source'))
  })

  it('deletes a document whose event is older than the refinement that the destination has followed', async () => {
    const entry = await pair(
      { k: 1 },
      [10, 20],
      [1, 2].map((_id) => ({ _id, k: 5, n: _id })),
    )
    await using _ = asked
    const events = await changes(entry, () => on('source').deleteOne({ _id: 1, k: 5 }))
    for (const name of ['source', 'copy']) {
      await on(name).createIndex({ k: 1, n: 1 })
      await client.db('admin').command({ refineCollectionShardKey: `app.${name}`, key: { k: 1, n: 1 } })
    }
    entry.shardKey = requestedShardKey([{ k: 1 }, { n: 1 }])
    await apply(entry, events)
    expect(await content('copy')).toEqual(await content('source'))
  })

  it('does not let one of two documents with the same _id replace the other', async () => {
    const entry = await pair({ k: 1 }, [10, 20], [{ _id: 1, k: 1 }])
    await using _ = asked
    for (const name of ['source', 'copy']) await on(name).insertOne({ _id: 1, k: 25 })
    const events = await changes(entry, () => on('source').updateOne({ _id: 1, k: 1 }, { $set: { x: 1 } }))
    await expect(apply(entry, events)).rejects.toMatchObject({ failure: 'DuplicateDocumentId' })
    expect(await on('copy').countDocuments({ _id: 1 })).toBe(2)
  })

  it('does not let a replaced document, which its event contains, replace another one with the same _id', async () => {
    const entry = await pair({ k: 1 }, [10, 20], [{ _id: 1, k: 1 }])
    await using _ = asked
    for (const name of ['source', 'copy']) await on(name).insertOne({ _id: 1, k: 25 })
    const events = await changes(entry, () => on('source').replaceOne({ _id: 1, k: 1 }, { k: 1, x: 1 }))
    await expect(apply(entry, events)).rejects.toMatchObject({ failure: 'DuplicateDocumentId' })
    expect(await on('copy').countDocuments({ _id: 1 })).toBe(2)
  })

  it.each([
    ['an update', { $set: { x: 1 } }],
    ['a replacement', null],
  ] as const)('locates the destination collection again when %s finds it under another name', async (_what, update) => {
    const entry = await pair({ k: 1 }, [10, 20], [{ _id: 1, k: 1 }])
    await using _ = asked
    const events = await changes(entry, () =>
      update
        ? on('source').updateOne({ _id: 1 }, update)
        : on('source').replaceOne({ _id: 1 }, { k: 1, x: 1 } as never),
    )
    await client.db('app').renameCollection('copy', 'renamed')
    const located: string[] = []
    await apply(entry, events, async ({ name }) => {
      located.push(name)
      return false
    })
    expect(located).toEqual(['copy'])
    expect(entry.sourceName).toBe('source')
  })

  it('compares updated documents by one read each, and finds every difference', async () => {
    const documents = Array.from({ length: 30 }, (_, _id) => ({ _id, k: _id }))
    const entry = await pair({ k: 1 }, [10, 20], documents)
    await using _ = asked
    const events = await changes(entry, () => on('source').updateMany({}, { $set: { x: 1 } }))
    await apply(entry, events)
    const idElements = events.map(({ idElement }) => idElement as Buffer)
    const keys = new Map(events.map((event) => [identityKey(event.idElement as Buffer), event.documentKey as Buffer]))
    const clusters = { source: cluster, destination: cluster }
    const differing = async () => {
      await appendOplogNote(cluster, 'test')
      const found = await findDifferent(clusters, entry, idElements, cluster.latest, keys)
      // An _id that the destination has twice is returned once or twice, depending on which shard answers first.
      return [...new Set(found.map((idElement) => idElement.readInt32LE(5)))].sort((one, other) => one - other)
    }
    asked.restart()
    expect(await differing()).toEqual([])
    expect(sum((await asked.read()).map(({ documents }) => documents))).toBe(30)
    await on('source').deleteOne({ _id: 1, k: 1 })
    await on('source').updateOne({ _id: 2, k: 2 }, { $set: { k: 25 } })
    await on('copy').updateOne({ _id: 3, k: 3 }, { $set: { x: 2 } })
    await on('copy').deleteOne({ _id: 4, k: 4 })
    await on('copy').insertOne({ _id: 5, k: 25 })
    await on('source').insertOne({ _id: 6, k: 25 })
    await on('copy').insertOne({ _id: 6, k: 25 })
    // The second document with the _id 6 is equal on both clusters, but a read by _id would not accept two of them.
    expect(await differing()).toEqual([1, 2, 3, 4, 5, 6])
  })

  it('finds documents whose chunks have moved since the chunks were read', async () => {
    const documents = Array.from({ length: 30 }, (_, _id) => ({ _id, k: _id }))
    const entry = await pair({ k: 1 }, [10, 20], documents)
    await using _ = asked
    await sharded.split('app.source', { k: 5 })
    await sharded.moveChunk('app.source', { k: 7 }, 2)
    const events = await changes(entry, () => on('source').updateMany({}, { $set: { x: 1 } }))
    await apply(entry, events)
    expect(await content('copy')).toEqual(await content('source'))
  })

  it('finds documents after the shard key was refined', async () => {
    const documents = Array.from({ length: 30 }, (_, _id) => ({ _id, k: _id, n: _id }))
    const entry = await pair({ k: 1 }, [10, 20], documents)
    await using _ = asked
    await on('source').createIndex({ k: 1, n: 1 })
    await client.db('admin').command({ refineCollectionShardKey: 'app.source', key: { k: 1, n: 1 } })
    const events = await changes(entry, () => on('source').updateMany({}, { $set: { x: 1 } }))
    await apply(entry, events)
    expect(await content('copy')).toEqual(await content('source'))
  })

  describe('while the catalog still has the key _id, which the source has refined', () => {
    async function refined(): Promise<CatalogEntry> {
      const entry = await pair(
        { _id: 1 },
        [10, 20],
        [3, 13].map((_id) => ({ _id, k: 80 })),
      )
      await on('source').createIndex({ _id: 1, k: 1 })
      await client.db('admin').command({ refineCollectionShardKey: 'app.source', key: { _id: 1, k: 1 } })
      // The document with the _id 3 is on another shard than one with this _id and a k below 50 would be.
      await sharded.split('app.source', { _id: 3, k: 50 })
      await sharded.split('app.source', { _id: 4, k: 0 })
      await sharded.moveChunk('app.source', { _id: 3, k: 80 }, 1)
      return entry
    }

    it('a document that moves between shards is kept, whichever of its events comes last', async () => {
      const entry = await refined()
      await using _ = asked
      const events = await changes(entry, async () => {
        await on('source').updateOne({ _id: 3, k: 80 }, { $set: { k: 10 } })
        await on('source').updateOne({ _id: 13, k: 80 }, { $set: { x: 1 } })
      })
      expect(events.map(({ kind, keyed }) => [kind, keyed]).sort()).toEqual([
        ['delete', true],
        ['insert', true],
        ['update', true],
      ])
      for (const ordered of [events, events.toReversed()]) {
        await on('copy').updateMany({}, { $set: { k: 80 }, $unset: { x: 1 } })
        for (const event of ordered) {
          await apply(entry, [event])
          expect(await on('copy').countDocuments()).toBe(2)
        }
        expect(await content('copy')).toEqual(await content('source'))
        await on('copy').updateMany({}, { $set: { k: 80 }, $unset: { x: 1 } })
        await apply(entry, ordered)
        expect(await content('copy')).toEqual(await content('source'))
      }
    })

    it.each<[string, (event: ChangeEvent) => boolean]>([
      ['inserted', ({ kind }) => kind === 'insert'],
      ['updated', ({ kind }) => kind === 'update'],
      ['replaced', ({ kind }) => kind === 'replace'],
      ['deleted', ({ kind }) => kind === 'delete'],
      ['changed in one batch', () => true],
    ])('of two documents with the same _id, one that is %s does not replace the other', async (_what, isGiven) => {
      const entry = await refined()
      await using _ = asked
      const events = await changes(entry, async () => {
        await on('source').insertOne({ _id: 3, k: 10 })
        await on('source').updateOne({ _id: 3, k: 10 }, { $set: { x: 1 } })
        await on('source').replaceOne({ _id: 3, k: 10 }, { k: 10, x: 2 })
        await on('source').deleteOne({ _id: 3, k: 10 })
        await on('source').insertOne({ _id: 3, k: 20 })
      })
      await expect(apply(entry, events.filter(isGiven))).rejects.toMatchObject({ failure: 'DuplicateDocumentId' })
      expect(await on('copy').find({ _id: 3 }).toArray()).toEqual([{ _id: 3, k: 80 }])
    })
  })
})
