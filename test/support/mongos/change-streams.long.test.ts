import { type ChangeStream, type ChangeStreamOptions, type Document, MongoClient, type Timestamp } from 'mongodb'
import { beforeAll, describe, expect, it } from 'vitest'
import { clusterOfFile, shardInTwo } from './cluster-of-file.ts'

const context = clusterOfFile()
const admin = () => context.client.db('admin')
const options = { showExpandedEvents: true, maxAwaitTimeMS: 500 } satisfies ChangeStreamOptions

function watch(more: ChangeStreamOptions = {}, pipeline: Document[] = []): ChangeStream<Document, Document> {
  return context.client.watch<Document, Document>(pipeline, { ...options, ...more })
}

/** Opens a stream that begins now. The driver opens a stream only on its first read. */
async function openStream(
  more: ChangeStreamOptions = {},
  pipeline: Document[] = [],
): Promise<ChangeStream<Document, Document>> {
  const stream = watch(more, pipeline)
  await stream.tryNext()
  return stream
}

async function read(stream: ChangeStream<Document, Document>, count: number): Promise<Document[]> {
  const events: Document[] = []
  const deadline = Date.now() + 20_000
  while (events.length < count && Date.now() < deadline) {
    const event = await stream.tryNext()
    if (event) events.push(event)
  }
  return events
}

const keys = (events: Document[]) => events.map(({ fullDocument }) => fullDocument?.k)

describe('the merged change stream', () => {
  const order = [10, 150, 20, 160, 30, 70, 5, 199]
  const things = () => context.client.db('streamed').collection('things')
  let start: Timestamp
  let events: Document[]

  beforeAll(async () => {
    await shardInTwo(context, 'streamed.things')
    start = (await admin().command({ ping: 1 }))['$clusterTime'].clusterTime
    await using stream = await openStream()
    for (const k of order) await things().insertOne({ k })
    events = await read(stream, order.length)
  })

  it('has the events of both shards in order', () => {
    expect(keys(events)).toEqual(order)
    const tokens = events.map(({ _id }) => _id._data)
    expect(tokens).toEqual([...tokens].sort())
  })

  it('begins at an operation time', async () => {
    await using stream = watch({ startAtOperationTime: start })
    expect(keys(await read(stream, order.length))).toEqual(order)
  })

  it('resumes after an event', async () => {
    await using resumed = watch({ resumeAfter: events[3]?.['_id'] })
    expect(keys(await read(resumed, 4))).toEqual(order.slice(4))
    await using started = watch({ startAfter: events[6]?.['_id'] })
    expect(keys(await read(started, 1))).toEqual([199])
  })

  it('resumes after a resume token without an event', async () => {
    await using stream = await openStream()
    const position = stream.resumeToken
    await stream.close()
    await things().insertOne({ k: 300 })
    await things().insertOne({ k: 3 })
    await using resumed = watch({ resumeAfter: position })
    expect(keys(await read(resumed, 2))).toEqual([300, 3])
  })

  it('advances its resume token while the cluster is idle', async () => {
    await using stream = await openStream()
    const first = stream.resumeToken as { _data: string }
    await expect
      .poll(async () => {
        await stream.tryNext()
        return (stream.resumeToken as { _data: string })._data > first._data
      })
      .toBe(true)
  })

  it('has events for updates, deletes and transactions', async () => {
    await using stream = await openStream({ fullDocument: 'updateLookup' })
    await things().updateOne({ k: 10 }, { $set: { z: 1 } })
    await things().deleteOne({ k: 160 })
    await context.client.withSession((session) =>
      session.withTransaction(async () => {
        await things().insertMany([{ k: 11 }, { k: 161 }], { session })
      }),
    )
    const [update, deletion, one, other] = await read(stream, 4)
    expect(update).toMatchObject({ operationType: 'update', fullDocument: { z: 1 } })
    expect(deletion).toMatchObject({ operationType: 'delete', documentKey: { k: 160 } })
    expect(one?.['txnNumber']).toEqual(other?.['txnNumber'])
    expect(keys([one, other] as Document[]).sort()).toEqual([11, 161])
  })

  it('has events for DDL but not for moved chunks', async () => {
    await using stream = await openStream()
    const defined = context.client.db('streameddefinitions')
    await defined.createCollection('one')
    await defined.collection('one').createIndex({ x: 1 })
    await defined.collection('one').rename('two')
    await admin().command({ shardCollection: 'streameddefinitions.cut', key: { k: 1 } })
    await context.cluster.moveChunk('streamed.things', { k: 10 }, 1)
    await defined.collection('two').drop()
    await things().insertOne({ k: 12 })
    const seen: string[] = []
    while (seen.at(-1) !== 'insert') seen.push(...(await read(stream, 1)).map(({ operationType }) => operationType))
    expect(seen.filter((type) => type !== 'createIndexes' && type !== 'modify')).toEqual([
      ...['create', 'rename', 'create', 'shardCollection', 'drop', 'insert'],
    ])
  })

  it('can be partitioned by hashed keys', async () => {
    const collection = context.client.db('streamed').collection('parts')
    await admin().command({ shardCollection: 'streamed.parts', key: { _id: 'hashed' } })
    const partitionPipeline = (index: number) => [
      { $match: { $or: [{ documentKey: { $exists: false } }, { $expr: { $eq: [{ $abs: partitionOfKey }, index] } }] } },
    ]
    const partitionOfKey = { $mod: [{ $toHashedIndexKey: '$documentKey._id' }, 2] }
    await using even = await openStream({}, partitionPipeline(0))
    await using odd = await openStream({}, partitionPipeline(1))
    await collection.insertMany(Array.from({ length: 300 }, (_, index) => ({ _id: index as never, k: index })))
    const counts = await Promise.all([countInserts(even), countInserts(odd)])
    expect(counts.reduce((sum, count) => sum + count)).toBe(300)
    expect(Math.min(...counts)).toBeGreaterThan(50)
  })

  /** Counts inserts until no event arrives in three consecutive reads. */
  async function countInserts(stream: ChangeStream<Document, Document>): Promise<number> {
    let count = 0
    for (let silent = 0; silent < 3; ) {
      const event = await stream.tryNext()
      if (event?.['operationType'] === 'insert') count++
      silent = event ? 0 : silent + 1
    }
    return count
  }

  it('delivers large events', async () => {
    await using stream = await openStream()
    const text = 'x'.repeat(7 * 1024 * 1024)
    const documents = [13, 250, 14, 251].map((k) => ({ k, text }))
    for (const document of documents) await things().insertOne(document)
    const large = await read(stream, 4)
    expect(keys(large)).toEqual([13, 250, 14, 251])
    expect(large.every(({ fullDocument }) => fullDocument.text.length === text.length)).toBe(true)
  })

  it('ends when its cursor is killed', async () => {
    const stream = { aggregate: 1, pipeline: [{ $changeStream: { allChangesForCluster: true } }], cursor: {} }
    const { cursor } = await admin().command(stream)
    await admin().command({ killCursors: '$cmd.aggregate', cursors: [cursor.id] })
    const getMore = admin().command({ getMore: cursor.id, collection: '$cmd.aggregate' })
    await expect(getMore).rejects.toMatchObject({ code: 43 })
  })

  it('delivers more than ten thousand events per second', async () => {
    await shardInTwo(context, 'streamed.many')
    const count = 40_000
    const from = (await admin().command({ ping: 1 }))['$clusterTime'].clusterTime
    const documents = Array.from({ length: count }, (_, index) => ({ k: index % 200, text: 'x'.repeat(100) }))
    await context.client.db('streamed').collection('many').insertMany(documents, { ordered: false })
    await using raw = new MongoClient(context.cluster.uri, { raw: true })
    const changes = { $changeStream: { allChangesForCluster: true, startAtOperationTime: from } }
    const started = performance.now()
    let seen = 0
    const cursor = raw
      .db('admin')
      .aggregate([changes, { $match: { 'ns.coll': 'many' } }], { maxTimeMS: 500, batchSize: 10_000 })
    while (seen < count) {
      await cursor.hasNext()
      seen += cursor.readBufferedDocuments().length
    }
    const seconds = (performance.now() - started) / 1000
    await cursor.close()
    expect(count / seconds).toBeGreaterThan(10_000)
  })

  it('delivers the events of a busy shard while the other is idle', async () => {
    const count = 30_000
    const start = { aggregate: 1, pipeline: [{ $changeStream: { allChangesForCluster: true } }], cursor: {} }
    const { cursor } = await admin().command(start)
    const busy = context.client.db('streamed').collection('busy')
    const write = async () => {
      for (let written = 0; written < count; written += 1_000) {
        await busy.insertMany(Array.from({ length: 1_000 }, () => ({ text: 'x'.repeat(100) })))
      }
    }
    const follow = async () => {
      let seen = 0
      while (seen < count) {
        const getMore = { getMore: cursor.id, collection: '$cmd.aggregate', maxTimeMS: 500 }
        seen += (await admin().command(getMore))['cursor'].nextBatch.length
      }
      return seen
    }
    const [seen] = await Promise.all([follow(), write()])
    expect(seen).toBe(count)
  })
})
