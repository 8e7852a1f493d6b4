/** One of the burst's writers. It sends bulk writes one after the other, as fast as the server acknowledges them. */
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
  /** Whether the collection is sharded by `k`. */
  keyed: boolean
}

await serveParent(async ({ uri, database, collection, writer, operations, mix: kind, keyed }: BurstWriterInput) => {
  const client = await MongoClient.connect(uri)
  const target = client.db(database).collection<Item>(collection)
  // The writer prepares all bulks in advance, so that this preparation does not slow down the measured writes.
  const mix = new OperationMix(writer, kind, keyed)
  const bulks: ReturnType<typeof mix.take>[] = []
  for (let left = operations; left > 0; left -= bulkOperations) bulks.push(mix.take(Math.min(left, bulkOperations)))
  return async () => {
    for (const bulk of bulks) await target.bulkWrite(bulk, { ordered: false })
    return { operations }
  }
})
