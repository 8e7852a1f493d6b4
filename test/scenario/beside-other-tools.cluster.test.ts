import type { Document, MongoClient } from 'mongodb'
import { expect, it, vi } from 'vitest'
import { accepted, canCommit } from '../support/commits.ts'
import { compareBoth } from '../support/compare-both.ts'
import { pairedSets } from '../support/paired-sets.ts'
import { startSync } from '../support/tandem-process.ts'

/** MongoDB's mongosync and migration-verifier may run beside tandem. Their metadata on either cluster is never user data. */

const pair = pairedSets()
const prefixes = [
  '__mdb_internal_migration_verifier',
  'mongosync_internal_state',
  'mongosync_reserved_for_internal_use',
]

interface Row extends Document {
  _id: number
}

const things = (client: MongoClient, database = 'app') => client.db(database).collection<Row>('things')
const bypassing = (client: MongoClient, database: string, documents: Row[]) =>
  client.db(database).command({ insert: 'things', documents, mayBypassWriteBlocking: true })

it('metadata of other migration tools is not synced, compared, counted or refused on either cluster', async () => {
  await things(pair.sourceClient).insertMany([{ _id: 1 }, { _id: 2 }])
  for (const database of prefixes) {
    await things(pair.sourceClient, database).insertOne({ _id: 1 })
    await things(pair.destinationClient, database).insertMany([{ _id: 3 }, { _id: 4 }])
  }
  await using tandem = await pair.startInstance()
  await startSync(tandem, { verification: { enabled: true }, enableUserWriteBlocking: 'destinationOnly' })
  const { verification, collectionCopy } = await canCommit(tandem)
  expect(verification?.source).toMatchObject({ estimatedDocumentCount: 2, totalCollectionCount: 1 })
  expect(collectionCopy?.estimatedTotalBytes).toBeLessThan(200)
  for (const database of prefixes) {
    await things(pair.sourceClient, database).insertOne({ _id: 2 })
    await bypassing(pair.destinationClient, database, [{ _id: 5 }])
    await pair.sourceClient.db(database).createCollection('created while RUNNING')
    await pair.sourceClient.db(`${database}_dropped`).createCollection('dropped')
    await pair.sourceClient.db(`${database}_dropped`).dropDatabase()
  }
  // DDL of users still arrives, although a filter in the change stream's pipeline could drop its events.
  await pair.sourceClient.db('other').createCollection('dropped')
  await pair.sourceClient.db('other').dropDatabase()
  await pair.sourceClient.db('app').renameCollection('things', 'renamed')
  await pair.sourceClient.db('app').createCollection('things')
  await things(pair.sourceClient).insertOne({ _id: 3 })
  await vi.waitFor(async () => expect(await things(pair.destinationClient).countDocuments()).toBe(1), {
    timeout: 30_000,
    interval: 50,
  })
  await canCommit(tandem)
  expect(await tandem.post('commit')).toEqual(accepted)
  await tandem.waitFor(({ state }) => state === 'COMMITTED', { timeoutSeconds: 60, what: 'committed' })
  expect((await compareBoth(pair.source.uri, pair.destination.uri)).differences).toEqual([])
  for (const database of prefixes) {
    const ids = (await things(pair.destinationClient, database).find().sort({ _id: 1 }).toArray()).map(({ _id }) => _id)
    expect(ids).toEqual([3, 4, 5])
  }
})

it('a filter cannot name a database of another migration tool', async () => {
  await using tandem = await pair.startInstance()
  const answer = await tandem.post('start', {
    source: 'cluster0',
    destination: 'cluster1',
    includeNamespaces: [{ database: '__mdb_internal_x' }],
  })
  expect(answer).toMatchObject({ status: 400, body: { error: 'InvalidRequest' } })
  expect(answer.body.errorDescription).toMatch(/includeNamespaces\[0\]\.database: __mdb_internal_x is never synced/)
})

it('a repair that can repair nothing is refused and says why', async () => {
  await things(pair.sourceClient).insertOne({ _id: 1 })
  await using tandem = await pair.startInstance()
  await startSync(tandem, { verification: { enabled: true }, enableUserWriteBlocking: 'none' })
  await canCommit(tandem)
  await things(pair.destinationClient, 'verifier_metadata').insertOne({ _id: 1 })
  expect(await tandem.post('commit')).toEqual(accepted)
  await tandem.waitFor(({ state }) => state === 'FAILED', { timeoutSeconds: 60, what: 'failed' })
  const answer = await tandem.post('repair')
  expect(answer).toMatchObject({ status: 409, body: { error: 'WrongState' } })
  expect(answer.body.errorDescription).toMatch(
    /nothing was repaired: somebody else created verifier_metadata\.things on/,
  )
  await pair.destinationClient.db('verifier_metadata').dropDatabase()
  expect(await tandem.post('resume')).toEqual(accepted)
  await tandem.waitFor(({ state }) => state === 'COMMITTED', { timeoutSeconds: 60, what: 'committed' })
})
