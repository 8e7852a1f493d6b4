import { expect, it, vi } from 'vitest'
import { pairedSets } from '../support/paired-sets.ts'
import { startSync } from '../support/tandem-process.ts'

/** What an instance asks of its clusters while it has nothing to do. */

const pair = pairedSets()
const patience = { timeout: 60_000, interval: 100 }
/** Of the source; nothing of the drivers' own sends any. */
const pings = async (): Promise<number> => {
  const { metrics } = await pair.sourceClient.db('admin').command({ serverStatus: 1 })
  return Number(metrics.commands.ping.total)
}

it('an instance asks the source for its time while lag is reported, and no longer once it has committed', async () => {
  await pair.sourceClient.db('app').collection('things').insertOne({ n: 1 })
  await using tandem = await pair.startInstance()
  await startSync(tandem)
  await tandem.waitFor(({ canCommit }) => canCommit, { timeoutSeconds: 60, what: 'ready to commit' })
  const running = await pings()
  await vi.waitFor(async () => expect(await pings()).toBeGreaterThan(running + 1), patience)
  expect(await tandem.post('commit')).toMatchObject({ status: 200 })
  await tandem.waitFor(({ state }) => state === 'COMMITTED', { timeoutSeconds: 60, what: 'committed' })
  const members = pair.destinationClient.db('tandem_internal').collection('members')
  const beat = async (): Promise<string> => JSON.stringify(await members.find().toArray())
  // It still tells the others that it is there, each second: as often as a ping would have come.
  const nextBeat = async (): Promise<void> => {
    const seen = await beat()
    await vi.waitFor(async () => expect(await beat()).not.toBe(seen), patience)
  }
  // One ping may be under way at the first.
  await nextBeat()
  const committed = await pings()
  for (let beats = 0; beats < 3; beats++) await nextBeat()
  expect(await pings()).toBe(committed)
})
