import type { Document } from 'mongodb'
import { compareDocuments, Differences } from '../test/support/compare-documents.ts'
import { database, type Pair, type Server } from './servers.ts'

interface Contents {
  source: Pick<Server, 'client'>
  destination: Pick<Server, 'client'>
}

/**
 * Returns the server's digest of every byte of each collection (`dbHash`). The server blocks writes while it computes
 * it.
 */
export async function hashOf({ client }: Server): Promise<string> {
  const { collections } = await client.db(database).command({ dbHash: 1 })
  return JSON.stringify(Object.entries(collections as Document).sort())
}

export async function assertSameHash({ source, destination }: Pair): Promise<void> {
  const [ours, theirs] = await Promise.all([hashOf(source), hashOf(destination)])
  if (ours !== theirs) throw new Error(`the destination differs from the source:\n${ours}\n${theirs}`)
}

/** Reads both collections and compares their bytes. This check is independent of the server's own digest. */
export async function assertSameBytes(contents: Contents, collection: string): Promise<void> {
  const differences = await differencesOf(contents, collection)
  if (differences.length > 0) throw new Error(`the destination differs:\n${differences.join('\n')}`)
}

/** Describes the first differences between the bytes of both collections. */
export async function differencesOf({ source, destination }: Contents, collection: string): Promise<string[]> {
  const differences = new Differences(5)
  const [ours, theirs] = [source, destination].map(({ client }) => client.db(database).collection(collection))
  if (ours && theirs) await compareDocuments(ours, theirs, { _id: 1 }, differences)
  return differences.list
}

/** Returns the number of documents from the collections' metadata, without reading documents. */
export async function countOf({ client }: Pick<Server, 'client'>, collections: string[]): Promise<number> {
  const counts = collections.map((name) => client.db(database).collection(name).estimatedDocumentCount())
  return (await Promise.all(counts)).reduce((sum, count) => sum + count, 0)
}
