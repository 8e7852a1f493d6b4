import type { Document } from 'mongodb'
import { afterEach, beforeEach, expect, it, vi } from 'vitest'
import { metadataDatabase } from '../../src/domain/namespace.ts'
import { accepted, committed } from '../support/commits.ts'
import { failPoint } from '../support/fail-point.ts'
import { expectAccepted, type Instances, startInstances } from '../support/instances.ts'
import { pairedSets } from '../support/paired-sets.ts'
import { startSync, type Tandem } from '../support/tandem-process.ts'

/** Instances that lose their lease at a critical moment still carry out the operator's commands. */

const pair = pairedSets()
const patience = { timeout: 30_000, interval: 20 }
const plain = { enableUserWriteBlocking: 'none', verification: { enabled: false } }
const things = (client: 'sourceClient' | 'destinationClient') =>
  pair[client].db('app').collection<{ _id: number | string; secret?: number }>('things')
const stored = (name: string) =>
  pair.destinationClient.db(metadataDatabase).collection<{ _id: string } & Document>(name)

let instances: Instances | null = null
beforeEach(async () => {
  await things('sourceClient').insertMany(Array.from({ length: 50 }, (_, _id) => ({ _id, secret: _id })))
})
afterEach(async () => {
  await instances?.stop()
  instances = null
})

const leaseOf = (id: string) => stored('leases').findOne({ _id: `instance:${id}` })
const snapshotOf = async (id: string) => JSON.parse((await stored('instances').findOne({ _id: id }))?.['snapshot'])

/** Evicts an instance as other instances do once its lease has expired. Returns the epoch of the eviction. */
async function evict(id: string): Promise<number> {
  const evicted = { buried: true, takesWork: false, expiresAt: new Date(0) }
  const epochs = { epoch: { $add: ['$epoch', 1] }, settled: { $add: ['$epoch', 2] } }
  await stored('leases').updateOne({ _id: `instance:${id}` }, [{ $set: { ...evicted, ...epochs } }])
  return (await leaseOf(id))?.['epoch'] as number
}

/** Waits until the instance has detected the eviction of this epoch and holds a lease again. */
const isBack = (id: string, epoch: number) =>
  vi.waitFor(async () => {
    const lease = await leaseOf(id)
    expect(lease).toMatchObject({ buried: false, settled: lease?.['epoch'] })
    expect(lease?.['epoch']).toBeGreaterThan(epoch)
  }, patience)

/** Makes each write of an instance's snapshot fail with a retryable error, except the first `skip` writes. */
const holdSaves = (skip: number) => {
  const data = { failCommands: ['update'], namespace: `${metadataDatabase}.instances`, errorCode: 262 }
  return failPoint(pair.destinationClient, 'failCommand', data, { skip })
}
const isSaving = (tandem: Tandem) =>
  tandem.waitFor(({ retrying }) => retrying?.what === 'writing metadata', {
    timeoutSeconds: 30,
    what: 'saving',
  })

async function ready(): Promise<Tandem> {
  const tandem = await pair.startInstance({ id: 'a' })
  await startSync(tandem, plain)
  await tandem.waitFor(({ canCommit }) => canCommit, { timeoutSeconds: 30, what: 'ready to commit' })
  return tandem
}

it('an instance that is evicted while it drains its writes for a pause still answers the pause', async () => {
  await using tandem = await ready()
  const data = { failCommands: ['insert', 'update'], namespace: 'app.things', errorCode: 262 }
  await using _held = await failPoint(pair.destinationClient, 'failCommand', data)
  await things('sourceClient').insertOne({ _id: 'held up' })
  await tandem.waitFor(({ retrying }) => retrying !== undefined, { timeoutSeconds: 30, what: 'held up' })
  const answer = tandem.post('pause')
  await vi.waitFor(async () => expect(await snapshotOf('a')).toMatchObject({ pauseRequested: true }), patience)
  await evict('a')
  await tandem.waitFor(({ state }) => state === 'PAUSED', { timeoutSeconds: 30, what: 'PAUSED' })
  expect(await answer).toEqual(accepted)
})

it('an instance that is evicted before it has stored that writes are allowed still completes the commit', async () => {
  await using tandem = await ready()
  // The first three writes store the request, the commit timestamp and `reached`. The fourth would store canWrite.
  await using held = await holdSaves(3)
  expect(await tandem.post('commit')).toEqual(accepted)
  await isSaving(tandem)
  expect(await snapshotOf('a')).toMatchObject({ reached: true, canWrite: false })
  await isBack('a', await evict('a'))
  await held.release()
  await committed(tandem)
  expect(await snapshotOf('a')).toMatchObject({ canWrite: true })
})

it('an instance that fails during a commit and is evicted acquires a lease again, so that resume completes the commit', async () => {
  await things('sourceClient').createIndex({ secret: 1 }, { unique: true })
  await using tandem = await ready()
  await things('destinationClient').insertOne({ _id: 'foreign', secret: 1 })
  expect(await tandem.post('commit')).toEqual(accepted)
  const { failure, canWrite } = await tandem.waitFor(({ state }) => state === 'FAILED', {
    timeoutSeconds: 30,
    what: 'failed',
  })
  expect([failure?.error, canWrite]).toEqual(['DuplicateKey', true])
  await isBack('a', await evict('a'))
  expect((await tandem.progress()).state).toBe('FAILED')
  await things('destinationClient').deleteOne({ _id: 'foreign' })
  expect(await tandem.post('resume')).toEqual(accepted)
  await committed(tandem)
})

it('an instance that is evicted before it has stored the end of the commit stores it under its next lease, which it then releases', async () => {
  await things('sourceClient').createIndex({ secret: 1 }, { unique: true })
  await using tandem = await ready()
  await things('destinationClient').insertOne({ _id: 'foreign', secret: 1 })
  expect(await tandem.post('commit')).toEqual(accepted)
  await tandem.waitFor(({ state }) => state === 'FAILED', { timeoutSeconds: 30, what: 'failed' })
  await things('destinationClient').deleteOne({ _id: 'foreign' })
  // The first write, which stores the resume, succeeds.
  await using held = await holdSaves(1)
  expect(await tandem.post('resume')).toEqual(accepted)
  await committed(tandem)
  await isSaving(tandem)
  expect(await snapshotOf('a')).toMatchObject({ commitRequested: true, failure: null })
  await isBack('a', await evict('a'))
  await held.release()
  await vi.waitFor(async () => {
    expect(await snapshotOf('a')).toMatchObject({ commitRequested: false })
    const lease = await leaseOf('a')
    expect(lease?.['settled']).toBeGreaterThan(lease?.['epoch'])
  }, patience)
})

it('a paused instance whose lease another process took fails with LeaseLost, and refuses resume', async () => {
  await using tandem = await ready()
  expect(await tandem.post('pause')).toEqual(accepted)
  // This is the update with which a process with the same id takes an expired lease.
  const taken = { $inc: { epoch: 1 }, $set: { incarnation: 'another' } }
  await stored('leases').updateOne({ _id: 'instance:a' }, taken)
  const failed = { timeoutSeconds: 30, what: 'failed' }
  const { failure } = await tandem.waitFor(({ state }) => state === 'FAILED', failed)
  expect(failure).toMatchObject({
    error: 'LeaseLost',
    errorDescription: expect.stringMatching(/same id.*to keep this one, stop the other and restart this one/),
    cluster: 'cluster1',
    lost: 'nothing',
    docs: 'docs/troubleshooting.md#leaselost',
  })
  expect(await tandem.post('resume')).toMatchObject({ status: 409, body: { error: 'WrongState' } })
})

it('a paused instance that was evicted leaves the coordinator role to a running instance', async () => {
  const begun = await startInstances(['a', 'b'], { cluster0: pair.source.uri, cluster1: pair.destination.uri })
  instances = begun
  await begun.allReach(({ state }) => state === 'IDLE', 'IDLE')
  expectAccepted(await begun.post('start', { source: 'cluster0', destination: 'cluster1', ...plain }))
  await begun.allReach(({ canCommit }) => canCommit, 'ready to commit')
  const [a, b] = [begun.members.get('a'), begun.members.get('b')] as [Tandem, Tandem]
  expect(await a.post('pause')).toEqual(accepted)
  await isBack('a', await evict('a'))
  // The coordinator role is vacant until b restarts.
  await b.stop()
  const again = await begun.start('b')
  const coordinated = { timeoutSeconds: 30, what: 'coordinated by the running instance' }
  await again.waitFor(({ state, coordinatorID }) => state === 'RUNNING' && coordinatorID === 'b', coordinated)
  expect((await a.progress()).state).toBe('PAUSED')
})
