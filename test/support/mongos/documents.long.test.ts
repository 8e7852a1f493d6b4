import { createRequire } from 'node:module'
import { BSON, type Document, Long, MongoClient, type MongoServerError, ObjectId } from 'mongodb'
import { beforeAll, describe, expect, it } from 'vitest'
import { clusterOfFile, countsByShard, shardInTwo } from './cluster-of-file.ts'

/** Documents as bytes in a separate section of the message, as the product sends them. */
const { DocumentSequence } = createRequire(import.meta.url)('mongodb/lib/cmap/commands.js') as {
  DocumentSequence: new (field: string) => { push(document: Document, bytes: Uint8Array): number }
}

type Numbered = { _id: number; k?: number; v?: number; tags?: string[]; [name: string]: unknown }

const context = clusterOfFile()
const admin = () => context.client.db('admin')
const numbered = (count: number): Numbered[] => Array.from({ length: count }, (_, index) => ({ _id: index, k: index }))

describe('handshake', () => {
  it('returns the hello of a mongos', async () => {
    const hello = await admin().command({ hello: 1 })
    expect(hello).toMatchObject({ msg: 'isdbgrid', isWritablePrimary: true })
    expect(hello).not.toHaveProperty('setName')
    expect(await admin().command({ isdbgrid: 1 })).toMatchObject({ isdbgrid: 1 })
  })

  it('rejects commands that only a mongod supports', async () => {
    await expect(admin().command({ replSetGetStatus: 1 })).rejects.toMatchObject({ code: 59 })
  })

  it('returns information about itself and the cluster', async () => {
    expect((await admin().command({ serverStatus: 1 }))['process']).toBe('mongos')
    expect((await admin().command({ listShards: 1 }))['shards']).toHaveLength(2)
    expect((await admin().command({ buildInfo: 1 }))['version']).toMatch(/^\d+\.\d+/)
    const parameter = await admin().command({ getParameter: 1, featureCompatibilityVersion: 1 })
    expect(parameter['featureCompatibilityVersion']).toMatchObject({ version: '6.0' })
    const status = await admin().command({ connectionStatus: 1, showPrivileges: true })
    expect(status['authInfo']).toMatchObject({ authenticatedUsers: [], authenticatedUserPrivileges: [] })
  })

  it('returns cluster times', async () => {
    const reply = await admin().command({ ping: 1 })
    expect(reply['operationTime']).toEqual(reply['$clusterTime'].clusterTime)
  })

  it('writes an oplog no-op on every shard', async () => {
    const note = { appendOplogNote: 1, data: { text: 'noted' }, writeConcern: { w: 'majority' } }
    const reply = await admin().command(note)
    expect(Object.keys(reply['raw'])).toEqual(context.cluster.shards.map(({ name }) => name))
    for (const shard of context.shardClients) {
      const oplog = shard.db('local').collection('oplog.rs')
      expect(await oplog.countDocuments({ op: 'n', 'o.text': 'noted' })).toBe(1)
    }
  })
})

describe('unsharded collections', () => {
  const things = () => context.client.db('plain').collection<Numbered>('things')
  beforeAll(async () => {
    const documents = numbered(500).map((document) => ({
      ...document,
      v: document._id % 5,
      tags: [`a${document._id % 3}`, 'b'],
    }))
    await things().insertMany(documents, { writeConcern: { w: 'majority' } })
  })

  it('are counted and listed', async () => {
    expect(await things().estimatedDocumentCount()).toBe(500)
    expect(await things().countDocuments({ v: 1 })).toBe(100)
    expect(await context.client.db('plain').command({ count: 'things', query: { v: 1 }, limit: 7 })).toMatchObject({
      n: 7,
    })
    expect(await context.client.db('plain').collection('missing').estimatedDocumentCount()).toBe(0)
    expect(await things().distinct('tags', { v: { $lt: 3 } })).toEqual(['a0', 'a1', 'a2', 'b'])
    expect((await admin().admin().listDatabases()).databases.map(({ name }) => name)).toContain('plain')
    expect(await context.client.db('plain').listCollections().toArray()).toMatchObject([{ name: 'things' }])
    expect(await context.client.db('nowhere').listCollections().toArray()).toEqual([])
    expect(await things().indexes()).toMatchObject([{ name: '_id_' }])
  })

  it('are read in batches', async () => {
    const read = await things()
      .find({}, { sort: { _id: -1 }, limit: 300, batchSize: 37 })
      .toArray()
    expect(read.map(({ _id }) => _id)).toEqual(Array.from({ length: 300 }, (_, index) => 499 - index))
  })

  it('reject a getMore on a killed cursor', async () => {
    const cursor = things().find({}, { batchSize: 5 })
    await cursor.next()
    const id = cursor.id
    await cursor.close()
    const getMore = { getMore: id, collection: 'things', batchSize: 2 }
    await expect(context.client.db('plain').command(getMore)).rejects.toMatchObject({ code: 43 })
  })

  it('accept writes and return the errors of a server', async () => {
    expect(await things().updateOne({ _id: 1 }, { $set: { x: 1 } })).toMatchObject({ modifiedCount: 1 })
    expect(await things().updateMany({ v: 2 }, { $set: { y: 1 } })).toMatchObject({ modifiedCount: 100 })
    expect(await things().replaceOne({ _id: 1000 }, { z: 1 }, { upsert: true })).toMatchObject({ upsertedCount: 1 })
    expect(await things().deleteMany({ v: 4, _id: { $lt: 50 } })).toMatchObject({ deletedCount: 10 })
    expect(await things().findOneAndUpdate({ _id: 5 }, { $set: { f: 1 } }, { returnDocument: 'after' })).toMatchObject({
      f: 1,
    })
    await expect(things().insertOne({ _id: 1 })).rejects.toMatchObject({ code: 11000 })
    const unordered = things().bulkWrite(
      [2000, 2000, 2003].map((_id) => ({ insertOne: { document: { _id } } })),
      { ordered: false },
    )
    await expect(unordered).rejects.toMatchObject({ code: 11000, result: { insertedCount: 2 } })
  })

  it('execute a retried write once', async () => {
    // The test uses a separate client, because it gives its session a transaction number that other sessions have not
    // reached.
    await using client = new MongoClient(context.cluster.uri)
    await using session = client.startSession()
    await things().insertOne({ _id: 3000, n: 0 })
    const update = { update: 'things', updates: [{ q: { _id: 3000 }, u: { $inc: { n: 1 } } }] }
    const numbered = { ...update, txnNumber: Long.fromNumber(77) }
    await client.db('plain').command(numbered, { session })
    await client.db('plain').command(numbered, { session })
    expect(await things().findOne({ _id: 3000 })).toMatchObject({ n: 1 })
  })

  it('return the writes of the same session', async () => {
    const session = context.client.startSession({ causalConsistency: true })
    await things().insertOne({ _id: 4000 }, { session, writeConcern: { w: 'majority' } })
    expect(await things().countDocuments({ _id: 4000 }, { session, readConcern: { level: 'majority' } })).toBe(1)
    await session.endSession()
  })

  it('support tailable cursors on capped collections', async () => {
    const database = context.client.db('plain')
    const capped = await database.createCollection<Numbered>('capped', { capped: true, size: 9_999 })
    await capped.insertOne({ _id: 1 })
    const cursor = capped.find({}, { tailable: true, awaitData: true, maxAwaitTimeMS: 300 })
    expect(await cursor.next()).toEqual({ _id: 1 })
    setTimeout(() => void capped.insertOne({ _id: 2 }), 100)
    expect(await cursor.next()).toEqual({ _id: 2 })
    await cursor.close()
  })
})

describe('sharded collections', () => {
  const documents = () => context.client.db('cut').collection<Numbered>('documents')
  beforeAll(async () => {
    await shardInTwo(context, 'cut.documents')
    await documents().insertMany(numbered(200).map((document) => ({ ...document, v: document._id })))
  })

  it('are distributed over both shards', async () => {
    expect(await countsByShard(context, 'cut.documents')).toEqual([100, 100])
    expect(await documents().estimatedDocumentCount()).toBe(200)
  })

  it('return sorted batches from both shards', async () => {
    const read = await documents()
      .find({}, { sort: { v: -1 }, batchSize: 13 })
      .toArray()
    expect(read.map(({ v }) => v)).toEqual(Array.from({ length: 200 }, (_, index) => 199 - index))
  })

  it('are read by ranges of _id, as raw bytes and by UUID', async () => {
    const range = { min: { _id: 50 }, max: { _id: 150 }, hint: { _id: 1 }, sort: { _id: 1 }, batchSize: 7 } as const
    const cursor = documents().find(
      {},
      { ...range, raw: true, readConcern: 'majority', maxTimeMS: 10_000, comment: 'range' },
    )
    const ids: number[] = []
    while (await cursor.hasNext()) {
      for (const bytes of cursor.readBufferedDocuments())
        ids.push(BSON.deserialize(bytes as unknown as Uint8Array)['_id'])
    }
    expect(ids).toEqual(Array.from({ length: 100 }, (_, index) => index + 50))

    const [{ info }] = (await context.client
      .db('cut')
      .listCollections({ name: 'documents' })
      .toArray()) as Document[] as [Document]
    const find = { filter: { _id: { $in: [1, 150] } }, collectionUUID: info.uuid }
    expect((await context.client.db('cut').command({ find: 'documents', ...find }))['cursor'].firstBatch).toHaveLength(
      2,
    )
    await context.client.db('cut').createCollection('other')
    const mismatch = context.client.db('cut').command({ find: 'other', ...find })
    await expect(mismatch).rejects.toMatchObject({ code: 361 })
  })

  it('support aggregations', async () => {
    const aggregate = (...pipeline: Document[]) => documents().aggregate(pipeline).toArray()
    expect(await aggregate({ $match: { k: { $gte: 40 } } }, { $group: { _id: null, n: { $sum: 1 } } })).toEqual([
      { _id: null, n: 160 },
    ])
    expect(await aggregate({ $sample: { size: 9 } })).toHaveLength(9)
    const names = context.cluster.shards.map(({ name }) => name)
    expect((await aggregate({ $collStats: { count: {}, storageStats: {} } })).map(({ shard }) => shard).sort()).toEqual(
      names,
    )
    const statistics = await aggregate({ $indexStats: {} })
    expect([...new Set(statistics.map(({ shard }) => shard))].sort()).toEqual(names)
    expect(await context.client.db('cut').command({ collStats: 'documents' })).toMatchObject({
      sharded: true,
      count: 200,
    })
    expect((await context.client.db('cut').command({ dbStats: 1 }))['objects']).toBeGreaterThanOrEqual(200)
    await aggregate({ $match: { k: { $lt: 10 } } }, { $merge: { into: 'merged' } })
    expect(await context.client.db('cut').collection('merged').countDocuments()).toBe(10)
  })

  it('accept writes on both shards', async () => {
    expect(await documents().updateMany({}, { $set: { m: 1 } })).toMatchObject({ modifiedCount: 200 })
    const one = await documents().findOneAndUpdate({ k: 120 }, { $set: { f: 1 } }, { returnDocument: 'after' })
    expect(one).toMatchObject({ f: 1 })
    await expect(documents().findOneAndUpdate({ f: 1 }, { $set: { f: 2 } })).rejects.toMatchObject({ code: 61 })
  })

  it('accept a new shard key value that belongs to another shard', async () => {
    await documents().insertOne({ _id: 5000, k: 1 })
    await documents().updateOne({ _id: 5000, k: 1 }, { $set: { k: 5000 } })
    expect(await context.shardClients[1]?.db('cut').collection<Numbered>('documents').findOne({ _id: 5000 })).toEqual({
      _id: 5000,
      k: 5000,
    })
    await documents().deleteOne({ _id: 5000, k: 5000 })
  })
})

describe('sequences of raw documents', () => {
  const raw = () => context.client.db('raw')
  beforeAll(() => shardInTwo(context, 'raw.documents'))

  const sequence = (name: string, documents: Document[]) => {
    const result = new DocumentSequence(name)
    for (const document of documents) result.push({}, BSON.serialize(document))
    return result
  }

  it('are inserted, updated and deleted', async () => {
    const [{ info }] = (await raw().listCollections({ name: 'documents' }).toArray()) as Document[] as [Document]
    const common = { ordered: false, collectionUUID: info.uuid, writeConcern: { w: 'majority' }, maxTimeMS: 20_000 }
    const inserted = await raw().command({
      insert: 'documents',
      documents: sequence('documents', numbered(200)),
      bypassDocumentValidation: true,
      comment: 'raw',
      ...common,
    })
    expect(inserted).toMatchObject({ n: 200 })
    const replace = (_id: number) => ({ q: { _id, k: _id }, u: { _id, k: _id, v: 1 }, upsert: true })
    const updates = Array.from({ length: 200 }, (_, index) => replace(index * 2))
    const updated = await raw().command({ update: 'documents', updates: sequence('updates', updates), ...common })
    expect(updated).toMatchObject({ n: 200, nModified: 100 })
    const deletes = numbered(10).map(({ _id }) => ({ q: { _id }, limit: 0 }))
    const deleted = await raw().command({ delete: 'documents', deletes: sequence('deletes', deletes), ...common })
    expect(deleted).toMatchObject({ n: 10 })
  })

  it('report errors by position', async () => {
    const documents = sequence('documents', [
      { _id: 10_000, k: 1 },
      { _id: 10_000, k: 1 },
      { _id: 10_001, k: 2 },
    ])
    const reply = await raw().command({ insert: 'documents', documents, ordered: false })
    expect(reply).toMatchObject({ n: 2, writeErrors: [{ index: 1, code: 11000 }] })
  })

  it('reject the UUID of another collection', async () => {
    await raw().createCollection('other')
    const [{ info }] = (await raw().listCollections({ name: 'other' }).toArray()) as Document[] as [Document]
    const documents = sequence('documents', [{ _id: new ObjectId(), k: 1 }])
    const insert = raw().command({ insert: 'documents', documents, collectionUUID: info.uuid })
    const failure = await insert.then(
      (reply) => reply['writeErrors'][0],
      (error: MongoServerError) => error,
    )
    expect(failure).toMatchObject({ code: 361 })
  })
})
