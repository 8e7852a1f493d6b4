import { setTimeout as sleep } from 'node:timers/promises'
import { afterEach, expect, it, vi } from 'vitest'
import { metadataDatabase } from '../../src/domain/namespace.ts'
import { accepted } from '../support/commits.ts'
import { expectAccepted, type Instances, startInstances } from '../support/instances.ts'
import { loadBulk } from '../support/load-bulk.ts'
import { pairedSets } from '../support/paired-sets.ts'
import { slowness } from '../support/slowness.ts'
import type { Tandem } from '../support/tandem-process.ts'

/** Instances of one sync that are paused, resumed, stopped, lost and restarted. See test/contract.md. */

const pair = pairedSets()
const patience = { timeout: 30_000, interval: 50 }
const body = { source: 'cluster0', destination: 'cluster1' }
let startedInstances: Instances | null = null

afterEach(async () => {
  await startedInstances?.stop()
  startedInstances = null
})

async function running(ids: string[], { ready = true } = {}): Promise<Instances> {
  const started = await startInstances(ids, { cluster0: pair.source.uri, cluster1: pair.destination.uri })
  startedInstances = started
  await started.allReach(({ state }) => state === 'IDLE', 'IDLE')
  expectAccepted(await started.post('start', body))
  if (!ready) return started
  await started.allReach(({ canCommit }) => canCommit, 'ready to commit')
  await vi.waitFor(async () => expect(await shares(started)).not.toContain(0), patience)
  return started
}

function member(id: string): Tandem {
  const found = startedInstances?.members.get(id)
  if (!found) throw new Error(`${id} does not run`)
  return found
}

/** Returns the number of partitions of each instance. Fails unless all instances report the same partitions. */
async function shares(group: Instances): Promise<number[]> {
  const reports = await Promise.all([...group.members.values()].map((one) => group.instances(one)))
  const [first, ...others] = reports.map(({ instances }) => instances.map((one) => [one.mongosyncID, one.partitions]))
  for (const other of others) expect(other).toEqual(first)
  const { instances } = reports[0] ?? { instances: [] }
  expect(new Set(instances.flatMap((one) => one.partitions)).size).toBe(16)
  return instances.map((one) => one.partitions.length)
}

const partitionsOf = async (id: string, by: Tandem): Promise<number[]> =>
  (await (startedInstances as Instances).instances(by)).instances.find((one) => one.mongosyncID === id)?.partitions ??
  []
const stateOf = (id: string, state: string, timeoutSeconds = 30) =>
  member(id).waitFor((progress) => progress.state === state, { timeoutSeconds, what: state })
const things = () => pair.sourceClient.db('app').collection<{ _id: number }>('things')
const copied = () => pair.destinationClient.db('app').collection('things').countDocuments()
const insert = (from: number, count: number) =>
  things().insertMany(Array.from({ length: count }, (_, index) => ({ _id: from + index })))
const owners = async () => {
  const claims = await pair.destinationClient
    .db(metadataDatabase)
    .collection<{ _id: number | string; owner: string | null }>('ownership')
    .find({ _id: { $gte: 0 } })
    .toArray()
  return claims.map(({ owner }) => owner?.split('#')[0] ?? null)
}

it('README: pause and resume act on one instance, which keeps its partitions while the others continue', async () => {
  await insert(0, 200)
  await running(['a', 'b', 'c'])
  const kept = await partitionsOf('b', member('a'))
  expect(await member('b').post('pause')).toEqual(accepted)
  expect(await member('b').progress()).toMatchObject({ state: 'PAUSED', lagTimeSeconds: null })
  expect([(await member('a').progress()).state, (await member('c').progress()).state]).toEqual(['RUNNING', 'RUNNING'])
  await insert(1_000, 160)
  // Documents in partitions of the paused instance do not arrive, because it still owns those partitions.
  const others = 200 + 160 * (1 - kept.length / 16)
  await vi.waitFor(async () => expect(Math.abs((await copied()) - others)).toBeLessThan(40), patience)
  await vi.waitFor(
    async () => expect((await member('b').progress()).warnings?.join()).toMatch(/paused while other instances run/),
    patience,
  )
  expect(await partitionsOf('b', member('a'))).toEqual(kept)
  expect((await owners()).filter((owner) => owner === 'b')).toHaveLength(kept.length)
  expect(await copied()).toBeLessThan(360)
  expect(await member('b').post('resume')).toEqual(accepted)
  await vi.waitFor(async () => expect(await copied()).toBe(360), patience)
})

it('README: the others continue the copy while one instance is paused, and take over its unfinished segments', async () => {
  await loadBulk(pair.source.uri, 'app', 30_000)
  await running(['a', 'b'], { ready: false })
  expect(await member('b').post('pause')).toEqual(accepted)
  const documents = pair.destinationClient.db('app').collection('documents')
  await vi.waitFor(async () => expect(await documents.countDocuments()).toBe(30_000), { ...patience, timeout: 60_000 })
  expect((await member('b').progress()).state).toBe('PAUSED')
  expect(await member('b').post('resume')).toEqual(accepted)
  await (startedInstances as Instances).allReach(({ canCommit }) => canCommit, 'ready to commit')
  // An instance reports the others as of their last heartbeat, up to a second ago.
  await vi.waitFor(async () => {
    const { totals, instances } = await (startedInstances as Instances).instances()
    expect(totals.estimatedCopiedBytes).toBe(totals.estimatedTotalBytes)
    const own = instances.map(({ progress }) => progress.collectionCopy?.estimatedCopiedBytes ?? 0)
    expect(own.reduce((sum, bytes) => sum + bytes, 0)).toBe(totals.estimatedTotalBytes)
  }, patience)
})

it('README: DDL waits for a paused instance, which warnings name, and continues when it is resumed', async () => {
  await insert(0, 50)
  const started = await running(['a', 'b', 'c'])
  const coordinator = (await member('a').progress()).coordinatorID
  const paused = coordinator === 'b' ? 'c' : 'b'
  expect(await member(paused).post('pause')).toEqual(accepted)
  await things().createIndex({ value: 1 })
  await insert(1_000, 10)
  await vi.waitFor(async () => {
    const { warnings } = await (await started.coordinator()).progress()
    expect(warnings).toContainEqual(expect.stringMatching(new RegExp(`waits for instance ${paused}, which is paused`)))
  }, patience)
  const indexes = () => pair.destinationClient.db('app').collection('things').indexes()
  // The coordinator would need less time than this if it waited for no instance.
  await sleep(1_500)
  expect(await indexes()).toHaveLength(1)
  expect(await copied()).toBe(50)
  expect(await member(paused).post('resume')).toEqual(accepted)
  await vi.waitFor(async () => expect([(await indexes()).length, await copied()]).toEqual([2, 60]), patience)
  await vi.waitFor(
    async () =>
      expect((await (await started.coordinator()).progress()).warnings?.join() ?? '').not.toMatch(/waits for instance/),
    patience,
  )
})

it('README: when SIGTERM ends an instance, the others take over its partitions and the coordinator role at once', async () => {
  await insert(0, 100)
  const started = await running(['a', 'b', 'c'])
  const leaving = (await member('a').progress()).coordinatorID as string
  expect(await member(leaving).stop()).toBe(0)
  started.members.delete(leaving)
  const since = performance.now()
  await vi.waitFor(async () => {
    const left = new Set(await owners())
    expect([...left].sort()).toEqual(['a', 'b', 'c'].filter((id) => id !== leaving))
  }, patience)
  const reports = await started.allReach(
    ({ coordinatorID }) => coordinatorID !== leaving,
    'coordinated by another instance',
  )
  expect(performance.now() - since).toBeLessThan(4_000 * (await slowness()))
  expect(new Set(reports.map(({ coordinatorID }) => coordinatorID)).size).toBe(1)
  await things().createIndex({ value: 1 })
  await insert(1_000, 50)
  await vi.waitFor(async () => expect(await copied()).toBe(150), patience)
})

it('4.2: all instances show a lost instance as lost with 0 copied bytes, the totals stay complete, and it rejoins after a restart', async () => {
  await loadBulk(pair.source.uri, 'app', 20_000)
  await insert(0, 300)
  const started = await running(['a', 'b', 'c'])
  const coordinator = (await member('a').progress()).coordinatorID
  const lost = coordinator === 'c' ? 'b' : 'c'
  // An instance reports the others as of their last heartbeat.
  await vi.waitFor(async () => expect((await started.instances()).totals.percent).toBe(100), patience)
  const before = (await started.instances()).totals
  await started.kill9(lost)
  for (const tandem of started.members.values()) {
    await vi.waitFor(async () => {
      const { instances, totals } = await started.instances(tandem)
      const row = instances.find((one) => one.mongosyncID === lost)
      expect(row?.status).toBe('lost')
      expect(row?.lastSeenSeconds).toBeGreaterThanOrEqual(10)
      expect(row?.progress.collectionCopy?.estimatedCopiedBytes).toBe(0)
      expect(totals).toMatchObject({
        estimatedCopiedBytes: before.estimatedTotalBytes,
        estimatedTotalBytes: before.estimatedTotalBytes,
        percent: 100,
      })
    }, patience)
  }
  await vi.waitFor(async () => expect(new Set(await owners())).not.toContain(lost), patience)
  await insert(1_000, 50)
  await vi.waitFor(async () => expect(await copied()).toBe(350), patience)

  const since = performance.now()
  await started.start(lost)
  await stateOf(lost, 'RUNNING')
  expect(performance.now() - since).toBeLessThan(5_000 * (await slowness()))
  await vi.waitFor(async () => {
    expect(await shares(started)).not.toContain(0)
    const { instances, totals } = await started.instances()
    expect(instances.map(({ status }) => status)).toEqual(['alive', 'alive', 'alive'])
    expect(totals.estimatedCopiedBytes).toBe(before.estimatedTotalBytes)
  }, patience)
})

it('README: after a kill and a restart of one instance or of all, each continues by itself within 5 seconds', async () => {
  await insert(0, 100)
  const started = await running(['a', 'b'])
  await started.kill9('b')
  let since = performance.now()
  await started.start('b')
  await stateOf('b', 'RUNNING')
  expect(performance.now() - since).toBeLessThan(5_000 * (await slowness()))
  await insert(1_000, 50)
  await vi.waitFor(async () => expect(await copied()).toBe(150), patience)
  expect(await member('b').post('start', body)).toMatchObject(accepted)

  expect(await member('b').post('pause')).toEqual(accepted)
  await Promise.all(['a', 'b'].map((id) => started.kill9(id)))
  await insert(2_000, 50)
  since = performance.now()
  await Promise.all(['a', 'b'].map((id) => started.start(id)))
  await Promise.all([stateOf('a', 'RUNNING'), stateOf('b', 'PAUSED')])
  expect(performance.now() - since).toBeLessThan(5_000 * (await slowness()))
  expect(await member('b').post('resume')).toEqual(accepted)
  await vi.waitFor(async () => expect(await copied()).toBe(200), patience)
  const reports = await started.allReach(({ canCommit }) => canCommit, 'ready to commit')
  expect(new Set(reports.map(({ coordinatorID }) => coordinatorID)).size).toBe(1)
})
