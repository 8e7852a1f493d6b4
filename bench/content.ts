import type { Document } from 'mongodb'
import { compareDocuments, Differences } from '../test/support/compare-documents.ts'
import { database, type Pair, type Server } from './servers.ts'

/** A digest over every byte of each collection, made by the server. It holds writers up while it runs. */
export async function hashOf({ client }: Server): Promise<string> {
  const { collections } = await client.db(database).command({ dbHash: 1 })
  return JSON.stringify(Object.entries(collections as Document).sort())
}

export async function assertSameHash({ source, destination }: Pair): Promise<void> {
  const [ours, theirs] = await Promise.all([hashOf(source), hashOf(destination)])
  if (ours !== theirs) throw new Error(`the destination differs from the source:\n${ours}\n${theirs}`)
}

/** Reads both sides and compares bytes: the last word, where the server's own digest came first. */
export async function assertSameBytes({ source, destination }: Pair, collection: string): Promise<void> {
  const differences = new Differences(5)
  const [ours, theirs] = [source, destination].map(({ client }) => client.db(database).collection(collection))
  if (ours && theirs) await compareDocuments(ours, theirs, { _id: 1 }, differences)
  if (differences.list.length > 0) throw new Error(`the destination differs:\n${differences.list.join('\n')}`)
}

/** From the collections' metadata, so at no cost. */
export async function countOf({ client }: Server, collections: string[]): Promise<number> {
  const counts = collections.map((name) => client.db(database).collection(name).estimatedDocumentCount())
  return (await Promise.all(counts)).reduce((sum, count) => sum + count, 0)
}
