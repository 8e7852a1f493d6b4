import { describe, expect, it, vi } from 'vitest'
import {
  accepted,
  canCommit,
  commit,
  committed,
  connected,
  patience,
  ReversiblePair,
  reverse,
  reversible,
  things,
} from '../support/reversible-pair.ts'

/** A process that ends in the middle of a reversal, or of the commit after it, leaves what the next one goes on from. */

const pair = new ReversiblePair({})

describe('a reversal survives its process', () => {
  const steps = [
    'reverseClear',
    'reverseCopy',
    'reverseSwitch',
    'reverseForget',
    'reverseHoldBack',
    'reverseDefinitions',
    'reverseReconcile',
    'reverseEnd',
  ]
  const commitSteps = ['blockSource', 'commitPoint', 'audit', 'capped', 'prepareIndexes', 'reversePosition', 'unblock']

  /** Ends at the step; what it was told may not have been answered. */
  async function endsAt(step: string, command: string): Promise<void> {
    await using tandem = await pair.startTandem({ TANDEM_CRASH_AT: step })
    await connected(tandem)
    if (command === 'commit') await canCommit(tandem)
    await tandem.post(command).catch(() => {})
    await vi.waitFor(() => expect(tandem.isRunning()).toBe(false), patience)
  }

  async function committedSync(): Promise<void> {
    await things(pair.leftClient).createIndexes([
      { key: { u: 1 }, name: 'u', unique: true },
      { key: { at: 1 }, name: 'at', expireAfterSeconds: 1000 },
    ])
    await things(pair.leftClient).insertMany([1, 2, 3].map((_id) => ({ _id, u: _id })))
    const tandem = await pair.commitSync()
    await tandem.stop()
  }

  it.each(steps)('that ends at %s', async (step) => {
    await committedSync()
    await things(pair.rightClient).insertOne({ _id: 'before', u: 'before' })
    await pair.rightClient.db('app').createCollection('new')
    await endsAt(step, 'reverse')
    await things(pair.rightClient).insertOne({ _id: 'meanwhile', u: 'meanwhile' })
    await using tandem = await pair.startTandem()
    await canCommit(tandem)
    expect(await pair.generations()).toEqual([1, null])
    expect((await tandem.progress()).directionMapping?.Source).toMatch(/^cluster1/)
    await things(pair.rightClient).insertOne({ _id: 'after', u: 'after' })
    await commit(tandem)
    await pair.expectEqual()
    expect(await things(pair.leftClient).countDocuments()).toBe(6)
  })

  it.each([...commitSteps, 'finishIndexes'])('and so does the commit after it, ended at %s', async (step) => {
    await committedSync()
    {
      await using tandem = await pair.startTandem()
      await connected(tandem)
      await things(pair.rightClient).insertOne({ _id: 'reversed', u: 'reversed' })
      await reverse(tandem)
      await tandem.kill9()
    }
    await endsAt(step, 'commit')
    await using tandem = await pair.startTandem()
    await committed(tandem)
    await pair.expectEqual()
    // And once more, with the position that this commit left.
    await things(pair.leftClient).insertOne({ _id: 'again', u: 'again' })
    await reverse(tandem)
    await commit(tandem)
    await pair.expectEqual()
    expect(await things(pair.rightClient).countDocuments()).toBe(5)
    expect(await pair.generations()).toEqual([null, 2])
  })

  it('PAUSED, RUNNING and COMMITTED after a reversal stay so over a restart, and start knows the direction', async () => {
    await committedSync()
    const forward = { source: 'cluster0', destination: 'cluster1', verification: { enabled: false }, ...reversible }
    const backward = { ...forward, source: 'cluster1', destination: 'cluster0' }
    await using first = await pair.startTandem()
    await connected(first)
    expect(await first.post('start', forward)).toEqual(accepted)
    await reverse(first)
    expect(await first.post('start', backward)).toEqual(accepted)
    expect(await first.post('start', forward)).toMatchObject({ status: 409, body: { error: 'WrongState' } })
    expect(await first.post('pause')).toEqual(accepted)
    await first.kill9()

    await using second = await pair.startTandem()
    const paused = await connected(second)
    expect(paused).toMatchObject({ state: 'PAUSED', canWrite: false, lagTimeSeconds: null })
    expect(paused.directionMapping?.Source).toMatch(/^cluster1/)
    expect(await second.post('start', backward)).toEqual(accepted)
    expect(await second.post('resume')).toEqual(accepted)
    await commit(second)
    await second.kill9()

    await using third = await pair.startTandem()
    const last = await connected(third)
    expect(last).toMatchObject({ state: 'COMMITTED', canWrite: true, info: 'commit completed', lagTimeSeconds: 0 })
    expect(last.directionMapping?.Source).toMatch(/^cluster1/)
    await reverse(third)
  })
})
