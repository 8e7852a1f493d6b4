import { createRequire } from 'node:module'
import type { Db } from 'mongodb'

/** As the prototypes did it, and on purpose not tandem's own code: what tandem is measured against shares nothing with it. */
const { DocumentSequence } = createRequire(import.meta.url)('mongodb/lib/cmap/commands.js') as {
  DocumentSequence: new (field: string) => { push(document: object, bytes: Buffer): number }
}

/** Inserts documents as the bytes they are, unordered, in one command. */
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
      `${reply['n']} of ${documents.length} documents inserted: ${JSON.stringify(reply['writeErrors']?.[0])}`,
    )
  }
}
