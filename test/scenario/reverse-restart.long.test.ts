import { setTimeout as sleep } from 'node:timers/promises'
import { describe, expect, it, vi } from 'vitest'
import { metadataDatabase } from '../../src/domain/namespace.ts'
import { accepted, canCommit, commit, committed } from '../support/commits.ts'
import { Random } from '../support/random.ts'
import { connected, patience, ReversiblePair, reverse, reversible, things } from '../support/reversible-pair.ts'
import { seedData } from '../support/seed-data.ts'
import { startSync } from '../support/tandem-process.ts'
import { createWorkload } from '../support/workload.ts'

/** When a process ends during a reversal or during the commit after it, the next process continues from the stored state. */

const pair = new ReversiblePair({ oplogSizeMB: 1024 })

describe('a reversal', () => {
  const steps = [
    'reverseClear',
    'reverseCopy',
    'reverseSwitch',
    'reverseClearFormer',
    'reverseDeferOptions',
    'reverseDefinitions',
    'reverseReconcile',
    'reverseEnd',
  ]
  const commitSteps = [
    'blockSource',
    'commitPoint',
    'compareDefinitions',
    'capped',
    'prepareIndexes',
    'reversePosition',
    'verdict',
    'unblock',
  ]

  const stepsAfterReversePosition = ['verdict', 'unblock', 'finishIndexes']

  /** Runs an instance that crashes at this step of the command. The command may stay unanswered. */
  async function endsAt(step: string, command: string): Promise<void> {
    await using tandem = await pair.startTandem({ crashAt: step })
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

  it.each(steps)('survives a crash at %s', async (step) => {
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

  it.each([...commitSteps, 'finishIndexes'])('is followed by a commit that survives a crash at %s', async (step) => {
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
    expect(await pair.generations()).toEqual([1, null])
    // If the crash came after the commit had stored the position for the next reversal, that reversal starts there.
    if (!stepsAfterReversePosition.includes(step)) return
    await things(pair.leftClient).insertOne({ _id: 'again', u: 'again' })
    await reverse(tandem)
    await commit(tandem)
    await pair.expectEqual()
    expect(await things(pair.rightClient).countDocuments()).toBe(5)
    expect(await pair.generations()).toEqual([null, 2])
  })

  it('applies writes of users that followed a crash right after the commit had enabled writes', async () => {
    await things(pair.leftClient).insertOne({ _id: 1 })
    {
      await using tandem = await pair.startTandem({ crashAt: 'unblocked' })
      // The verifier would report the user's write as a difference.
      await startSync(tandem, { ...reversible, verification: { enabled: false } })
      await canCommit(tandem)
      await tandem.post('commit').catch(() => {}) // the process may crash before it answers
      await vi.waitFor(() => expect(tandem.isRunning()).toBe(false), patience)
    }
    await things(pair.rightClient).insertOne({ _id: 'between' })
    await using tandem = await pair.startTandem()
    await committed(tandem)
    await reverse(tandem)
    await commit(tandem)
    expect(await things(pair.leftClient).countDocuments()).toBe(2)
    await pair.expectEqual()
  })

  it('leaves PAUSED and COMMITTED unchanged over a restart, and a start must name the current direction', async () => {
    await committedSync()
    const forward = { source: 'cluster0', destination: 'cluster1', ...reversible }
    const backward = { ...forward, source: 'cluster1', destination: 'cluster0' }
    await using first = await pair.startTandem()
    await connected(first)
    expect(await first.post('start', forward)).toMatchObject(accepted)
    await reverse(first)
    // The instance accepts no start here, because its state has changed since the restart.
    for (const either of [backward, forward]) {
      expect(await first.post('start', either)).toMatchObject({ status: 409, body: { error: 'WrongState' } })
    }
    expect(await first.post('pause')).toEqual(accepted)
    await first.kill9()

    await using second = await pair.startTandem()
    const paused = await connected(second)
    expect(paused).toMatchObject({ state: 'PAUSED', canWrite: false, lagTimeSeconds: null })
    expect(paused.directionMapping?.Source).toMatch(/^cluster1/)
    expect(await second.post('start', backward)).toMatchObject(accepted)
    expect(await second.post('resume')).toEqual(accepted)
    await commit(second)
    await second.kill9()

    await using third = await pair.startTandem()
    const last = await connected(third)
    expect(last).toMatchObject({ state: 'COMMITTED', canWrite: true, info: 'commit completed', lagTimeSeconds: 0 })
    expect(last.directionMapping?.Source).toMatch(/^cluster1/)
    await reverse(third)
  })

  it.each([
    ['moves the metadata', 'update'],
    ['prepares the destination', 'collMod'],
  ])('that fails while it %s loses nothing, also over a restart, and resume continues it', async (_what, command) => {
    await committedSync()
    await things(pair.rightClient).insertOne({ _id: 'reversed', u: 'reversed' })
    const admin = pair.leftClient.db('admin')
    const data = { failCommands: [command], errorCode: 96 }
    await admin.command({ configureFailPoint: 'failCommand', mode: 'alwaysOn', data })
    {
      await using tandem = await pair.startTandem()
      await connected(tandem)
      expect(await tandem.post('reverse')).toEqual(accepted)
      const { failure } = await tandem.waitFor(({ state }) => state === 'FAILED', {
        timeoutSeconds: 30,
        what: 'FAILED',
      })
      expect(failure?.errorDescription).toMatch(/96/)
      // Progress shows the failure a moment before it is stored.
      await vi.waitFor(async () => {
        const stored = [pair.leftClient, pair.rightClient].map((client) =>
          client.db(metadataDatabase).collection('instances').find().toArray(),
        )
        expect(JSON.stringify((await Promise.all(stored)).flat())).toContain('InternalError')
      }, patience)
      await tandem.kill9()
    }
    await using tandem = await pair.startTandem()
    expect((await connected(tandem)).state).toBe('FAILED')
    await admin.command({ configureFailPoint: 'failCommand', mode: 'off' })
    expect(await tandem.post('resume')).toEqual(accepted)
    await commit(tandem)
    await pair.expectEqual()
    expect(await things(pair.leftClient).countDocuments()).toBe(4)
  })

  it.each([711])('survives kills at any moment of every cycle under a random workload: seed %i', async (seed) => {
    const random = new Random(`kills ${seed}`)
    await seedData(pair.left.uri, seed, 0.1)
    let tandem = await pair.startTandem()
    const kill = async () => {
      await sleep(random.int(0, 1_200))
      await tandem.kill9()
      tandem = await pair.startTandem()
      await connected(tandem)
    }
    try {
      await startSync(tandem, reversible)
      for (const [cycle, uri] of [pair.left.uri, pair.right.uri, pair.left.uri].entries()) {
        const workload = createWorkload({ uri, seed: `${seed} leg ${cycle}`, ddl: true, transactions: true })
        if (cycle > 0) {
          await workload.runSteps(40)
          expect(await tandem.post('reverse')).toEqual(accepted)
        }
        await Promise.all([workload.runSteps(100), kill()])
        await kill()
        await canCommit(tandem)
        await workload.runSteps(20)
        expect(await tandem.post('commit')).toEqual(accepted)
        await kill()
        await committed(tandem)
        await pair.expectEqual()
      }
    } finally {
      await tandem.stop()
    }
  })

  it('survives elections on both clusters', async () => {
    await committedSync()
    await using tandem = await pair.startTandem()
    await connected(tandem)
    await things(pair.rightClient).insertOne({ _id: 'reversed', u: 'reversed' })
    expect(await tandem.post('reverse')).toEqual(accepted)
    await Promise.all([pair.left.stepDown(), pair.right.stepDown()])
    await commit(tandem)
    await pair.expectEqual()
    expect(await things(pair.leftClient).countDocuments()).toBe(4)
  })
})
