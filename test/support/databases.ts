import type { MongoClient } from 'mongodb'

export const serverDatabases = ['admin', 'local', 'config']
/** The server's databases and tandem's own, which are never synced. */
export const internalDatabases = [...serverDatabases, 'mongosync_internal_tandem', 'tandem_internal']

export async function databaseNames(client: MongoClient, except: readonly string[] = []): Promise<string[]> {
  const { databases } = await client.db('admin').admin().listDatabases({ nameOnly: true })
  return databases.map(({ name }) => name).filter((name) => !except.includes(name))
}
