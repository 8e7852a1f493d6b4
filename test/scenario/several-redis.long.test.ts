import { afterAll, afterEach, beforeAll, expect, it, vi } from 'vitest'
import { compareBoth } from '../support/compare-both.ts'
import { expectAccepted, type Instances, startInstances } from '../support/instances.ts'
import { loadBulk } from '../support/load-bulk.ts'
import { pairedSets } from '../support/paired-sets.ts'
import { startRedis, type TestRedis } from '../support/redis-server.ts'
import { seedData } from '../support/seed-data.ts'
import { createWorkload } from '../support/workload.ts'

const pair = pairedSets()
let redis: TestRedis
let instances: Instances | null = null

beforeAll(async () => {
  redis = await startRedis()
})
afterAll(async () => {
  await redis?.stop()
})
afterEach(async () => {
  await instances?.stop()
  instances = null
})

const body = { source: 'cluster0', destination: 'cluster1' }

async function begin(...ids: string[]): Promise<Instances> {
  const clusters = { cluster0: pair.source.uri, cluster1: pair.destination.uri }
  instances = await startInstances(ids, { ...clusters, extraArgs: ['--redis', redis.url] })
  await vi.waitFor(() => instances?.allReach((progress) => progress.state === 'IDLE', 'IDLE'), { timeout: 30_000 })
  return instances
}

async function commitAndCompare(started: Instances): Promise<void> {
  await started.allReach((progress) => progress.canCommit, 'canCommit', 120)
  expectAccepted(await started.post('commit'))
  await started.allReach((progress) => progress.state === 'COMMITTED', 'COMMITTED', 90)
  const { differences } = await compareBoth(pair.source.uri, pair.destination.uri)
  expect(differences).toEqual([])
}

it('a flush, a kill and a restart of Redis delay a migration and do not change its result', async () => {
  await seedData(pair.source.uri, 11, 0.3)
  await loadBulk(pair.source.uri, 'bulk', 60_000)
  const workload = createWorkload({ uri: pair.source.uri, seed: 11, ddl: true, transactions: true })
  const started = await begin('a', 'b')
  expectAccepted(await started.post('start', body))
  await workload.runSteps(30)
  await redis.flush()
  await workload.runSteps(60)
  await redis.kill()
  // Redis is down for longer than the confirmed lease term, so both instances stop writing.
  const stalled = async () => {
    const { applied, lag } = await figures(started)
    await workload.runSteps(5)
    await vi.waitFor(async () => expect((await figures(started)).lag).toBeGreaterThan(lag), { timeout: 20_000 })
    expect((await figures(started)).applied).toBe(applied)
  }
  await vi.waitFor(stalled, { timeout: 60_000, interval: 500 })
  await redis.restart()
  await workload.runSteps(30)
  await redis.flush()
  await workload.runSteps(20)
  await commitAndCompare(started)
})

async function figures(group: Instances): Promise<{ applied: number; lag: number }> {
  const all = await Promise.all([...group.members.values()].map((tandem) => tandem.progress()))
  return {
    applied: all.reduce((sum, { totalEventsApplied }) => sum + (totalEventsApplied ?? 0), 0),
    lag: Math.max(...all.map(({ lagTimeSeconds }) => lagTimeSeconds ?? 0)),
  }
}

it('while Redis is unreachable from the start on, nothing is applied and the lag grows every second', async () => {
  const workload = createWorkload({ uri: pair.source.uri, seed: 13, ddl: false, transactions: false })
  const started = await begin('a', 'b')
  expectAccepted(await started.post('start', body))
  await redis.kill()
  const lags = new Set<number>()
  const lagGrows = async () => {
    await workload.runSteps(2)
    const { lag } = await figures(started)
    lags.add(lag)
    expect(lag).toBeGreaterThan(15)
  }
  try {
    await vi.waitFor(lagGrows, { timeout: 60_000, interval: 500 })
    for (const tandem of started.members.values()) {
      expect((await tandem.progress()).retrying?.what).toBe('reaching Redis')
    }
  } finally {
    await redis.restart()
  }
  // If the lag changed only with the no-ops that tandem writes to the source every ten seconds, there would be fewer values.
  expect(lags.size).toBeGreaterThan(5)
  await commitAndCompare(started)
})

it('a killed instance is replaced before its lease in the metadata database expires', async () => {
  await seedData(pair.source.uri, 12, 0.2)
  const workload = createWorkload({ uri: pair.source.uri, seed: 12, ddl: false, transactions: true })
  const started = await begin('a', 'b', 'c')
  expectAccepted(await started.post('start', body))
  await started.allReach((progress) => progress.canCommit, 'canCommit', 60)
  await workload.runSteps(20)
  const victim = (await started.coordinator()).url
  const [id] = [...started.members].find(([, tandem]) => tandem.url === victim) ?? ['a']
  await started.kill9(id)
  const killedAt = performance.now()
  await vi.waitFor(
    async () => {
      const { instances } = await started.instances()
      const alive = instances.filter(({ status }) => status === 'alive')
      expect(alive.flatMap(({ partitions }) => partitions)).toHaveLength(16)
      expect(alive.filter(({ coordinator }) => coordinator)).toHaveLength(1)
    },
    { timeout: 20_000, interval: 100 },
  )
  expect(performance.now() - killedAt).toBeLessThan(10_000)
  await workload.runSteps(20)
  await commitAndCompare(started)
})

it('an instance that does not use the same Redis as the others is refused with ConfigurationMismatch', async () => {
  const started = await begin('a')
  expectAccepted(await started.post('start', body))
  const other = await startInstances(['b'], { cluster0: pair.source.uri, cluster1: pair.destination.uri })
  try {
    await vi.waitFor(() => other.allReach((progress) => progress.state === 'IDLE', 'IDLE'), { timeout: 20_000 })
    const answer = (await other.post('start', body)).get('b')
    expect([answer?.status, answer?.body.error]).toEqual([422, 'ConfigurationMismatch'])
    expect(answer?.body.errorDescription).toContain('--redis')
  } finally {
    await other.stop()
  }
})

it('start is refused while Redis does not answer, and a refused start changes nothing', async () => {
  const started = await begin('a')
  await redis.kill()
  try {
    const answer = (await started.post('start', body)).get('a')
    expect([answer?.status, answer?.body.error]).toEqual([503, 'ClusterUnreachable'])
    expect(answer?.body.errorDescription).toContain('--redis')
  } finally {
    await redis.restart()
  }
  await vi.waitFor(async () => expectAccepted(await started.post('start', body)), { timeout: 20_000, interval: 300 })
})
