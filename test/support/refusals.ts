import type { MongoClient } from 'mongodb'
import { expect } from 'vitest'
import { databaseNames } from './databases.ts'
import type { CommandAnswer, Tandem } from './tandem-process.ts'

/** Helpers to check a refused start. */

/** Returns all state of a cluster that a start may change, and no state that the server changes itself. */
export async function footprint(client: MongoClient): Promise<unknown> {
  const admin = client.db('admin')
  const collections: string[] = []
  for (const name of await databaseNames(client, ['local', 'config'])) {
    for (const collection of await client.db(name).listCollections({}, { nameOnly: true }).toArray()) {
      collections.push(`${name}.${collection.name}`)
    }
  }
  const { repl } = await admin.command({ serverStatus: 1 })
  return {
    collections: collections.sort(),
    writesBlocked: repl?.userWriteBlockMode,
    notes: await client.db('local').collection('oplog.rs').countDocuments({ 'o.tandem': 'start' }),
  }
}

export function expectRefusal(answer: CommandAnswer, status: number, error: string, description: RegExp): void {
  expect(answer).toMatchObject({
    status,
    body: { success: false, error, errorDescription: expect.stringMatching(description) },
  })
}

export async function expectIdle(tandem: Tandem): Promise<void> {
  const { state, canCommit, ...others } = await tandem.progress()
  expect({ state, canCommit }).toEqual({ state: 'IDLE', canCommit: false })
  expect(Object.values(others).filter((value) => value !== null)).toEqual([])
}
