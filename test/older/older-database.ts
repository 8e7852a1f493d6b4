import type { Document, MongoClient } from 'mongodb'
import { metadataDatabase, olderMetadataDatabase } from '../../src/domain/namespace.ts'

/**
 * Moves the metadata on a cluster to the database in which earlier releases kept it, and removes the reservation, which
 * those releases do not know. Works also while users' writes are blocked. No instance may be running.
 */
export async function moveToOlderDatabase(client: MongoClient): Promise<void> {
  const from = client.db(metadataDatabase)
  const to = client.db(olderMetadataDatabase)
  const bypass = { mayBypassWriteBlocking: true }
  const names = (await from.listCollections({}, { nameOnly: true }).toArray()).map(({ name }) => name)
  if (names.length === 0) return
  await to.command({ dropDatabase: 1, ...bypass })
  for (const name of names) {
    const documents: Document[] = await from.collection(name).find({}, { promoteValues: false }).toArray()
    for (let at = 0; at < documents.length; at += 1_000)
      await to.command({ insert: name, documents: documents.slice(at, at + 1_000), ...bypass })
    const indexes = (await from.collection(name).indexes()).filter((one) => one.name !== '_id_')
    if (indexes.length > 0) await to.command({ createIndexes: name, indexes, ...bypass })
  }
  await from.command({ dropDatabase: 1, ...bypass })
}
