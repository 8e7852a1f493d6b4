import { expect, test } from 'vitest'
import { commitEqual } from '../support/commit-equal.ts'
import { accepted, canCommit, failed } from '../support/commits.ts'
import { holdCopy, holdTandem } from '../support/fail-point.ts'
import { convergencesOf } from '../support/lost-history.ts'
import { pairedSets } from '../support/paired-sets.ts'
import { rowsOf } from '../support/rows.ts'
import { startSync } from '../support/tandem-process.ts'
import { conflict, seed, unblocked, unverified } from './dropped-by-another.ts'

/** When somebody else drops a collection on the destination, the sync or its commit fails. A resume converges the collection. */

const pair = pairedSets()

test('a change to a collection that somebody has dropped on the destination fails the sync, and resume converges the collection', async () => {
  await seed(pair.sourceClient, 'things', 'others')
  await using tandem = await pair.startInstance()
  await startSync(tandem, unverified)
  await canCommit(tandem)
  await rowsOf(pair.destinationClient, 'things').drop()
  await rowsOf(pair.sourceClient, 'things').updateMany({ _id: { $lt: 100 } }, { $set: { changed: true } })
  expect((await failed(tandem)).failure).toMatchObject(conflict)
  expect(await tandem.post('resume')).toEqual(accepted)
  await commitEqual(tandem, pair)
  expect(await convergencesOf(pair.destinationClient)).toBe(1)
})

test('a commit without verification fails when somebody has dropped a collection on the destination', async () => {
  await seed(pair.sourceClient, 'things', 'others')
  await using tandem = await pair.startInstance()
  await startSync(tandem, unverified)
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

test('a commit without verification detects that somebody drops a collection while indexes on the destination are prepared', async () => {
  await seed(pair.sourceClient, 'things')
  await rowsOf(pair.sourceClient, 'others').insertOne({ _id: 1 })
  await using tandem = await pair.startInstance()
  await startSync(tandem, unverified)
  await canCommit(tandem)
  // The preparation looks for dropped collections before it changes this unique index, where it is held.
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

test('a collection that somebody drops on the destination before it is verified makes the sync fail, and resume converges it', async () => {
  await seed(pair.sourceClient, 'things', 'others')
  await using tandem = await pair.startInstance()
  await using held = await holdCopy(pair.destinationClient, 'app.others')
  await startSync(tandem, unblocked)
  await expect.poll(() => rowsOf(pair.destinationClient, 'things').countDocuments(), { timeout: 30_000 }).toBe(500)
  await tandem.waitFor(({ collectionCopy }) => (collectionCopy?.estimatedCopiedBytes ?? 0) > 0, {
    timeoutSeconds: 30,
    what: 'copied bytes',
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
