import { createHash } from 'node:crypto'
import { MongoClient } from 'mongodb'
import type { Selects } from './compare.ts'
import { databaseNames, internalDatabases } from './databases.ts'

/**
 * Returns one digest for each collection and view of the user databases that `selects` accepts. A digest covers the
 * definition with the UUID, the indexes, and every byte of the documents in natural order. An unchanged collection
 * keeps its digest.
 */
export async function fingerprints(uri: string, selects: Selects): Promise<Record<string, string>> {
  const client = new MongoClient(uri)
  const found: Record<string, string> = {}
  try {
    for (const database of await databaseNames(client, internalDatabases)) {
      const db = client.db(database)
      const listed = await db.listCollections().toArray()
      for (const one of listed) {
        if (one.name.startsWith('system.') || !selects(database, one.name)) continue
        const hash = createHash('sha256').update(JSON.stringify(one))
        if (one.type !== 'view') {
          hash.update(JSON.stringify(await db.collection(one.name).listIndexes().toArray()))
          const documents = db.collection(one.name).find({}, { raw: true, hint: { $natural: 1 } })
          for await (const bytes of documents) hash.update(bytes as unknown as Uint8Array)
        }
        found[`${database}.${one.name}`] = hash.digest('hex')
      }
    }
  } finally {
    await client.close()
  }
  return found
}
