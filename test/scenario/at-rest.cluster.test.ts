import { expect, it, vi } from 'vitest'
import { metadataDatabase } from '../../src/domain/namespace.ts'
import { pairedSets } from '../support/paired-sets.ts'
import { startSync } from '../support/tandem-process.ts'

/** After the commit, an instance sends the source no more commands for the lag. */

const pair = pairedSets()
const patience = { timeout: 60_000, interval: 100 }
/** Returns the number of `ping` commands that the source has received. The drivers send no pings by themselves. */
const pings = async (): Promise<number> => {
  const { metrics } = await pair.sourceClient.db('admin').command({ serverStatus: 1 })
  return Number(metrics.commands.ping.total)
}

it('an instance reads the cluster time of the source while it reports the lag, and stops once it has committed', async () => {
  await pair.sourceClient.db('app').collection('things').insertOne({ n: 1 })
  await using tandem = await pair.startInstance()
  await startSync(tandem)
  await tandem.waitFor(({ canCommit }) => canCommit, { timeoutSeconds: 60, what: 'ready to commit' })
  const running = await pings()
  await vi.waitFor(async () => expect(await pings()).toBeGreaterThan(running + 1), patience)
  expect(await tandem.post('commit')).toMatchObject({ status: 200 })
  await tandem.waitFor(({ state }) => state === 'COMMITTED', { timeoutSeconds: 60, what: 'committed' })
  const members = pair.destinationClient.db(metadataDatabase).collection('members')
  const heartbeats = async (): Promise<string> => JSON.stringify(await members.find().toArray())
  // The instance still publishes its heartbeat every second, as often as it would send a ping.
  const nextHeartbeat = async (): Promise<void> => {
    const before = await heartbeats()
    await vi.waitFor(async () => expect(await heartbeats()).not.toBe(before), patience)
  }
  // One ping may still be in flight until the first heartbeat.
  await nextHeartbeat()
  const committed = await pings()
  for (let count = 0; count < 3; count++) await nextHeartbeat()
  expect(await pings()).toBe(committed)
})
