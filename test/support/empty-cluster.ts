import { type MongoClient, MongoServerError } from 'mongodb'
import { databaseNames, serverDatabases } from './databases.ts'

/** Lifts a write block and drops every database except the server's own and those in `keep`. */
export async function emptyCluster(client: MongoClient, keep: readonly string[] = []): Promise<void> {
  try {
    await client.db('admin').command({ setUserWriteBlockMode: 1, global: false })
  } catch (error) {
    if (!(error instanceof MongoServerError) || error.codeName !== 'CommandNotFound') throw error // 5.0 does not have this command.
  }
  const dropped = await databaseNames(client, [...serverDatabases, ...keep])
  await Promise.all(dropped.map((name) => client.db(name).dropDatabase()))
}
