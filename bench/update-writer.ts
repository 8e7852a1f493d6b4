/** Updates randomly chosen existing documents in bulks at full speed for a given time. */
import { MongoClient } from 'mongodb'
import { Random } from '../test/support/random.ts'
import { serveParent } from './child-work.ts'

const bulkOperations = 1_000

export interface UpdateWriterInput {
  uri: string
  database: string
  collection: string
  writer: number
  seconds: number
}

await serveParent(async ({ uri, database, collection, writer, seconds }: UpdateWriterInput) => {
  const client = await MongoClient.connect(uri)
  const target = client.db(database).collection(collection)
  const ids = await target.distinct('_id')
  const random = new Random(`update writer ${writer}`)
  const nextUpdate = () => {
    const update = { $set: { value: random.fraction() }, $inc: { changes: 1 } }
    return { updateOne: { filter: { _id: random.pick(ids) }, update } }
  }
  return async () => {
    const endMS = performance.now() + seconds * 1000
    let operations = 0
    while (performance.now() < endMS) {
      await target.bulkWrite(Array.from({ length: bulkOperations }, nextUpdate), { ordered: false })
      operations += bulkOperations
    }
    return { operations }
  }
})
