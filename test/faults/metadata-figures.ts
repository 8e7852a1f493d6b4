import { type Binary, MongoClient } from 'mongodb'

export interface MetadataFigures {
  documents: number
  /** Of BSON. */
  bytes: number
  collections: Record<string, { documents: number; bytes: number }>
  /** Documents that belong to a collection which the catalogue no longer has, by the collection they stand in. */
  orphans: Record<string, number>
}

interface OfCollection {
  collection: Binary
}

/** Where documents name the collection of the source that they belong to, and go with it. */
const dependent = ['segments', 'tombstones', 'verifiedRanges'] as const

/** How large tandem's own database on one cluster is. */
export async function metadataFigures(uri: string): Promise<MetadataFigures> {
  await using client = await MongoClient.connect(uri)
  const database = client.db('tandem_internal')
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
      .collection<OfCollection>(name)
      .find()
      .project<OfCollection>({ collection: 1 })
      .toArray()
    const orphans = found.filter(({ collection }) => !known.has(String(collection))).length
    if (orphans > 0) figures.orphans[name] = orphans
  }
  return figures
}
