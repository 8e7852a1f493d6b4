import { expect, it, vi } from 'vitest'
import { accepted, canCommit, committed } from '../support/commits.ts'
import { compareBoth } from '../support/compare-both.ts'
import { ended } from '../support/cutover.ts'
import { seedForCutover, type Thing, things } from '../support/cutover-data.ts'
import { holdTandem } from '../support/fail-point.ts'
import { pairedSets } from '../support/paired-sets.ts'
import { startSync, type Tandem } from '../support/tandem-process.ts'

/**
 * With `destinationOnly` the source is never blocked, so the application may write there at any moment of a commit. Such a
 * write makes the commit fail, or the warnings name it. No write is lost without a message.
 */

const pair = pairedSets()
const patience = { timeout: 5_000, interval: 50 }
const late: Thing = { _id: 7001, u: 7001, by: 'the application' }

async function ready(): Promise<Tandem> {
  await seedForCutover(pair.sourceClient)
  const tandem = await pair.startInstance()
  await startSync(tandem, { enableUserWriteBlocking: 'destinationOnly' })
  await canCommit(tandem)
  return tandem
}

it('a write on the source while TTL is restored on the destination fails the commit, and resume migrates that write and commits', async () => {
  await using tandem = await ready()
  {
    await using restoring = await holdTandem(pair.destinationClient, 'collMod', 'app.expiring')
    expect(await tandem.post('commit')).toEqual(accepted)
    await restoring.reached()
    await things(pair.sourceClient).insertOne(late)
  }
  const { state, failure, canWrite } = await ended(tandem)
  expect([state, failure?.error, canWrite]).toEqual(['FAILED', 'SourceWritten', false])
  expect(failure?.errorDescription).toMatch(/app\.things.*"7001"/)
  expect(await tandem.post('resume')).toEqual(accepted)
  await committed(tandem)
  expect((await compareBoth(pair.source.uri, pair.destination.uri)).differences).toEqual([])
})

it('a write on the source between the last check and the unblocking of the destination is named in the warnings', async () => {
  await using tandem = await ready()
  {
    await using unblocking = await holdTandem(pair.destinationClient, 'setUserWriteBlockMode')
    expect(await tandem.post('commit')).toEqual(accepted)
    await unblocking.reached()
    await things(pair.sourceClient).insertOne(late)
    await things(pair.sourceClient).updateOne({ _id: 5 }, { $set: { by: 'the application' } })
  }
  expect((await ended(tandem)).state).toBe('COMMITTED')
  // The sync does not migrate this write, because users own the destination as soon as the decision is stored.
  expect(await things(pair.destinationClient).findOne({ _id: late._id })).toBeNull()
  await vi.waitFor(async () => {
    const { warnings = [] } = await tandem.progress()
    const named = warnings.filter((warning) => warning.includes('app.things')).join('\n')
    expect(named).toMatch(/"7001"/)
    expect(named).toMatch(/"5"/)
  }, patience)
})
