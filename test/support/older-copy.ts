import { type Document, MongoClient, type MongoServerError } from 'mongodb'
import { idElementOf } from '../../src/documents/identity.ts'
import { rawSequence } from '../../src/mongo/raw-values.ts'
import type { Pair } from '../faults/clusters.ts'
import type { InstanceFault } from '../faults/several-instances.ts'
import { databaseNames, internalDatabases } from './databases.ts'
import { Random } from './random.ts'

/** Maximum bytes of documents per insert command. */
const insertBytes = 4_000_000

/** Returns the same fault for a sync that converges a destination that `seedOlderCopy` has filled. */
export function converging(fault: InstanceFault): InstanceFault {
  return {
    ...fault,
    name: `${fault.name}, converging`,
    start: { ...fault.start, existingData: 'converge' },
    seedDestination: seedOlderCopy,
  }
}

/**
 * Fills the destination with a copy of the source in which about a tenth of the documents are missing, different or
 * extra, and some collections, options and indexes differ. The same seed makes the same changes.
 */
export async function seedOlderCopy({ source, destination }: Pair, seed: number): Promise<void> {
  const random = new Random(`older copy ${seed}`)
  await using from = await MongoClient.connect(source.uri)
  await using to = await MongoClient.connect(destination.uri)
  for (const database of await databaseNames(from, internalDatabases)) {
    const listed = await from.db(database).listCollections().toArray()
    for (const { name, type, options } of listed as { name: string; type?: string; options?: Document }[]) {
      if (type !== 'collection' || name.startsWith('system.') || random.chance(0.1)) continue
      await copyOne(from.db(database).collection(name), to.db(database), name, options ?? {}, random)
    }
    const extra = to.db(database).collection(`extra${seed}`)
    await extra.insertMany(Array.from({ length: 20 }, (_, at) => ({ at })))
    await to.db(database).createCollection(`extraView${seed}`, { viewOn: extra.collectionName, pipeline: [] })
  }
}

async function copyOne(
  from: ReturnType<ReturnType<MongoClient['db']>['collection']>,
  to: ReturnType<MongoClient['db']>,
  name: string,
  options: Document,
  random: Random,
): Promise<void> {
  await to.command({ create: name, ...(random.chance(0.9) ? options : {}) })
  let batch: Buffer[] = []
  let bytes = 0
  const flush = async (): Promise<void> => {
    if (batch.length === 0) return
    const documents = rawSequence('documents', batch)
    await to.command({ insert: name, documents, ordered: false, bypassDocumentValidation: true })
    batch = []
    bytes = 0
  }
  for await (const read of from.find({}, { raw: true })) {
    const document = changed(Buffer.from(read as unknown as Uint8Array), random)
    if (!document) continue
    batch.push(document)
    bytes += document.length
    if (bytes > insertBytes) await flush()
  }
  await flush()
  for (let at = 0; at < 20; at++) await to.collection(name).insertOne({ extra: at }, { bypassDocumentValidation: true })
  for (const { v: _, ...index } of await from.indexes()) {
    if (index.name === '_id_' || random.chance(0.3)) continue
    // The changed documents may violate an index, which the destination then lacks.
    await to.command({ createIndexes: name, indexes: [index] }).catch((error: MongoServerError) => error.code)
  }
  if (random.chance(0.3)) await to.collection(name).createIndex({ _id: 1, own: 1 }, { name: `own of ${name}` })
}

/** Returns the document, a different one with the same `_id`, or null for a missing document. */
function changed(document: Buffer, random: Random): Buffer | null {
  const kind = random.int(0, 59)
  if (kind < 2) return null
  if (kind > 3) return document
  const idElement = idElementOf(document)
  return Buffer.concat([lengthOf(4 + idElement.length + 1), idElement, Buffer.from([0])])
}

function lengthOf(bytes: number): Buffer {
  const length = Buffer.alloc(4)
  length.writeInt32LE(bytes)
  return length
}
