import type { Document, MongoClient } from 'mongodb'

/** Collections of the database `app` that hold simple documents. */

export interface Row extends Document {
  _id: number | string
}

export const rowsOf = (client: MongoClient, name: string, database = 'app') => client.db(database).collection<Row>(name)

/** Inserts the documents 0 to 499 into each collection. */
export async function seedRows(client: MongoClient, names: string[], fields: Document = {}): Promise<void> {
  const rows = Array.from({ length: 500 }, (_, _id) => ({ _id, n: 0, ...fields }))
  for (const name of names) await rowsOf(client, name).insertMany(rows)
}

/** Changes the collection on the destination as tandem never does: no later event of the source makes it equal again. */
export async function corruptRows(destination: MongoClient, name: string): Promise<void> {
  const rows = rowsOf(destination, name)
  await rows.updateOne({ _id: 1 }, { $set: { n: 'corrupt' } })
  await rows.deleteMany({ _id: { $in: [2, 3] } })
  await rows.insertOne({ _id: 'extra' })
}
