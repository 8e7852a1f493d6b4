import { randomBytes } from 'node:crypto'
import { MongoClient } from 'mongodb'

const batch = 5_000

/**
 * Loads `count` documents of about 1 KB into `database`.documents, which the copy divides into several segments. Does
 * nothing if they already exist.
 */
export async function loadBulk(uri: string, database: string, count: number): Promise<void> {
  await using client = await MongoClient.connect(uri)
  const collection = client.db(database).collection<{ _id: number; filling: string }>('documents')
  if ((await collection.estimatedDocumentCount()) === count) return
  const filling = randomBytes(350).toString('hex')
  for (let from = 0; from < count; from += batch) {
    const documents = Array.from({ length: Math.min(batch, count - from) }, (_, at) => ({
      _id: from + at,
      filling,
      at,
    }))
    await collection.insertMany(documents, { ordered: false, writeConcern: { w: 1 } })
  }
}
