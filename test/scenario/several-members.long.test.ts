import { setTimeout as sleep } from 'node:timers/promises'
import { afterEach, expect, it, vi } from 'vitest'
import { expectAccepted, type Instances, startInstances } from '../support/instances.ts'
import { loadBulk } from '../support/load-bulk.ts'
import { pairedSets } from '../support/paired-sets.ts'
import { slowness } from '../support/slowness.ts'
import type { Tandem } from '../support/tandem-process.ts'

/** Instances of one sync that are paused, resumed, ended, lost and started again. See test/contract.md. */

const pair = pairedSets()
const patience = { timeout: 30_000, interval: 50 }
const accepted = { status: 200, body: { success: true } }
const body = { source: 'cluster0', destination: 'cluster1' }
let startedInstances: Instances | null = null

afterEach(async () => {
  await startedInstances?.stop()
  startedInstances = null
})

async function running(ids: string[], { ready = true } = {}): Promise<Instances> {
  const begun = await startInstances(ids, { cluster0: pair.source.uri, cluster1: pair.destination.uri })
  startedInstances = begun
  await begun.allReach(({ state }) => state === 'IDLE', 'IDLE')
  expectAccepted(await begun.post('start', body))
  if (!ready) return begun
  await begun.allReach(({ canCommit }) => canCommit, 'ready to commit')
  await vi.waitFor(async () => expect(await shares(begun)).not.toContain(0), patience)
  return begun
}

function of(id: string): Tandem {
  const found = startedInstances?.members.get(id)
  if (!found) throw new Error(`${id} does not run`)
  return found
}

/** How many partitions each instance has, by what all of them say alike. */
async function shares(of: Instances): Promise<number[]> {
  const reports = await Promise.all([...of.members.values()].map((one) => of.instances(one)))
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
  of(id).waitFor((progress) => progress.state === state, { timeoutSeconds, what: state })
const things = () => pair.sourceClient.db('app').collection<{ _id: number }>('things')
const copied = () => pair.destinationClient.db('app').collection('things').countDocuments()
const insert = (from: number, count: number) =>
  things().insertMany(Array.from({ length: count }, (_, index) => ({ _id: from + index })))
const owners = async () => {
  const claims = await pair.destinationClient
    .db('tandem_internal')
    .collection<{ _id: number | string; owner: string | null }>('ownership')
    .find({ _id: { $gte: 0 } })
    .toArray()
  return claims.map(({ owner }) => owner?.split('#')[0] ?? null)
}

it('README: pause and resume act on one instance, which keeps its partitions while the others go on', async () => {
  await insert(0, 200)
  await running(['a', 'b', 'c'])
  const kept = await partitionsOf('b', of('a'))
  expect(await of('b').post('pause')).toEqual(accepted)
  expect(await of('b').progress()).toMatchObject({ state: 'PAUSED', lagTimeSeconds: null })
  expect([(await of('a').progress()).state, (await of('c').progress()).state]).toEqual(['RUNNING', 'RUNNING'])
  await insert(1_000, 160)
  // What the others own arrives, and nothing else: the paused one's share is still its own.
  const others = 200 + 160 * (1 - kept.length / 16)
  await vi.waitFor(async () => expect(Math.abs((await copied()) - others)).toBeLessThan(40), patience)
  await vi.waitFor(
    async () => expect((await of('b').progress()).warnings?.join()).toMatch(/paused while others run/),
    patience,
  )
  expect(await partitionsOf('b', of('a'))).toEqual(kept)
  expect((await owners()).filter((owner) => owner === 'b')).toHaveLength(kept.length)
  expect(await copied()).toBeLessThan(360)
  expect(await of('b').post('resume')).toEqual(accepted)
  await vi.waitFor(async () => expect(await copied()).toBe(360), patience)
})

it('README: others go on copying while one is paused, and take its open segments', async () => {
  await loadBulk(pair.source.uri, 'app', 30_000)
  await running(['a', 'b'], { ready: false })
  expect(await of('b').post('pause')).toEqual(accepted)
  const documents = pair.destinationClient.db('app').collection('documents')
  await vi.waitFor(async () => expect(await documents.countDocuments()).toBe(30_000), { ...patience, timeout: 60_000 })
  expect((await of('b').progress()).state).toBe('PAUSED')
  expect(await of('b').post('resume')).toEqual(accepted)
  await (startedInstances as Instances).allReach(({ canCommit }) => canCommit, 'ready to commit')
  // What one tells of the others is as of their last beat, up to a second ago.
  await vi.waitFor(async () => {
    const { totals, instances } = await (startedInstances as Instances).instances()
    expect(totals.estimatedCopiedBytes).toBe(totals.estimatedTotalBytes)
    const own = instances.map(({ progress }) => progress.collectionCopy?.estimatedCopiedBytes ?? 0)
    expect(own.reduce((sum, bytes) => sum + bytes, 0)).toBe(totals.estimatedTotalBytes)
  }, patience)
})

it('README: a change of definitions waits for a paused instance, which warnings name, and continues when it is resumed', async () => {
  await insert(0, 50)
  const started = await running(['a', 'b', 'c'])
  const coordinator = (await of('a').progress()).coordinatorID
  const paused = coordinator === 'b' ? 'c' : 'b'
  expect(await of(paused).post('pause')).toEqual(accepted)
  await things().createIndex({ value: 1 })
  await insert(1_000, 10)
  await vi.waitFor(async () => {
    const { warnings } = await (await started.coordinator()).progress()
    expect(warnings).toContainEqual(expect.stringMatching(new RegExp(`waits for instance ${paused}, which is paused`)))
  }, patience)
  const indexes = () => pair.destinationClient.db('app').collection('things').indexes()
  // Longer than the coordinator takes where it waits for no instance.
  await sleep(1_500)
  expect(await indexes()).toHaveLength(1)
  expect(await copied()).toBe(50)
  expect(await of(paused).post('resume')).toEqual(accepted)
  await vi.waitFor(async () => expect([(await indexes()).length, await copied()]).toEqual([2, 60]), patience)
  await vi.waitFor(
    async () => expect((await (await started.coordinator()).progress()).warnings).toBeUndefined(),
    patience,
  )
})

it('README: what an instance had is taken over at once when it ends by SIGTERM, the coordinator role too', async () => {
  await insert(0, 100)
  const started = await running(['a', 'b', 'c'])
  const leaving = (await of('a').progress()).coordinatorID as string
  expect(await of(leaving).stop()).toBe(0)
  started.members.delete(leaving)
  const since = performance.now()
  await vi.waitFor(async () => {
    const left = new Set(await owners())
    expect([...left].sort()).toEqual(['a', 'b', 'c'].filter((id) => id !== leaving))
  }, patience)
  const seen = await started.allReach(({ coordinatorID }) => coordinatorID !== leaving, 'led by another')
  expect(performance.now() - since).toBeLessThan(4_000 * (await slowness()))
  expect(new Set(seen.map(({ coordinatorID }) => coordinatorID)).size).toBe(1)
  await things().createIndex({ value: 1 })
  await insert(1_000, 50)
  await vi.waitFor(async () => expect(await copied()).toBe(150), patience)
})

it('4.2: an instance that is lost is shown so by all, with nothing copied, and the sums stay whole; restarted it is back', async () => {
  await loadBulk(pair.source.uri, 'app', 20_000)
  await insert(0, 300)
  const started = await running(['a', 'b', 'c'])
  const coordinator = (await of('a').progress()).coordinatorID
  const lost = coordinator === 'c' ? 'b' : 'c'
  // The others are shown as they were last heard of.
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

it('README: one instance killed and started again goes on by itself within 5 seconds, as do all of them', async () => {
  await insert(0, 100)
  const started = await running(['a', 'b'])
  await started.kill9('b')
  let since = performance.now()
  await started.start('b')
  await stateOf('b', 'RUNNING')
  expect(performance.now() - since).toBeLessThan(5_000 * (await slowness()))
  await insert(1_000, 50)
  await vi.waitFor(async () => expect(await copied()).toBe(150), patience)
  expect(await of('b').post('start', body)).toEqual(accepted)

  expect(await of('b').post('pause')).toEqual(accepted)
  await Promise.all(['a', 'b'].map((id) => started.kill9(id)))
  await insert(2_000, 50)
  since = performance.now()
  await Promise.all(['a', 'b'].map((id) => started.start(id)))
  await Promise.all([stateOf('a', 'RUNNING'), stateOf('b', 'PAUSED')])
  expect(performance.now() - since).toBeLessThan(5_000 * (await slowness()))
  expect(await of('b').post('resume')).toEqual(accepted)
  await vi.waitFor(async () => expect(await copied()).toBe(200), patience)
  const seen = await started.allReach(({ canCommit }) => canCommit, 'ready to commit')
  expect(new Set(seen.map(({ coordinatorID }) => coordinatorID)).size).toBe(1)
})
