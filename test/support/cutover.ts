import type { CollectionInfo } from 'mongodb'
import { expect } from 'vitest'
import type { Progress } from '../../src/domain/progress.ts'
import { cappedBytes, expireAfterSeconds } from './cutover-data.ts'
import type { PairedSets } from './paired-sets.ts'
import type { Tandem } from './tandem-process.ts'
import { writesBlocked } from './write-block-mode.ts'

/** Helpers of the cutover tests. */

export const wrongState = { status: 409, body: { error: 'WrongState' } }

export const ended = (tandem: Tandem): Promise<Progress> =>
  tandem.waitFor(({ state }) => state === 'COMMITTED' || state === 'FAILED', { timeoutSeconds: 60, what: 'ended' })

/** Sends `commit` to a process that a fault kills at a step of the commit, possibly before it answers. */
export async function commitUntilItDies(tandem: Tandem): Promise<void> {
  await tandem.post('commit').catch((error) => {
    if (!(error instanceof TypeError)) throw error // `fetch` throws a TypeError when the connection closes.
  })
}

/**
 * Checks that all options that a commit restores on the destination are deferred again: no index enforces a constraint,
 * and no document expires or is removed from a capped collection.
 */
export async function expectDeferred({ destinationClient }: Pick<PairedSets, 'destinationClient'>): Promise<void> {
  const app = destinationClient.db('app')
  const indexes = await app.collection('things').indexes()
  expect(indexes.map(({ name, unique, prepareUnique, hidden }) => ({ name, unique, prepareUnique, hidden }))).toEqual(
    ['_id_', 'u_1', 'by_1'].map((name) => ({ name, unique: undefined, prepareUnique: undefined, hidden: undefined })),
  )
  const expiring = await app.collection('expiring').indexes()
  expect(expiring.find(({ name }) => name === 'at_1')?.['expireAfterSeconds']).toBeGreaterThan(expireAfterSeconds)
  const [log] = await app.listCollections<CollectionInfo>({ name: 'log' }).toArray()
  expect(log?.options?.['size']).toBeGreaterThan(cappedBytes)
  expect(await writesBlocked(destinationClient)).toBe(true)
}
