/**
 * The baseline for `tandem verify` and the embedded verifier. It reads raw bytes from both clusters in parallel and
 * discards them. It reads in natural order, which costs the server least.
 */
import { MongoClient } from 'mongodb'
import { serveParent } from './child-work.ts'

/** The batch size of `tandem verify`. With batches of 10,000, reading took nearly twice as long. */
const batchDocuments = 1_000

export interface ReadInput {
  cluster0: string
  cluster1: string
  database: string
}

await serveParent(async ({ cluster0, cluster1, database }: ReadInput) => {
  const clients = await Promise.all([MongoClient.connect(cluster0), MongoClient.connect(cluster1)])
  return async () => {
    const read = await Promise.all(clients.map((client) => readAll(client, database)))
    return { documents: read.reduce((sum, documents) => sum + documents, 0) }
  }
})

async function readAll(client: MongoClient, database: string): Promise<number> {
  let documents = 0
  for (const { name } of await client.db(database).listCollections({}, { nameOnly: true }).toArray()) {
    const cursor = client.db(database).collection(name).find({}, { raw: true, batchSize: batchDocuments })
    while (await cursor.hasNext()) documents += cursor.readBufferedDocuments().length
  }
  return documents
}
