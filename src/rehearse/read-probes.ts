import { setTimeout as sleep } from 'node:timers/promises'
import type { ChangeStream, ChangeStreamDocument, Document, MongoClient, ObjectId } from 'mongodb'
import { expectAnswer, type Probe, ProbeFailure, type ProbePlace } from './probe.ts'
import { errorOf } from './write-probes.ts'

/** Maximum time (ms) that a change stream may take to report a write. */
const eventsWithinMS = 30_000

/** The largest document that a client may insert. */
const documentBytesMax = 16 * 1024 * 1024

/** Keeps the fields that a sync reads, and leaves a large document out, as the change streams of a sync do. */
const withoutLargeDocuments = {
  $project: {
    ...{ operationType: 1, clusterTime: 1, ns: 1, documentKey: 1 },
    fullDocument: { $cond: [{ $lte: [{ $bsonSize: '$fullDocument' }, 256 * 1024] }, '$fullDocument', '$$REMOVE'] },
  },
}

/** Probes of server behavior on which tandem relies when it reads the source. */
export const readProbes: readonly Probe[] = [
  {
    name: 'events of documents',
    side: 'source',
    reason: 'event application takes the identity of a changed document from its event',
    run: async (place) => {
      const documents = place.db.collection<{ _id: number; v?: number }>('documents')
      const events = await eventsOf(place, async () => {
        await documents.insertOne({ _id: 1 })
        await documents.updateOne({ _id: 1 }, { $set: { v: 1 } })
        await documents.replaceOne({ _id: 1 }, { v: 2 })
        await documents.deleteOne({ _id: 1 })
      })
      const seen = events.filter(({ ns }) => ns?.coll === 'documents')
      const kinds = ['insert', 'update', 'replace', 'delete']
      for (const kind of kinds) {
        const event = seen.find(({ operationType }) => operationType === kind)
        const isWhole =
          event?.['documentKey']?._id === 1 && event['clusterTime'] !== undefined && event['_id'] !== undefined
        expectAnswer(isWhole, `an event ${kind} with documentKey, clusterTime and a resume token`, event ?? seen)
        if (place.major >= 6) expectAnswer(event['collectionUUID'] !== undefined, 'a collectionUUID', event)
      }
      return kinds.join(', ')
    },
  },
  {
    name: 'events of definitions',
    side: 'source',
    reason: 'tandem learns of a changed definition from its event; without an event it finds the change only later',
    since: 6,
    run: async (place) => {
      const { db } = place
      const events = await eventsOf(place, async () => {
        const collection = await db.createCollection('defined')
        await collection.createIndex({ a: 1 })
        await db.command({ collMod: 'defined', validationLevel: 'moderate' })
        await collection.dropIndex('a_1')
        await collection.rename('renamed')
        await db.collection('renamed').drop()
      })
      const kinds = ['create', 'createIndexes', 'modify', 'dropIndexes', 'rename', 'drop']
      const seen = events.map(({ operationType }) => operationType)
      const missing = kinds.filter((kind) => !seen.includes(kind))
      expectAnswer(missing.length === 0, `events ${missing.join(', ')}`, seen)
      for (const event of events.filter(({ operationType }) => kinds.includes(operationType))) {
        const { ns, to, collectionUUID, clusterTime } = event
        const isWhole = ns?.db === db.databaseName && ns.coll && collectionUUID && clusterTime
        expectAnswer(isWhole, 'ns, collectionUUID and clusterTime', event)
        expectAnswer(event['operationType'] !== 'rename' || to?.coll === 'renamed', 'the new name in `to`', event)
      }
      return kinds.join(', ')
    },
  },
  {
    name: 'events of a document of 16 MB',
    side: 'source',
    reason: 'events leave large documents out, so that no event exceeds the limit of the server',
    run: async (place) => {
      const large = place.db.collection<{ _id: number; text?: string; v?: number }>('large_document')
      const events = await eventsOf(place, async () => {
        await large.insertOne({ _id: 1, text: 'x'.repeat(documentBytesMax - 100) })
        await large.updateOne({ _id: 1 }, { $set: { v: 1 } })
        await large.deleteOne({ _id: 1 })
      }, [withoutLargeDocuments])
      const seen = events.filter(({ ns, documentKey }) => ns?.coll === 'large_document' && documentKey)
      const kinds = seen.map(({ operationType }) => operationType)
      expectAnswer(kinds.join() === 'insert,update,delete', 'the events insert, update and delete', kinds)
      const isSmall = seen.every(({ documentKey, fullDocument }) => documentKey._id === 1 && !fullDocument)
      expectAnswer(isSmall, 'the _id and no document', seen.map(Object.keys))
      return 'insert, update, delete without the document'
    },
  },
  {
    name: 'events of a transaction',
    side: 'source',
    reason: 'all changes of a transaction have one cluster time, so the commit timestamp never divides a transaction',
    run: async (place) => {
      const collection = await place.db.createCollection<{ _id: number }>('transaction')
      const events = await eventsOf(place, () =>
        place.client.withSession((session) =>
          session.withTransaction(async () => {
            await collection.insertOne({ _id: 1 }, { session })
            await collection.insertOne({ _id: 2 }, { session })
          }),
        ),
      )
      const times = events
        .filter(({ ns, operationType }) => ns?.coll === 'transaction' && operationType === 'insert')
        .map(({ clusterTime }) => String(clusterTime))
      expectAnswer(times.length === 2 && times[0] === times[1], 'two events of one cluster time', times)
      return 'two events of one cluster time'
    },
  },
  {
    name: 'a read after a cluster time',
    side: 'source',
    reason: 'a document is read as of the time of its change or later, even through another node',
    run: async ({ db }) => {
      const { operationTime } = await db.command({ insert: 'after_time', documents: [{ _id: 1 }] })
      const reply = await db.command({
        find: 'after_time',
        readConcern: { level: 'majority', afterClusterTime: operationTime },
      })
      expectAnswer(reply['cursor'].firstBatch.length === 1, 'the inserted document', reply['cursor'])
      return 'the inserted document'
    },
  },
  {
    name: 'a read names the collection by UUID',
    side: 'source',
    reason: 'tandem recognizes a collection that was renamed meanwhile, and learns its present name',
    since: 6,
    run: async ({ db }) => {
      await db.createCollection('one')
      await db.createCollection('other')
      const [listed] = (await db.listCollections({ name: 'one' }).toArray()) as Document[]
      const answer = await errorOf(() => db.command({ find: 'other', collectionUUID: listed?.['info'].uuid }))
      const isNamed = answer.codeName === 'CollectionUUIDMismatch' && answer['actualCollection'] === 'one'
      expectAnswer(isNamed, 'CollectionUUIDMismatch with actualCollection "one"', answer)
      return answer.codeName
    },
  },
  {
    name: 'a hash of the _id',
    side: 'source',
    reason: 'several instances divide the changes of a collection by $toHashedIndexKey',
    run: async ({ db }) => {
      await db.collection<{ _id: string }>('hash').insertOne({ _id: 'x' })
      const [row] = await db
        .collection('hash')
        .aggregate([{ $project: { h: { $toHashedIndexKey: '$_id' } } }])
        .toArray()
      expectAnswer(row?.['h'] !== undefined && row['h'] !== null, 'a number', row)
      return String(row['h'])
    },
  },
]

/**
 * Runs `write` and returns the events that it causes in the probes' database. The change stream starts by time and, on
 * servers from 6.0 on, requests expanded events, as the streams of a sync do.
 */
async function eventsOf(
  { client, db, major }: ProbePlace,
  write: () => Promise<unknown>,
  stages: Document[] = [],
): Promise<Document[]> {
  const startAtOperationTime = await clusterTime(client)
  await write()
  const { insertedId } = await db.collection('sentinel').insertOne({})
  const options = { startAtOperationTime, maxAwaitTimeMS: 500, ...(major >= 6 && { showExpandedEvents: true }) }
  return await collectUntil(insertedId, db.watch(stages, options))
}

async function clusterTime(client: MongoClient): Promise<NonNullable<Document['operationTime']>> {
  return (await client.db('admin').command({ ping: 1 }))['operationTime']
}

async function collectUntil(sentinel: ObjectId, stream: ChangeStream): Promise<Document[]> {
  const events: ChangeStreamDocument[] = []
  // The stages may have left out a large document.
  const isSentinel = ({ fullDocument }: { fullDocument?: Document }): boolean =>
    fullDocument !== undefined && sentinel.equals(fullDocument['_id'])
  const deadline = performance.now() + eventsWithinMS
  try {
    while (performance.now() < deadline) {
      const event = await stream.tryNext()
      if (event === null) await sleep(10)
      else if (event.operationType === 'insert' && isSentinel(event)) return events
      else events.push(event)
    }
  } finally {
    await stream.close()
  }
  throw new ProbeFailure(`the change stream did not report a write within ${eventsWithinMS / 1_000} s`)
}
