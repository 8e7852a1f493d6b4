import { expect, test } from 'vitest'
import { commitEqual } from '../support/commit-equal.ts'
import { accepted, canCommit, failed } from '../support/commits.ts'
import { holdCopy, holdTandem } from '../support/fail-point.ts'
import { pairedSets } from '../support/paired-sets.ts'
import { rowsOf } from '../support/rows.ts'
import { startSync } from '../support/tandem-process.ts'
import { conflict, seed, unverified } from './dropped-by-another.ts'

/** Somebody else drops a collection on the destination. The sync waits ten seconds for the collection before it fails. */

const pair = pairedSets()

test('a collection that somebody drops on the destination while it is copied makes the sync fail, and resume converges it', async () => {
  await seed(pair.sourceClient, 'things', 'others')
  await using tandem = await pair.startInstance()
  await using held = await holdCopy(pair.destinationClient, 'app.things')
  await startSync(tandem, unverified)
  await held.reached()
  await rowsOf(pair.destinationClient, 'things').drop()
  await held.release()
  expect((await failed(tandem)).failure).toMatchObject(conflict)
  expect(await tandem.post('resume')).toEqual(accepted)
  await commitEqual(tandem, pair)
})

test('a commit that fails because of a dropped collection cannot be resumed; after an abort, resume converges the collection', async () => {
  await seed(pair.sourceClient, 'things')
  await using tandem = await pair.startInstance()
  await startSync(tandem, unverified)
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
