import { setTimeout as delay } from 'node:timers/promises'
import { expect, it, vi } from 'vitest'
import { metadataDatabase } from '../../src/domain/namespace.ts'
import { pairedSets } from '../support/paired-sets.ts'
import { startSync } from '../support/tandem-process.ts'

/** An instance that has nothing to do sends few commands. After the commit, it sends the source none for the lag. */

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
  // The instance still publishes its heartbeat every few seconds, less often than it would send a ping.
  const nextHeartbeat = async (): Promise<void> => {
    const before = await heartbeats()
    await vi.waitFor(async () => expect(await heartbeats()).not.toBe(before), patience)
  }
  // One ping may still be in flight until the first heartbeat.
  await nextHeartbeat()
  const committed = await pings()
  for (let count = 0; count < 2; count++) await nextHeartbeat()
  expect(await pings()).toBe(committed)
})

it('two instances that have nothing to do send the destination one read per second each, and few writes', async () => {
  await pair.sourceClient.db('app').collection('things').insertOne({ n: 1 })
  await using one = await pair.startInstance({ id: 'one' })
  await using other = await pair.startInstance({ id: 'other' })
  const instances = [one, other]
  for (const instance of instances) await startSync(instance, { verification: { enabled: false } })
  for (const instance of instances) {
    await instance.waitFor(({ canCommit }) => canCommit, { timeoutSeconds: 60, what: 'ready to commit' })
  }
  const sent = async (): Promise<{ reads: number; writes: number }> => {
    const { metrics } = await pair.destinationClient.db('admin').command({ serverStatus: 1 })
    const total = (name: string): number => Number(metrics.commands[name]?.total ?? 0)
    return {
      reads: total('aggregate') + total('find'),
      writes: total('update') + total('insert') + total('findAndModify'),
    }
  }
  const seconds = 5
  // Rounds rest once nothing has changed for some seconds. Reports that follow once a minute may disturb one attempt.
  const attempt = async (): Promise<void> => {
    const before = await sent()
    await delay(seconds * 1_000)
    const after = await sent()
    const perSecond = (name: 'reads' | 'writes') => (after[name] - before[name]) / seconds / instances.length
    expect(perSecond('reads')).toBeLessThan(1.4)
    expect(perSecond('writes')).toBeLessThan(1.4)
  }
  await vi.waitFor(attempt, { timeout: 90_000, interval: 100 })
})
