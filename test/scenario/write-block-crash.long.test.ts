import type { MongoClient } from 'mongodb'
import { expect, it, vi } from 'vitest'
import { compareBoth } from '../support/compare-both.ts'
import { failPoint } from '../support/fail-point.ts'
import { pairedSets } from '../support/paired-sets.ts'
import { startSync, type Tandem } from '../support/tandem-process.ts'

/** Write blocking is a mode of the cluster. It outlives the process that set it, so the next process must lift it. */

const pair = pairedSets()
const patience = { timeout: 30_000, interval: 20 }

const things = (client: MongoClient) => client.db('app').collection<{ _id: number }>('things')
const isBlocked = async (client: MongoClient): Promise<boolean> =>
  await things(client)
    .insertOne({ _id: 100 })
    .then(async () => {
      await things(client).deleteOne({ _id: 100 })
      return false
    })
    .catch((error) => {
      expect(error).toMatchObject({ code: 371 })
      return true
    })

async function commitsEqual(tandem: Tandem): Promise<void> {
  await tandem.waitFor((progress) => progress.canCommit, { timeoutSeconds: 60, what: 'ready to commit' })
  expect(await tandem.post('commit')).toEqual({ status: 200, body: { success: true } })
  await committed(tandem)
}

async function committed(tandem: Tandem): Promise<void> {
  await tandem.waitFor(({ state }) => state === 'COMMITTED', { timeoutSeconds: 60, what: 'committed' })
  expect((await compareBoth(pair.source.uri, pair.destination.uri)).differences).toEqual([])
}

it('after an instance has crashed right after it blocked the destination, its successor commits and lifts the block', async () => {
  await things(pair.sourceClient).insertMany([{ _id: 1 }, { _id: 2 }])
  // This is the first write to a user database of the destination, so it follows the blocking.
  const held = { failCommands: ['create'], errorCode: 91, namespace: 'app.things' }
  await using creating = await failPoint(pair.destinationClient, 'failCommand', held)
  {
    await using tandem = await pair.startInstance()
    await startSync(tandem)
    await creating.reached()
    expect(await isBlocked(pair.destinationClient)).toBe(true)
    await tandem.kill9()
  }
  await creating.release()
  expect(await isBlocked(pair.destinationClient)).toBe(true)
  await using tandem = await pair.startInstance()
  await commitsEqual(tandem)
  expect(await isBlocked(pair.destinationClient)).toBe(false)
})

it.each(['blockSource', 'commitPoint', 'unblock'])(
  'after an instance has crashed at %s, its successor completes the commit and leaves writes blocked as configured',
  async (step) => {
    await things(pair.sourceClient).insertMany([{ _id: 1 }, { _id: 2 }])
    {
      await using tandem = await pair.startInstance({ faults: { crashAt: step } })
      await startSync(tandem, { enableUserWriteBlocking: 'sourceAndDestination' })
      await tandem.waitFor((progress) => progress.canCommit, { timeoutSeconds: 60, what: 'ready to commit' })
      await tandem.post('commit').catch(() => {}) // the process may end before it answers
      await vi.waitFor(() => expect(tandem.isRunning()).toBe(false), patience)
      expect(await isBlocked(pair.destinationClient)).toBe(true)
      expect(await isBlocked(pair.sourceClient)).toBe(step !== 'blockSource')
    }
    await using tandem = await pair.startInstance()
    await committed(tandem)
    expect(await isBlocked(pair.destinationClient)).toBe(false)
    expect(await isBlocked(pair.sourceClient)).toBe(true)
  },
)
