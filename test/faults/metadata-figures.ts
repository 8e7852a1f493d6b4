import { type Binary, MongoClient } from 'mongodb'
import { metadataDatabase } from '../../src/domain/namespace.ts'

export interface MetadataFigures {
  documents: number
  /** Size of the documents as BSON. */
  bytes: number
  collections: Record<string, { documents: number; bytes: number }>
  /** Number of documents that belong to a collection that is no longer in the catalog, by metadata collection. */
  orphans: Record<string, number>
}

interface DependentDocument {
  collection: Binary
}

/** Metadata collections whose documents refer to a source collection and are removed with its catalog entry. */
const dependent = ['segments', 'tombstones', 'verifiedRanges'] as const

/** Measures tandem's metadata database on one cluster. */
export async function metadataFigures(uri: string): Promise<MetadataFigures> {
  await using client = await MongoClient.connect(uri)
  const database = client.db(metadataDatabase)
  const figures: MetadataFigures = { documents: 0, bytes: 0, collections: {}, orphans: {} }
  const listed = await database.listCollections({}, { nameOnly: true }).toArray()
  for (const name of listed.map((one) => one.name).sort()) {
    const [sum] = await database
      .collection(name)
      .aggregate<{ documents: number; bytes: number }>([
        { $group: { _id: null, documents: { $sum: 1 }, bytes: { $sum: { $bsonSize: '$$ROOT' } } } },
      ])
      .toArray()
    if (!sum) continue
    const { documents, bytes } = sum
    figures.collections[name] = { documents, bytes }
    figures.documents += documents
    figures.bytes += bytes
  }
  const known = new Set((await database.collection('collections').distinct('_id')).map((uuid) => String(uuid)))
  for (const name of dependent) {
    const found = await database
      .collection<DependentDocument>(name)
      .find()
      .project<DependentDocument>({ collection: 1 })
      .toArray()
    const orphans = found.filter(({ collection }) => !known.has(String(collection))).length
    if (orphans > 0) figures.orphans[name] = orphans
  }
  return figures
}
