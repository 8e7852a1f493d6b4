import type { CollectionInfo, MongoClient } from 'mongodb'
import { expect } from 'vitest'
import type { Progress } from '../../src/domain/progress.ts'
import type { PairedSets } from './paired-sets.ts'
import type { Tandem } from './tandem-process.ts'
import { writesBlocked } from './write-block-mode.ts'

/** What the tests of the cutover share: a small data set in which a commit has something to do in each of its steps. */

export const accepted = { status: 200, body: { success: true } }
export const wrongState = { status: 409, body: { error: 'WrongState' } }

export interface Thing {
  _id: number | string
  /** Of the unique index. */
  u?: number | string
  by?: string
}

export const things = (client: MongoClient) => client.db('app').collection<Thing>('things')

/** Whole seconds after which documents of `app.expiring` expire on the source; long enough that none does in a test. */
export const expireAfterSeconds = 86_400
const cappedBytes = 1024 * 1024

/** `app.things` with a unique and a hidden index, `app.expiring` with a TTL index, and `app.log`, which is capped. */
export async function seedForCutover(client: MongoClient): Promise<void> {
  const app = client.db('app')
  await app.createCollection('log', { capped: true, size: cappedBytes })
  await app.collection('log').insertMany(Array.from({ length: 20 }, (_, at) => ({ at })))
  await app.collection('expiring').insertMany(Array.from({ length: 20 }, () => ({ at: new Date() })))
  await app.collection('expiring').createIndex({ at: 1 }, { expireAfterSeconds })
  await things(client).insertMany(Array.from({ length: 100 }, (_, _id) => ({ _id, u: _id, by: 'seed' })))
  await things(client).createIndex({ u: 1 }, { unique: true })
  await things(client).createIndex({ by: 1 }, { hidden: true })
}

export const readyToCommit = (tandem: Tandem): Promise<Progress> =>
  tandem.waitFor(({ canCommit }) => canCommit, { timeoutSeconds: 60, what: 'ready to commit' })

export const committed = (tandem: Tandem): Promise<Progress> =>
  tandem.waitFor(({ state }) => state === 'COMMITTED', { timeoutSeconds: 60, what: 'COMMITTED' })

export const ended = (tandem: Tandem): Promise<Progress> =>
  tandem.waitFor(({ state }) => state === 'COMMITTED' || state === 'FAILED', { timeoutSeconds: 60, what: 'ended' })

/** Sends `commit`, which a process that dies at a step of the commit may not live to answer. */
export async function commitUntilItDies(tandem: Tandem): Promise<void> {
  await tandem.post('commit').catch((error) => {
    if (!(error instanceof TypeError)) throw error // what `fetch` throws when the connection closes
  })
}

/** What a commit prepares on the destination is deferred again: no index enforces anything and no document expires or is evicted. */
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
