import type { Document } from 'mongodb'
import { expect, it, vi } from 'vitest'
import { metadataDatabase } from '../../src/domain/namespace.ts'
import { accepted } from '../support/commits.ts'
import { type FailPoint, failPoint } from '../support/fail-point.ts'
import { writesBlocked } from '../support/write-block-mode.ts'
import { abortedPair } from './abort-at-rest.ts'

/** An instance that is paused or restarted during an abort, or that has no lease at first, still undoes the commit. */

const { pair, duringCommit, ready, unblocked, expectCommits } = abortedPair()
const patience = { timeout: 20_000, interval: 20 }

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
  const internal = pair.destinationClient.db(metadataDatabase)
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
  // Another instance leaves the lease in this form after it has evicted this instance and drained its writes. In addition, the
  // invalid field `predecessors` makes each acquisition fail at once instead of after 30 minutes.
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
