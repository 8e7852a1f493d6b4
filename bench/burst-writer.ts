/** One of the writers of the burst: bulks one after the other, as fast as the server takes them. */
import { MongoClient } from 'mongodb'
import { serveParent } from './child-work.ts'
import { type Item, type Mix, OperationMix } from './operations.ts'

const bulkOperations = 1_000

export interface BurstWriterInput {
  uri: string
  database: string
  collection: string
  writer: number
  operations: number
  mix: Mix
}

await serveParent(async ({ uri, database, collection, writer, operations, mix: kind }: BurstWriterInput) => {
  const client = await MongoClient.connect(uri)
  const target = client.db(database).collection<Item>(collection)
  // All made beforehand: the writers' own work must not slow down what they are measuring.
  const mix = new OperationMix(writer, kind)
  const bulks: ReturnType<typeof mix.take>[] = []
  for (let left = operations; left > 0; left -= bulkOperations) bulks.push(mix.take(Math.min(left, bulkOperations)))
  return async () => {
    for (const bulk of bulks) await target.bulkWrite(bulk, { ordered: false })
    return { operations }
  }
})
