import { type MongoClient, MongoServerError } from 'mongodb'

/** Lifts a write block and drops every database but the server's own and those in `keep`. */
export async function emptyCluster(client: MongoClient, keep: readonly string[] = []): Promise<void> {
  try {
    await client.db('admin').command({ setUserWriteBlockMode: 1, global: false })
  } catch (error) {
    if (!(error instanceof MongoServerError) || error.codeName !== 'CommandNotFound') throw error // as 5.0 does
  }
  const { databases } = await client.db('admin').admin().listDatabases({ nameOnly: true })
  for (const { name } of databases) {
    if (!['admin', 'local', 'config', ...keep].includes(name)) await client.db(name).dropDatabase()
  }
}
