import type { Document } from 'mongodb'
import { expect, it, vi } from 'vitest'
import { accepted, canCommit, committed } from '../support/commits.ts'
import { compareBoth } from '../support/compare-both.ts'
import { seedForCutover } from '../support/cutover-data.ts'
import { type FailPoint, failPoint, holdTandem } from '../support/fail-point.ts'
import { pairedSets } from '../support/paired-sets.ts'
import { startSync, type Tandem } from '../support/tandem-process.ts'
import { writesBlocked } from '../support/write-block-mode.ts'

/** An instance that fails, pauses or restarts during an abort still undoes the commit: users wait for the blocked source. */

const pair = pairedSets()
const patience = { timeout: 20_000, interval: 20 }

/** Runs `then` during a commit that has blocked the source and waits on the destination; releases the commit at the end. */
async function duringCommit(tandem: Tandem, then: () => Promise<void>): Promise<void> {
  await using held = await holdTandem(pair.destinationClient, 'collMod', 'app.expiring')
  expect(await tandem.post('commit')).toEqual(accepted)
  await held.reached()
  expect(await writesBlocked(pair.sourceClient)).toBe(true)
  await then()
}

async function ready(): Promise<Tandem> {
  await seedForCutover(pair.sourceClient)
  const tandem = await pair.startInstance()
  await startSync(tandem, { enableUserWriteBlocking: 'sourceAndDestination' })
  await canCommit(tandem)
  return tandem
}

const unblocked = () => vi.waitFor(async () => expect(await writesBlocked(pair.sourceClient)).toBe(false), patience)

async function expectCommits(tandem: Tandem): Promise<void> {
  await canCommit(tandem)
  expect(await tandem.post('commit')).toEqual(accepted)
  await committed(tandem)
  expect((await compareBoth(pair.source.uri, pair.destination.uri)).differences).toEqual([])
}

it('an instance that fails during an abort still unblocks the source, and commits after a resume', async () => {
  await using tandem = await ready()
  const refused = { failCommands: ['setUserWriteBlockMode'], errorCode: 96 }
  await duringCommit(tandem, async () => {
    // The error is not transient, so the instance fails.
    await failPoint(pair.sourceClient, 'failCommand', refused, { times: 1 })
    expect(await tandem.post('abort')).toEqual(accepted)
    const failed = await tandem.waitFor(({ state }) => state === 'FAILED', { timeoutSeconds: 20, what: 'FAILED' })
    expect(failed.failure?.errorDescription).toMatch(/96/)
  })
  await unblocked()
  expect((await tandem.progress()).state).toBe('FAILED')
  expect(await tandem.post('resume')).toEqual(accepted)
  await expectCommits(tandem)
})

it('an instance that is paused and killed during an abort unblocks the source after its restart and stays PAUSED', async () => {
  const tandem = await ready()
  await duringCommit(tandem, async () => {
    const refused = { failCommands: ['setUserWriteBlockMode'], errorCode: 262 }
    await using held = await failPoint(pair.sourceClient, 'failCommand', refused)
    expect(await tandem.post('abort')).toEqual(accepted)
    await held.reached()
    expect(await tandem.post('pause')).toEqual(accepted)
    await tandem.kill9()
  })
  expect(await writesBlocked(pair.sourceClient)).toBe(true)
  await using successor = await pair.startInstance()
  await unblocked()
  expect((await successor.progress()).state).toBe('PAUSED')
  expect(await successor.post('resume')).toEqual(accepted)
  await expectCommits(successor)
})

it('a paused instance that cannot acquire its lease at first completes the abort once it can', async () => {
  await using tandem = await ready()
  const internal = pair.destinationClient.db('tandem_internal')
  const leases = internal.collection<{ _id: string; epoch: number }>('leases')
  const _id = `instance:${(await tandem.progress()).mongosyncID}`
  const refused = { failCommands: ['setUserWriteBlockMode'], errorCode: 262 }
  let held: FailPoint | undefined
  await duringCommit(tandem, async () => {
    held = await failPoint(pair.sourceClient, 'failCommand', refused)
    expect(await tandem.post('abort')).toEqual(accepted)
    await held.reached()
    expect(await tandem.post('pause')).toEqual(accepted)
  })
  await using _ = held as FailPoint
  // The lease looks as another instance leaves it after it has evicted this one and drained its writes. In addition, the invalid
  // field `predecessors` makes each acquisition fail at once instead of after 30 minutes.
  const evicted = { buried: true, takesWork: false, expiresAt: new Date(0), predecessors: 7 }
  const epochs = { epoch: { $add: ['$epoch', 1] }, settled: { $add: ['$epoch', 2] } }
  const before = await leases.findOne({ _id })
  const change = (u: Document | Document[]) =>
    internal.command({ update: 'leases', updates: [{ q: { _id }, u }], mayBypassWriteBlocking: true })
  await change([{ $set: { ...evicted, ...epochs } }])
  await vi.waitFor(async () => {
    const lease = await leases.findOne({ _id })
    expect(lease).toMatchObject({ buried: false, predecessors: 7 })
    expect(lease?.epoch).toBeGreaterThan((before?.epoch ?? 0) + 1)
  }, patience)
  await held?.release()
  expect(await writesBlocked(pair.sourceClient)).toBe(true)
  await change({ $set: { predecessors: [] } })
  await unblocked()
  expect((await tandem.progress()).state).toBe('PAUSED')
  expect(await tandem.post('resume')).toEqual(accepted)
  await expectCommits(tandem)
})

it('an abort ends before another commit begins: until then canCommit is false, and a commit is refused with the reason', async () => {
  await using tandem = await ready()
  await duringCommit(tandem, async () => {
    // From now on no collection's options can be deferred again, so the abort cannot end.
    await using _ = await holdTandem(pair.destinationClient, 'collMod')
    expect(await tandem.post('abort')).toEqual(accepted)
    await unblocked()
    const progress = await tandem.progress()
    expect(progress).toMatchObject({ state: 'RUNNING', canCommit: false })
    const refusal = expect.stringMatching(/aborted.*being undone/)
    expect(progress.warnings).toContainEqual(refusal)
    expect(await tandem.post('commit')).toMatchObject({
      status: 409,
      body: { error: 'CannotCommit', errorDescription: refusal },
    })
  })
  await expectCommits(tandem)
})
