import type { MongoClient } from 'mongodb'
import { expect } from 'vitest'
import { rowsOf } from '../support/rows.ts'

/** Shared parts of the tests in which somebody else drops a collection on the destination. */

export const unblocked = { enableUserWriteBlocking: 'none', verification: { enabled: true } }
export const unverified = { ...unblocked, verification: { enabled: false } }

/** The failure after `app.things` has been dropped. */
export const conflict = {
  error: 'DestinationConflict',
  errorDescription: expect.stringContaining('app.things was dropped on the destination by somebody else'),
}

/** Creates these collections with a unique index, which is deferred. */
export async function seed(source: MongoClient, ...names: string[]): Promise<void> {
  for (const name of names) {
    const rows = rowsOf(source, name)
    await rows.insertMany(Array.from({ length: 500 }, (_, _id) => ({ _id, n: _id })))
    await rows.createIndex({ n: 1 }, { unique: true })
  }
}
