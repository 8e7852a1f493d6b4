import { expect, it, vi } from 'vitest'
import { metadataDatabase } from '../../src/domain/namespace.ts'
import { metricsOf } from '../support/metrics-of.ts'
import { pairedSets } from '../support/paired-sets.ts'
import { startSync, startTandem } from '../support/tandem-process.ts'

/** /metrics shows the metrics that the alerts of docs/metrics.md use, in each state that these alerts cover. */

/** The server truncates the oplog at checkpoints, which run every second here. */
const pair = pairedSets({ source: { oplogSizeMB: 16, extraArgs: ['--syncdelay', '1'] } })
/** tandem reads the oplog window once a minute. */
const soon = { timeout: 180_000, interval: 200 }
const oplog = 'tandem_oplog_remaining_seconds'

/** 200 of these documents exceed the size of the oplog. The server truncates the oplog only while it writes new entries. */
async function fillOplog(documents = 200): Promise<void> {
  const big = 'x'.repeat(200_000)
  const filler = pair.sourceClient.db('fill').collection<{ _id: number; big: string }>('fill')
  for (let at = 0; at < documents; at++)
    await filler.replaceOne({ _id: at % 5 }, { big: `${at}${big}` }, { upsert: true })
}

it('/metrics shows the remaining oplog while RUNNING, PAUSED and FAILED, and the number of differing documents', async () => {
  await fillOplog()
  await pair.sourceClient.db('app').collection<{ _id: number }>('things').insertOne({ _id: 1 })
  await using tandem = await pair.startInstance()
  await startSync(tandem, { enableUserWriteBlocking: 'none' })
  await tandem.waitFor(({ canCommit }) => canCommit, { timeoutSeconds: 60, what: 'canCommit' })
  const shows = (expected: Record<string, unknown>) =>
    vi.waitFor(async () => expect(Object.fromEntries(await metricsOf(tandem.url))).toMatchObject(expected), soon)
  await shows({ 'tandem_state{state="RUNNING"}': 1, tandem_oplog_visible: 1, tandem_copying: 0 })
  await shows({ [oplog]: expect.any(Number), tandem_differing_documents: 0, 'tandem_instances{status="alive"}': 1 })

  // A foreign write on the destination leaves a permanent difference.
  await pair.destinationClient.db('app').collection<{ _id: number }>('things').insertOne({ _id: 2 })
  const rechecks = pair.destinationClient.db(metadataDatabase).collection('rechecks')
  await vi.waitFor(async () => expect(await rechecks.countDocuments()).toBe(1), soon)
  expect(await tandem.post('pause')).toMatchObject({ status: 200 })
  await shows({ 'tandem_state{state="PAUSED"}': 1, tandem_differing_documents: 1, [oplog]: expect.any(Number) })
  expect(await tandem.post('resume')).toMatchObject({ status: 200 })
  await tandem.waitFor(({ canCommit }) => canCommit, { timeoutSeconds: 60, what: 'canCommit again' })
  expect(await tandem.post('commit')).toMatchObject({ status: 200 })
  await tandem.waitFor(({ state }) => state === 'FAILED', { timeoutSeconds: 120, what: 'FAILED' })
  await shows({ 'tandem_state{state="FAILED"}': 1, tandem_mismatches: 1, [oplog]: expect.any(Number) })

  // A FAILED sync does not advance, so the source removes the oplog entry at its position.
  const expectNothingLeft = async (): Promise<void> => {
    await fillOplog(10)
    const metrics = await metricsOf(tandem.url)
    expect([metrics.get('tandem_state{state="FAILED"}'), metrics.get(oplog)]).toEqual([1, 0])
  }
  await fillOplog()
  await vi.waitFor(expectNothingLeft, { ...soon, interval: 1_000 })
})

it('another instance counts a killed instance as lost on /metrics', async () => {
  const options = { cluster0: pair.source.uri, cluster1: pair.destination.uri }
  await using one = await startTandem({ ...options, id: 'one' })
  await using other = await startTandem({ ...options, id: 'other' })
  await vi.waitFor(async () => Promise.all([one.progress(), other.progress()]), soon)
  await startSync(one)
  await startSync(other)
  const instances = async () => {
    const metrics = await metricsOf(one.url)
    return [metrics.get('tandem_instances{status="alive"}'), metrics.get('tandem_instances{status="lost"}')]
  }
  await vi.waitFor(async () => expect(await instances()).toEqual([2, 0]), soon)
  await other.kill9()
  await vi.waitFor(async () => expect(await instances()).toEqual([1, 1]), soon)
  await expect(metricsOf(other.url)).rejects.toThrow()
})
