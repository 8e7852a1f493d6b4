import { BSON, type Collection, type Document, Timestamp } from 'mongodb'
import { rawSequence } from '../mongo/raw-values.ts'
import { expectAnswer, type Probe } from './probe.ts'

const uuidMismatch = { code: 361, name: 'CollectionUUIDMismatch' }

/** Probes of server behavior on which tandem relies when it writes documents to the destination. */
export const writeProbes: readonly Probe[] = [
  {
    name: 'documents are stored as they are',
    side: 'destination',
    reason: 'documents travel as bytes; a server that changes them on insert makes the clusters differ',
    run: async ({ db }) => {
      const collection = db.collection('bytes')
      // Two fields have the same name, names contain dollar signs and dots, and JavaScript would not keep the order.
      const document = joined([{ _id: 1 }, { a: 1 }, { a: 2 }, { $set: 1 }, { 'a.b': 1 }, { 2: 1 }, { 1: 1 }])
      await insert(collection, document)
      const stored = await bytesOf(collection, 1)
      expectAnswer(stored.equals(document), `the bytes ${document.toString('hex')}`, stored.toString('hex'))
      return `${stored.length} bytes, unchanged`
    },
  },
  {
    name: 'an empty timestamp is kept',
    side: 'destination',
    reason: 'without bypassEmptyTsReplacement the server replaces a top-level Timestamp(0, 0) by its own time',
    run: async ({ db }) => {
      const collection = db.collection('empty_timestamp')
      await insert(collection, Buffer.from(BSON.serialize({ _id: 1, at: new Timestamp({ t: 0, i: 0 }) })))
      const stored = await collection.findOne({ _id: 1 as never })
      const at: Timestamp | undefined = stored?.['at']
      expectAnswer(at?.t === 0 && at.i === 0, 'Timestamp(0, 0)', stored)
      return 'Timestamp(0, 0)'
    },
  },
  {
    name: 'a write names the collection by UUID',
    side: 'destination',
    reason: 'a delayed write must not reach another collection that has taken the name',
    since: 6,
    run: async ({ db }) => {
      await db.createCollection('by_uuid')
      const answer = await errorOf(() =>
        db.command({ insert: 'by_uuid', documents: [{ _id: 1 }], collectionUUID: new BSON.UUID() }),
      )
      // An insert reports the error as one of its write errors, which have no codeName.
      const { reply } = answer as { reply?: Document }
      const isRefused = answer.codeName === uuidMismatch.name || reply?.['writeErrors']?.[0]?.code === uuidMismatch.code
      expectAnswer(isRefused, uuidMismatch.name, answer)
      return uuidMismatch.name
    },
  },
  {
    name: 'an update can depend on the server’s own clock',
    side: 'destination',
    reason: 'leases of instances begin and expire by the clock of the destination',
    run: async ({ db }) => {
      const lease = db.collection('lease')
      await lease.insertOne({ name: 'one', until: new Date(0) })
      const taken = await lease.findOneAndUpdate(
        { $expr: { $lt: ['$until', '$$NOW'] } },
        [{ $set: { holder: { $literal: '$x' }, until: { $add: ['$$NOW', 60_000] } } }],
        { returnDocument: 'after', writeConcern: { w: 'majority' } },
      )
      expectAnswer(taken?.['holder'] === '$x', 'the changed document', taken)
      const again = await lease.updateOne({ $expr: { $lt: ['$until', '$$NOW'] } }, [{ $set: { holder: 'y' } }])
      expectAnswer(again.matchedCount === 0, 'no second holder', again)
      return 'one holder'
    },
  },
]

async function insert(collection: Collection, document: Buffer): Promise<void> {
  const reply = await collection.db.command({
    insert: collection.collectionName,
    documents: rawSequence('documents', [document]),
    bypassDocumentValidation: true,
    bypassEmptyTsReplacement: true,
  } as Document)
  expectAnswer(reply['n'] === 1, 'one inserted document', reply)
}

async function bytesOf(collection: Collection, id: number): Promise<Buffer> {
  const [stored] = await collection.find({ _id: id as never }, { raw: true }).toArray()
  return Buffer.from(stored as unknown as Buffer)
}

/** Returns one document with the fields of all these documents, in this order. */
function joined(documents: readonly Document[]): Buffer {
  const fields = documents.map((one) => Buffer.from(BSON.serialize(one)).subarray(4, -1))
  const document = Buffer.concat([Buffer.alloc(4), ...fields, Buffer.from([0])])
  document.writeInt32LE(document.length)
  return document
}

export async function errorOf(run: () => Promise<unknown>): Promise<{ codeName: string; [field: string]: unknown }> {
  try {
    return { codeName: 'no error', reply: await run() }
  } catch (error) {
    const { codeName, errorResponse } = error as { codeName?: string; errorResponse?: Document }
    if (codeName === undefined) throw error
    return { codeName, ...errorResponse }
  }
}
