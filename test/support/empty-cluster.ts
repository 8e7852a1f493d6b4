import { type MongoClient, MongoServerError } from 'mongodb'

/** Lifts a write block and drops every database except the server's own and those in `keep`. */
export async function emptyCluster(client: MongoClient, keep: readonly string[] = []): Promise<void> {
  try {
    await client.db('admin').command({ setUserWriteBlockMode: 1, global: false })
  } catch (error) {
    if (!(error instanceof MongoServerError) || error.codeName !== 'CommandNotFound') throw error // 5.0 does not have this command.
  }
  const { databases } = await client.db('admin').admin().listDatabases({ nameOnly: true })
  const dropped = databases.filter(({ name }) => !['admin', 'local', 'config', ...keep].includes(name))
  await Promise.all(dropped.map(({ name }) => client.db(name).dropDatabase()))
}
