import { Binary, BSON, type CollectionInfo, type Document, type MongoClient } from 'mongodb'
import { expect, test } from 'vitest'
import { commitEqual } from '../support/commit-equal.ts'
import { accepted, canCommit, failed } from '../support/commits.ts'
import { compareBoth } from '../support/compare-both.ts'
import { holdCopy, holdTandem } from '../support/fail-point.ts'
import { convergencesOf } from '../support/lost-history.ts'
import { pairedSets } from '../support/paired-sets.ts'
import { startSync, type Tandem } from '../support/tandem-process.ts'

/** What somebody else did on the destination, and what a repair within the failed commit cannot make equal. */

const pair = pairedSets()
const unblocked = { enableUserWriteBlocking: 'none', verification: { enabled: true } }

interface Row extends Document {
  _id: number | string
}
const rowsOf = (client: MongoClient, name: string) => client.db('app').collection<Row>(name)

async function seed(...names: string[]): Promise<void> {
  for (const name of names) {
    const rows = rowsOf(pair.sourceClient, name)
    await rows.insertMany(Array.from({ length: 500 }, (_, _id) => ({ _id, n: _id })))
    await rows.createIndex({ n: 1 }, { unique: true })
  }
}

async function failedCommit(tandem: Tandem): Promise<void> {
  expect(await tandem.post('commit')).toEqual(accepted)
  const { failure } = await failed(tandem)
  expect(failure?.error).toBe('VerificationFailed')
}

/** Stores a recheck of a document that is equal. A verdict may leave many of them. */
async function leaveRecheck(name: string): Promise<void> {
  const [listed] = await pair.sourceClient.db('app').listCollections<CollectionInfo>({ name }).toArray()
  const uuid = listed?.info?.uuid as Binary
  const idElement = BSON.serialize({ _id: 1 }).subarray(4, -1)
  const stored = pair.destinationClient.db('tandem_internal')
  const recheck = {
    ...(await stored.collection('rechecks').findOne()),
    _id: new Binary(Buffer.concat([uuid.buffer, idElement])),
  }
  await stored.command({ insert: 'rechecks', documents: [recheck], mayBypassWriteBlocking: true })
}

test('after VerificationFailed, repair creates a collection again that was dropped on the destination, and converges only that one', async () => {
  await seed('things', 'others')
  await using tandem = await pair.startInstance()
  await startSync(tandem, unblocked)
  await canCommit(tandem)
  await rowsOf(pair.destinationClient, 'things').drop()
  await rowsOf(pair.destinationClient, 'others').deleteOne({ _id: 7 })
  await failedCommit(tandem)

  // Somebody creates it again, and tandem does not drop what it did not create.
  await rowsOf(pair.destinationClient, 'things').insertOne({ _id: 'foreign' })
  const refused = await tandem.post('repair')
  expect(refused).toMatchObject({ status: 409, body: { error: 'WrongState' } })
  expect(refused.body.errorDescription).toContain('app.things on the destination and created it again')
  expect((await tandem.progress()).state).toBe('FAILED')
  await rowsOf(pair.destinationClient, 'things').drop()

  expect(await tandem.post('repair')).toEqual({
    status: 200,
    body: { success: true, repairedDocuments: 0, convergingCollections: 1 },
  })
  const shown = await tandem.progress()
  expect(shown).toMatchObject({
    state: 'RUNNING',
    warnings: [expect.stringContaining('repair has to converge app.things')],
  })
  expect(shown).not.toHaveProperty('failure')
  expect(await tandem.post('resume')).toMatchObject({ status: 409, body: { error: 'WrongState' } })
  await rowsOf(pair.sourceClient, 'things').updateOne({ _id: 3 }, { $set: { n: -3 } })

  // Documents are compared only when the definitions are equal.
  await canCommit(tandem)
  await failedCommit(tandem)
  expect(await tandem.post('repair')).toEqual({ status: 200, body: { success: true, repairedDocuments: 1 } })
  expect(await tandem.post('resume')).toEqual(accepted)
  await tandem.waitFor(({ state }) => state === 'COMMITTED', { timeoutSeconds: 60, what: 'COMMITTED' })
  expect((await compareBoth(pair.source.uri, pair.destination.uri)).differences).toEqual([])
  expect(await convergencesOf(pair.destinationClient)).toBe(1)
  expect(await rowsOf(pair.destinationClient, 'things').countDocuments()).toBe(500)
})

test('with more differences than a repair reconciles one by one, it converges the collections that differ', async () => {
  await seed('things', 'others', 'equal')
  await using tandem = await pair.startInstance({ faults: { repairAtMost: 3 } })
  await startSync(tandem, { ...unblocked, enableUserWriteBlocking: 'sourceAndDestination' })
  await canCommit(tandem)
  const bypass = { mayBypassWriteBlocking: true }
  const destination = pair.destinationClient.db('app')
  await destination.command({ delete: 'things', deletes: [{ q: { _id: { $lt: 3 } }, limit: 0 }], ...bypass })
  await destination.command({ insert: 'others', documents: [{ _id: 'extra', n: 'extra' }], ...bypass })
  await failedCommit(tandem)
  await leaveRecheck('equal')

  expect(await tandem.post('repair')).toEqual({
    status: 200,
    body: { success: true, repairedDocuments: 0, convergingCollections: 2 },
  })
  // The commit is given up, so the source accepts writes again.
  await rowsOf(pair.sourceClient, 'things').insertOne({ _id: 'after', n: 'after' })
  await commitEqual(tandem, pair)
  expect(await convergencesOf(pair.destinationClient)).toBe(1)
})

test('abort and resync are the same as such a repair', async () => {
  await seed('things')
  await using tandem = await pair.startInstance()
  await startSync(tandem, unblocked)
  await canCommit(tandem)
  await rowsOf(pair.destinationClient, 'things').drop()
  await failedCommit(tandem)
  // The commit would fail again.
  const refused = await tandem.post('resume')
  expect(refused).toMatchObject({ status: 409, body: { error: 'WrongState' } })
  expect(refused.body.errorDescription).toMatch(/dropped on the destination: app\.things\. Send repair/)
  expect(await tandem.post('abort')).toEqual(accepted)
  await canCommit(tandem)
  const body = { namespaces: [{ database: 'app', collection: 'things' }] }
  expect(await tandem.post('resync', body)).toEqual(accepted)
  await commitEqual(tandem, pair)
})

test('while a collection converges instead, a repair makes the definitions of the others in its database equal', async () => {
  await seed('things', 'others')
  await using tandem = await pair.startInstance()
  await startSync(tandem, unblocked)
  await canCommit(tandem)
  await rowsOf(pair.destinationClient, 'things').drop()
  const others = rowsOf(pair.destinationClient, 'others')
  await others.dropIndex('n_1')
  await others.createIndex({ foreign: 1 })
  await failedCommit(tandem)
  expect((await tandem.post('repair')).body).toMatchObject({ success: true, convergingCollections: 1 })
  expect((await others.indexes()).map(({ name }) => name)).toEqual(['_id_', 'n_1'])
  await commitEqual(tandem, pair)
})

const conflict = {
  error: 'DestinationConflict',
  errorDescription: expect.stringContaining('app.things was dropped on the destination by somebody else'),
}

test('a change of a collection that somebody has dropped on the destination fails the sync, and resume converges it', async () => {
  await seed('things', 'others')
  await using tandem = await pair.startInstance()
  await startSync(tandem, { ...unblocked, verification: { enabled: false } })
  await canCommit(tandem)
  await rowsOf(pair.destinationClient, 'things').drop()
  await rowsOf(pair.sourceClient, 'things').updateMany({ _id: { $lt: 100 } }, { $set: { changed: true } })
  expect((await failed(tandem)).failure).toMatchObject(conflict)
  expect(await tandem.post('resume')).toEqual(accepted)
  await commitEqual(tandem, pair)
  expect(await convergencesOf(pair.destinationClient)).toBe(1)
})

test('a collection that somebody drops on the destination while it is copied fails the sync, and resume converges it', async () => {
  await seed('things', 'others')
  await using tandem = await pair.startInstance()
  await using held = await holdCopy(pair.destinationClient, 'app.things')
  await startSync(tandem, { ...unblocked, verification: { enabled: false } })
  await held.reached()
  await rowsOf(pair.destinationClient, 'things').drop()
  await held.release()
  expect((await failed(tandem)).failure).toMatchObject(conflict)
  expect(await tandem.post('resume')).toEqual(accepted)
  await commitEqual(tandem, pair)
})

test('a commit without verification fails when somebody has dropped a collection on the destination', async () => {
  await seed('things', 'others')
  await using tandem = await pair.startInstance()
  await startSync(tandem, { ...unblocked, verification: { enabled: false } })
  await canCommit(tandem)
  await rowsOf(pair.destinationClient, 'things').drop()
  expect(await tandem.post('commit')).toEqual(accepted)
  expect((await failed(tandem)).failure).toMatchObject(conflict)
  expect(await tandem.post('abort')).toEqual(accepted)
  await canCommit(tandem)
  const body = { namespaces: [{ database: 'app', collection: 'things' }] }
  expect(await tandem.post('resync', body)).toEqual(accepted)
  await commitEqual(tandem, pair)
})

test('a commit without verification finds a collection that somebody drops after the destination was prepared', async () => {
  await seed('things')
  await rowsOf(pair.sourceClient, 'others').insertOne({ _id: 1 })
  await using tandem = await pair.startInstance()
  await startSync(tandem, { ...unblocked, verification: { enabled: false } })
  await canCommit(tandem)
  // The preparation has looked for dropped collections before it changes the unique index.
  await using held = await holdTandem(pair.destinationClient, 'collMod', 'app.things')
  expect(await tandem.post('commit')).toEqual(accepted)
  await held.reached()
  await rowsOf(pair.destinationClient, 'others').drop()
  await held.release()
  expect((await failed(tandem)).failure).toMatchObject({
    error: 'DestinationConflict',
    errorDescription: expect.stringContaining('app.others was dropped on the destination by somebody else'),
  })
  expect((await tandem.progress()).canWrite).toBe(false)
})

test('a commit that fails because of a dropped collection is not resumed but aborted, and then resume converges the collection', async () => {
  await seed('things')
  await using tandem = await pair.startInstance()
  await startSync(tandem, { ...unblocked, verification: { enabled: false } })
  await canCommit(tandem)
  await using held = await holdTandem(pair.destinationClient, 'update', 'app.things')
  await rowsOf(pair.sourceClient, 'things').updateMany({ _id: { $lt: 100 } }, { $set: { changed: true } })
  expect(await tandem.post('commit')).toEqual(accepted)
  await tandem.waitFor(({ state }) => state === 'COMMITTING', { timeoutSeconds: 30, what: 'COMMITTING' })
  await rowsOf(pair.destinationClient, 'things').drop()
  await held.release()
  expect((await failed(tandem)).failure).toMatchObject(conflict)

  const refused = await tandem.post('resume')
  expect(refused).toMatchObject({ status: 409, body: { error: 'WrongState' } })
  expect(refused.body.errorDescription).toMatch(/dropped on the destination: app\.things\. Send abort/)
  expect(await tandem.post('abort')).toEqual(accepted)
  await tandem.waitFor(({ state }) => state === 'RUNNING', { timeoutSeconds: 30, what: 'RUNNING' })
  expect((await failed(tandem)).failure).toMatchObject(conflict)
  expect(await tandem.post('resume')).toEqual(accepted)
  await commitEqual(tandem, pair)
})

test('a collection that somebody drops on the destination before it is verified fails the sync, and resume converges it', async () => {
  await seed('things', 'others')
  await using tandem = await pair.startInstance()
  await using held = await holdCopy(pair.destinationClient, 'app.others')
  await startSync(tandem, unblocked)
  await expect.poll(() => rowsOf(pair.destinationClient, 'things').countDocuments(), { timeout: 30_000 }).toBe(500)
  await tandem.waitFor(({ collectionCopy }) => (collectionCopy?.estimatedCopiedBytes ?? 0) > 0, {
    timeoutSeconds: 30,
    what: 'things are copied',
  })
  await rowsOf(pair.destinationClient, 'things').drop()
  await held.release()
  expect((await failed(tandem)).failure).toMatchObject({
    error: 'DestinationConflict',
    errorDescription: expect.stringContaining('app.things was dropped on the destination by somebody else'),
  })
  expect(await tandem.post('resume')).toEqual(accepted)
  await commitEqual(tandem, pair)
  expect(await convergencesOf(pair.destinationClient)).toBe(1)
})
