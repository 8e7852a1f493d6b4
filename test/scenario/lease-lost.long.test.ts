import type { Document } from 'mongodb'
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { metadataDatabase } from '../../src/domain/namespace.ts'
import { accepted } from '../support/commits.ts'
import { failPoint, holdTandem } from '../support/fail-point.ts'
import { expectAccepted, type Instances, startInstances } from '../support/instances.ts'
import { pairedSets } from '../support/paired-sets.ts'
import { startSync, type Tandem } from '../support/tandem-process.ts'

/** Tests what an instance answers and stores while it holds no lease. Without a lease it must not store anything. */

const pair = pairedSets()
const patience = { timeout: 30_000, interval: 50 }
/** This is longer than any command waits for the lease, and far below the half hour for which tandem waits for a cluster. */
const boundMS = 45_000
const bytesPerSecond = 2 * 1024 * 1024
const plain = { enableUserWriteBlocking: 'none', verification: { enabled: false } }
const stored = (name: string) =>
  pair.destinationClient.db(metadataDatabase).collection<{ _id: string } & Document>(name)
const leaseOf = (id: string) => stored('leases').findOne({ _id: `instance:${id}` })
const snapshotOf = async (id: string) => JSON.parse((await stored('instances').findOne({ _id: id }))?.['snapshot'])

interface LimitsAnswer {
  status: number
  body: { error?: string; errorDescription?: string; limits?: { bytesPerSecond: number | null } }
}

async function askLimits(tandem: Tandem, change?: Document): Promise<LimitsAnswer> {
  const response = await fetch(`${tandem.url}/api/v1/limits`, {
    ...(change && { method: 'PATCH', body: JSON.stringify(change) }),
    headers: { 'content-type': 'application/json' },
    signal: AbortSignal.timeout(boundMS),
  })
  return { status: response.status, body: (await response.json()) as LimitsAnswer['body'] }
}

const limitOf = async (tandem: Tandem) => (await askLimits(tandem)).body.limits?.bytesPerSecond

/** Resolves with the answer, or with `no answer` when none arrives within the time limit. */
const bounded = <T>(answer: Promise<T>): Promise<T | 'no answer'> =>
  Promise.race([answer, new Promise<'no answer'>((resolve) => setTimeout(resolve, boundMS, 'no answer').unref())])

beforeEach(async () => {
  await pair.sourceClient
    .db('app')
    .collection<{ _id: number }>('things')
    .insertMany([{ _id: 1 }, { _id: 2 }])
})

async function ready(): Promise<Tandem> {
  const tandem = await pair.startInstance({ id: 'a' })
  await startSync(tandem, plain)
  await tandem.waitFor(({ canCommit }) => canCommit, { timeoutSeconds: 30, what: 'ready to commit' })
  return tandem
}

/** Takes the lease as another process with the same id does once the lease has expired. */
const takeLease = () =>
  stored('leases').updateOne({ _id: 'instance:a' }, { $inc: { epoch: 1 }, $set: { incarnation: 'another' } })

/** Until the returned fail point is released, the instance can neither renew its lease nor acquire one. */
const holdLeases = () => holdTandem(pair.destinationClient, 'update', `${metadataDatabase}.leases`)

/** Waits until the lease has not been renewed for so long that its owner no longer writes under it. */
const isLapsed = async (tandem: Tandem) => {
  const last = (await leaseOf('a'))?.['expiresAt']
  // The instance stores its position after each change. `retrying` shows that it cannot store the position now.
  await vi.waitFor(
    async () => {
      await pair.sourceClient.db('app').collection('things').insertOne({})
      expect((await tandem.progress()).retrying).toBeDefined()
    },
    { timeout: 60_000, interval: 500 },
  )
  expect((await leaseOf('a'))?.['expiresAt']).toEqual(last)
}

describe('an instance whose lease another process takes', () => {
  it('stores nothing more, and refuses every command at once with a named error', async () => {
    await using tandem = await ready()
    const before = await snapshotOf('a')
    await takeLease()
    const { failure } = await tandem.waitFor(({ state }) => state === 'FAILED', { timeoutSeconds: 30, what: 'failed' })
    expect(failure?.error).toBe('LeaseLost')

    const askedAt = performance.now()
    const answer = await bounded(askLimits(tandem, { bytesPerSecond }))
    expect(answer).toMatchObject({ status: 409, body: { error: 'WrongState' } })
    expect(performance.now() - askedAt).toBeLessThan(10_000)
    expect(await limitOf(tandem)).toBeNull()
    for (const command of ['pause', 'resume', 'commit', 'abort', 'reverse', 'repair']) {
      expect(await bounded(tandem.post(command)), command).toMatchObject({ status: 409, body: { error: 'WrongState' } })
    }
    expect((await tandem.progress()).retrying).toBeUndefined()
    // The stored state belongs to the other process.
    expect(await snapshotOf('a')).toEqual(before)
    expect(await leaseOf('a')).toMatchObject({ incarnation: 'another' })
  })

  it('has its start refused soon while the other process runs, and joins once the other process has ended', async () => {
    await using first = await pair.startInstance({ id: 'a' })
    await using second = await pair.startInstance({ id: 'a' })
    await startSync(first, plain)
    const start = () => bounded(second.post('start', { source: 'cluster0', destination: 'cluster1', ...plain }))
    expect(await start()).toMatchObject({ status: 503, body: { error: 'ClusterUnreachable' } })
    expect((await second.progress()).state).toBe('IDLE')
    await first.waitFor(({ canCommit }) => canCommit, { timeoutSeconds: 30, what: 'ready to commit' })
    await first.kill9()
    expect(await start()).toMatchObject(accepted)
    expect(await askLimits(second, { bytesPerSecond })).toMatchObject({ status: 200 })
    expect(await snapshotOf('a')).toMatchObject({ limits: { bytesPerSecond } })
  })

  it('refuses a pause that waits for the lease', async () => {
    await using tandem = await ready()
    await using held = await holdLeases()
    await isLapsed(tandem)
    const answer = bounded(tandem.post('pause'))
    await takeLease()
    await held.release()
    expect(await answer).toMatchObject({ status: 409, body: { error: 'WrongState' } })
    expect((await tandem.progress()).state).toBe('FAILED')
    expect(await leaseOf('a')).toMatchObject({ incarnation: 'another' })
  })
})

it('commands are refused soon while the lease cannot be renewed, and a refused command changes nothing', async () => {
  await using tandem = await ready()
  await using held = await holdLeases()
  await isLapsed(tandem)
  const before = await snapshotOf('a')
  const [limited, committed, paused] = await Promise.all([
    bounded(askLimits(tandem, { bytesPerSecond }).catch(() => 'no answer' as const)),
    bounded(tandem.post('commit')),
    bounded(tandem.post('pause')),
  ])
  const refused = {
    status: 503,
    body: { error: 'ClusterUnreachable', errorDescription: expect.stringMatching(/lease/) },
  }
  expect([limited, committed, paused]).toMatchObject([refused, refused, refused])
  expect(await limitOf(tandem)).toBeNull()
  expect((await tandem.progress()).state).toBe('RUNNING')
  await held.release()
  await vi.waitFor(async () => expect((await tandem.progress()).retrying).toBeUndefined(), patience)
  expect(await snapshotOf('a')).toEqual(before)
  expect((await stored('stages').findOne({ _id: 'sync' }))?.['value']).toBe('replicating')
  // The same commands succeed now.
  expect(await askLimits(tandem, { bytesPerSecond })).toMatchObject({ status: 200 })
  expect(await snapshotOf('a')).toMatchObject({ limits: { bytesPerSecond } })
  expect(await tandem.post('pause')).toEqual(accepted)
})

describe('an instance that other instances evict', () => {
  let instances: Instances | null = null
  afterEach(async () => {
    await instances?.stop()
    instances = null
  })

  it('stores a limit under its next lease after it was suspended for longer than a lease term', async () => {
    instances = await startInstances(['a', 'b'], { cluster0: pair.source.uri, cluster1: pair.destination.uri })
    await instances.allReach(({ state }) => state === 'IDLE', 'IDLE')
    expectAccepted(await instances.post('start', { source: 'cluster0', destination: 'cluster1', ...plain }))
    await instances.allReach(({ canCommit }) => canCommit, 'ready to commit')
    const a = instances.members.get('a') as Tandem
    const epoch = (await leaseOf('a'))?.['epoch'] as number
    process.kill(a.pid, 'SIGSTOP')
    try {
      await vi.waitFor(async () => expect(await leaseOf('a')).toMatchObject({ buried: true }), patience)
    } finally {
      process.kill(a.pid, 'SIGCONT')
    }
    expect(await bounded(askLimits(a, { bytesPerSecond }))).toMatchObject({ status: 200 })
    expect(await snapshotOf('a')).toMatchObject({ limits: { bytesPerSecond }, failure: null })
    expect((await leaseOf('a'))?.['epoch']).toBeGreaterThan(epoch)
  })

  it('stores a failure under its next lease when it cannot store the failure under the current one', async () => {
    const things = (client: 'sourceClient' | 'destinationClient') =>
      pair[client].db('app').collection<Document>('things')
    await things('sourceClient').createIndex({ secret: 1 }, { unique: true, sparse: true })
    await using tandem = await ready()
    await things('destinationClient').insertMany([{ secret: 1 }, { secret: 1 }])
    const data = { failCommands: ['update'], namespace: `${metadataDatabase}.instances`, errorCode: 262 }
    expect(await tandem.post('commit')).toEqual(accepted)
    await tandem.waitFor(({ state }) => state === 'FAILED', { timeoutSeconds: 30, what: 'failed' })
    await vi.waitFor(async () => expect((await snapshotOf('a')).failure).not.toBeNull(), patience)
    await using held = await failPoint(pair.destinationClient, 'failCommand', data)
    const resumed = tandem.post('resume')
    await tandem
      .waitFor(({ retrying }) => retrying?.what === 'writing metadata', { timeoutSeconds: 30, what: 'saving' })
      .catch(
        () => {}, // the sync may fail again before the resume is stored
      )
    const evicted = { buried: true, takesWork: false, expiresAt: new Date(0) }
    const epochs = { epoch: { $add: ['$epoch', 1] }, settled: { $add: ['$epoch', 2] } }
    await stored('leases').updateOne({ _id: 'instance:a' }, [{ $set: { ...evicted, ...epochs } }])
    await vi.waitFor(async () => expect(await leaseOf('a')).toMatchObject({ buried: false }), patience)
    await held.release()
    await bounded(resumed)
    await vi.waitFor(async () => expect((await snapshotOf('a')).failure?.error).toBe('DuplicateKey'), patience)
  })
})
