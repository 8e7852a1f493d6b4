import { createRequire } from 'node:module'
import type { Db } from 'mongodb'

/** The bench does not use tandem's own insert code, so that the baseline shares no code with the measured program. */
const { DocumentSequence } = createRequire(import.meta.url)('mongodb/lib/cmap/commands.js') as {
  DocumentSequence: new (field: string) => { push(document: object, bytes: Buffer): number }
}

/** Inserts documents as raw bytes with one unordered command. */
export async function insertRaw(
  db: Db,
  collection: string,
  documents: readonly Buffer[],
  writeConcern: 1 | 'majority',
): Promise<void> {
  const sequence = new DocumentSequence('documents')
  for (const document of documents) sequence.push({}, document)
  const command = { insert: collection, documents: sequence, ordered: false, writeConcern: { w: writeConcern } }
  const reply = await db.command(command)
  if (reply['n'] !== documents.length || reply['writeConcernError']) {
    throw new Error(
      `the server inserted ${reply['n']} of ${documents.length} documents: ${JSON.stringify(reply['writeErrors']?.[0])}`,
    )
  }
}
