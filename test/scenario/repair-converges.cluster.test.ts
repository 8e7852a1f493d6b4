import { Binary, BSON, type CollectionInfo } from 'mongodb'
import { expect, test } from 'vitest'
import { metadataDatabase } from '../../src/domain/namespace.ts'
import { commitEqual } from '../support/commit-equal.ts'
import { accepted, canCommit, failed } from '../support/commits.ts'
import { compareBoth } from '../support/compare-both.ts'
import { convergencesOf } from '../support/lost-history.ts'
import { pairedSets } from '../support/paired-sets.ts'
import { rowsOf } from '../support/rows.ts'
import { startSync, type Tandem } from '../support/tandem-process.ts'
import { seed, unblocked } from './dropped-by-another.ts'

/** If a repair cannot make a collection equal within the failed commit, it converges the collection. */

const pair = pairedSets()

async function failedCommit(tandem: Tandem): Promise<void> {
  expect(await tandem.post('commit')).toEqual(accepted)
  const { failure } = await failed(tandem)
  expect(failure?.error).toBe('VerificationFailed')
}

/** Stores a recheck of a document that is equal on both clusters. A verdict may leave many such rechecks. */
async function leaveRecheck(name: string): Promise<void> {
  const [listed] = await pair.sourceClient.db('app').listCollections<CollectionInfo>({ name }).toArray()
  const uuid = listed?.info?.uuid as Binary
  const idElement = BSON.serialize({ _id: 1 }).subarray(4, -1)
  const stored = pair.destinationClient.db(metadataDatabase)
  const recheck = {
    ...(await stored.collection('rechecks').findOne()),
    _id: new Binary(Buffer.concat([uuid.buffer, idElement])),
  }
  await stored.command({ insert: 'rechecks', documents: [recheck], mayBypassWriteBlocking: true })
}

test('after VerificationFailed, repair recreates a dropped collection, and converges no other one', async () => {
  await seed(pair.sourceClient, 'things', 'others')
  await using tandem = await pair.startInstance()
  await startSync(tandem, unblocked)
  await canCommit(tandem)
  await rowsOf(pair.destinationClient, 'things').drop()
  await rowsOf(pair.destinationClient, 'others').deleteOne({ _id: 7 })
  await failedCommit(tandem)

  // Somebody creates the collection again, and tandem does not drop a collection that it did not create.
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

  // The verifier compares the documents of a collection only when its definitions are equal, so this commit finds more.
  await canCommit(tandem)
  await failedCommit(tandem)
  expect(await tandem.post('repair')).toEqual({ status: 200, body: { success: true, repairedDocuments: 1 } })
  expect(await tandem.post('resume')).toEqual(accepted)
  await tandem.waitFor(({ state }) => state === 'COMMITTED', { timeoutSeconds: 60, what: 'COMMITTED' })
  expect((await compareBoth(pair.source.uri, pair.destination.uri)).differences).toEqual([])
  expect(await convergencesOf(pair.destinationClient)).toBe(1)
  expect(await rowsOf(pair.destinationClient, 'things').countDocuments()).toBe(500)
})

test('if there are more differences than a repair fixes one by one, the repair converges the collections that differ', async () => {
  await seed(pair.sourceClient, 'things', 'others', 'equal')
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
  // The commit is aborted, so the source accepts writes again.
  await rowsOf(pair.sourceClient, 'things').insertOne({ _id: 'after', n: 'after' })
  await commitEqual(tandem, pair)
  expect(await convergencesOf(pair.destinationClient)).toBe(1)
})

test('after a commit has failed because of a dropped collection, abort followed by resync has the effect of a repair', async () => {
  await seed(pair.sourceClient, 'things')
  await using tandem = await pair.startInstance()
  await startSync(tandem, unblocked)
  await canCommit(tandem)
  await rowsOf(pair.destinationClient, 'things').drop()
  await failedCommit(tandem)
  // A resume is refused, because the commit would fail again.
  const refused = await tandem.post('resume')
  expect(refused).toMatchObject({ status: 409, body: { error: 'WrongState' } })
  expect(refused.body.errorDescription).toMatch(/dropped on the destination: app\.things\. Send repair/)
  expect(await tandem.post('abort')).toEqual(accepted)
  await canCommit(tandem)
  const body = { namespaces: [{ database: 'app', collection: 'things' }] }
  expect(await tandem.post('resync', body)).toEqual(accepted)
  await commitEqual(tandem, pair)
})

test('a repair that converges one collection also makes the definitions of the other collections in its database equal', async () => {
  await seed(pair.sourceClient, 'things', 'others')
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
