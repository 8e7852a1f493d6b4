import { expect, it, vi } from 'vitest'
import { metadataDatabase } from '../../src/domain/namespace.ts'
import { accepted } from '../support/commits.ts'
import { compareBoth } from '../support/compare-both.ts'
import { seedForCutover } from '../support/cutover-data.ts'
import { expectAccepted } from '../support/instances.ts'
import { pairedSets } from '../support/paired-sets.ts'
import type { Tandem } from '../support/tandem-process.ts'

/** An abort that an instance receives late does not abort a later commit. */

const pair = pairedSets()
const body = { source: 'cluster0', destination: 'cluster1', enableUserWriteBlocking: 'sourceAndDestination' }
const patience = { timeout: 90_000, interval: 50 }

const stored = async () =>
  await pair.destinationClient
    .db(metadataDatabase)
    .collection('stages')
    .findOne({ _id: 'sync' as never })

async function twoReady() {
  await seedForCutover(pair.sourceClient)
  const all = await pair.startInstances('a', 'b')
  await all.allReach(({ state }) => state === 'IDLE', 'IDLE')
  expectAccepted(await all.post('start', body))
  await all.allReach((progress) => progress.canCommit, 'ready to commit')
  const coordinator = await all.coordinator()
  const other = [...all.members.values()].find((tandem) => tandem !== coordinator) as Tandem
  return { all, coordinator, other }
}

it('an instance that receives an abort late does not abort the commit that was sent after the abort', async () => {
  const { all, coordinator, other } = await twoReady()
  await using _ = all
  expect(await coordinator.post('commit')).toEqual(accepted)
  process.kill(other.pid, 'SIGSTOP')
  const aborted = coordinator.post('all/abort')
  await vi.waitFor(async () => expect(await stored()).toMatchObject({ context: { aborts: 1 } }), patience)
  await coordinator.waitFor(({ canCommit }) => canCommit, { timeoutSeconds: 60, what: 'ready to commit again' })
  expect(await coordinator.post('commit')).toEqual(accepted)
  process.kill(other.pid, 'SIGCONT')
  expect(await aborted).toMatchObject({ status: 200, body: { success: true } })
  expect(await stored()).toMatchObject({ context: { aborts: 1, request: { dryRun: false } } })
  expect(await other.post('commit')).toEqual(accepted)
  await all.allReach(({ state }) => state === 'COMMITTED', 'committed')
  expect((await compareBoth(pair.source.uri, pair.destination.uri)).differences).toEqual([])
})

it('an abort that is sent while no commit is under way does not abort a commit that begins before an instance receives the abort', async () => {
  const { all, coordinator, other } = await twoReady()
  await using _ = all
  process.kill(other.pid, 'SIGSTOP')
  const aborted = coordinator.post('all/abort')
  const records = pair.destinationClient.db(metadataDatabase).collection('commands')
  await vi.waitFor(async () => expect(await records.countDocuments()).toBe(1), patience)
  expect(await coordinator.post('commit')).toEqual(accepted)
  process.kill(other.pid, 'SIGCONT')
  expect(await aborted).toMatchObject({ status: 409, body: { error: 'WrongState' } })
  expect(await stored()).toMatchObject({ context: { aborts: 0, request: { dryRun: false } } })
})

it('a commit on another instance during a rehearsal is refused with ConfigurationMismatch, and another dryRun is accepted', async () => {
  const { all, coordinator, other } = await twoReady()
  await using _ = all
  expect(await coordinator.post('commit', { dryRun: true })).toEqual(accepted)
  expect(await other.post('commit')).toMatchObject({
    status: 422,
    body: { error: 'ConfigurationMismatch', errorDescription: expect.stringMatching(/dryRun true.*send the same/) },
  })
  expect(await other.post('commit', { dryRun: true })).toEqual(accepted)
  await all.allReach(
    ({ lastRehearsal, state }) => state === 'RUNNING' && lastRehearsal?.verdict === 'equal',
    'rehearsed',
  )
})
