import type { Document } from 'mongodb'
import { describe, expect, it, onTestFinished, vi } from 'vitest'
import { Coordination } from '../../src/coordination/coordination.ts'
import { MongoLiveness } from '../../src/coordination/mongo-liveness.ts'
import { OwnershipStore } from '../../src/coordination/ownership-store.ts'
import { metadataDatabase } from '../../src/domain/namespace.ts'
import type { LeaseView } from '../../src/domain/owner.ts'
import type { Cluster } from '../../src/mongo/cluster.ts'
import { codeOf, isTransient } from '../../src/mongo/errors.ts'
import { readFacts } from '../../src/mongo/identity.ts'
import { Lease } from '../../src/mongo/lease.ts'
import { givenUp } from '../../src/mongo/lease-watch.ts'
import { type HoldingProxy, startHoldingProxy } from '../support/holding-proxy.ts'
import { type TestContext, testCluster, testContext } from './clusters.ts'
import { oneSet } from './one-set.ts'

/** A write reaches the server late: after its sender has given up on it and sent a newer write of the same document. */

const one = oneSet()
const patience = { timeout: 20_000, interval: 20 }
const store = () => new OwnershipStore(one.cluster)
const leases = () => one.client.db(metadataDatabase).collection<{ _id: string } & Document>('leases')
const document = () => one.client.db('app').collection<{ _id: number; v: number }>('c').findOne({ _id: 1 })

async function viewOf(id: string): Promise<LeaseView> {
  return (await store().read()).leases.find((lease) => lease.id === id) as LeaseView
}

interface Writer {
  cluster: Cluster
  lease: Lease
  context: TestContext
}

/** tandem sends one statement as a retryable write, and several statements as a transaction. */
type Form = 'retryable' | 'transaction'

async function writer(id: string, incarnation: string, uri = one.set.uri): Promise<Writer> {
  const context = testContext()
  const cluster = testCluster(uri, `tandem:${id}:${incarnation}`)
  await readFacts(cluster)
  cluster.stopped = context.signal
  const lease = new Lease(cluster, OwnershipStore.leaseName(id), { id, incarnation }, context)
  Object.assign(cluster, { fence: () => lease.fence(), sessions: lease.sessions })
  onTestFinished(async () => {
    context.stop()
    await lease.release()
    await cluster.close()
  })
  return { cluster, lease, context }
}

async function proxied(): Promise<{ proxy: HoldingProxy; uri: string }> {
  const [host, port] = (one.set.hosts[0] as string).split(':') as [string, string]
  const proxy = await startHoldingProxy(host, Number(port))
  onTestFinished(() => proxy.close())
  return { proxy, uri: `mongodb://127.0.0.1:${proxy.port}/?directConnection=true` }
}

function write(cluster: Cluster, v: number, timeoutMS?: number, form: Form = 'retryable'): Promise<Document> {
  const updates = Array.from({ length: form === 'retryable' ? 1 : 20 }, (_, index) => {
    return { q: { _id: index + 1 }, u: { _id: index + 1, v }, upsert: true }
  })
  return cluster.write('app', { update: 'c', updates }, timeoutMS === undefined ? {} : { timeoutMS })
}

/** Starts a holder that writes 1 and crashes while the proxy holds back the message that writes 2. */
async function crashWhileWriting(id: string, form: Form, isFenced = true): Promise<HoldingProxy> {
  const { proxy, uri } = await proxied()
  const { cluster, lease, context } = await writer(id, 'first', uri)
  if (!isFenced) cluster.sessions = null
  await lease.acquire()
  await write(cluster, 1)
  proxy.hold()
  const late = write(cluster, 2, undefined, form).catch(() => 'given up')
  await vi.waitFor(() => expect(proxy.heldBytes).toBeGreaterThan(0), patience)
  context.stop()
  await cluster.close()
  expect(await late).toBe('given up')
  return proxy
}

/** Changes the stored start time of the holder's process, so that a successor concludes that the process has ended. */
const proveEnded = (id: string) =>
  leases().updateOne({ _id: OwnershipStore.leaseName(id) }, { $set: { 'process.startedAt': '1' } })

async function evict(id: string): Promise<void> {
  await leases().updateOne({ _id: OwnershipStore.leaseName(id) }, { $set: { expiresAt: givenUp } })
  expect(await store().evict(await viewOf(id), 0, async () => {})).toBe(true)
}

describe.each(['retryable', 'transaction'] as const)('a delayed %s write', (form) => {
  it('is refused when the same process has already sent the write again', async () => {
    const { proxy, uri } = await proxied()
    const { cluster, lease } = await writer(`again ${form}`, 'first', uri)
    await lease.acquire()
    await write(cluster, 1)
    proxy.hold()
    expect(isTransient(await write(cluster, 2, 500, form).catch((error: unknown) => error))).toBe(true)
    await write(cluster, 3)
    await proxy.deliver()
    expect(await document()).toEqual({ _id: 1, v: 3 })
    await write(cluster, 4)
    expect(await document()).toEqual({ _id: 1, v: 4 })
  })

  it('is refused when other instances have evicted the lease', async () => {
    const proxy = await crashWhileWriting(`evicted ${form}`, form)
    await evict(`evicted ${form}`)
    const { cluster, lease } = await writer(`successor ${form}`, 'successor')
    await lease.acquire()
    await write(cluster, 3)
    await proxy.deliver()
    expect(await document()).toEqual({ _id: 1, v: 3 })
  })

  it('is refused when another process has taken the same lease', async () => {
    const id = `taken ${form}`
    const proxy = await crashWhileWriting(id, form)
    await proveEnded(id)
    const { cluster, lease } = await writer(id, 'second')
    await lease.acquire()
    await write(cluster, 3)
    await proxy.deliver()
    expect(await document()).toEqual({ _id: 1, v: 3 })
  })
})

it('the server executes a delayed write that was sent without a transaction number', async () => {
  const proxy = await crashWhileWriting('unfenced', 'retryable', false)
  await evict('unfenced')
  const { cluster, lease } = await writer('unfenced successor', 'successor')
  await lease.acquire()
  await write(cluster, 3)
  await proxy.deliver()
  expect(await document()).toEqual({ _id: 1, v: 2 })
})

it('a delayed write is refused when its process has lost the lease and acquired it again', async () => {
  const { proxy, uri } = await proxied()
  const { cluster, lease } = await writer('alive', 'first', uri)
  await lease.acquire()
  await write(cluster, 1)
  proxy.hold()
  const fence = vi.spyOn(cluster, 'fence')
  const late = write(cluster, 2, 500).catch(() => 'given up')
  await vi.waitFor(() => expect(proxy.heldBytes).toBeGreaterThan(0), patience)
  fence.mockImplementation(() => {
    throw new Error('the lease could not be renewed in time')
  })
  expect(await late).toBe('given up')
  const lost = new Promise((resolve) => Object.assign(lease, { onLost: resolve }))
  const eviction = { $set: { buried: true, expiresAt: givenUp }, $inc: { epoch: 1 } }
  await leases().updateOne({ _id: OwnershipStore.leaseName('alive') }, eviction)
  await lease.verify()
  expect(await lost).toBe('evicted')
  fence.mockRestore()
  cluster.fence = () => lease.fence()
  await lease.acquire()
  await one.client.db('app').collection<{ _id: number; v: number }>('c').replaceOne({ _id: 1 }, { v: 3 })
  await proxy.deliver()
  expect(await document()).toEqual({ _id: 1, v: 3 })
})

/**
 * Writes 1, then 2. The proxy holds the second write back, and the session of that write cannot be closed, because the lease
 * is not renewed in time.
 */
async function leaveOpen(cluster: Cluster, proxy: HoldingProxy): Promise<void> {
  await write(cluster, 1)
  proxy.hold()
  const late = write(cluster, 2, 500).catch(() => 'given up')
  await vi.waitFor(() => expect(proxy.heldBytes).toBeGreaterThan(0), patience)
  const { fence } = cluster
  cluster.fence = () => {
    throw new Error('the lease could not be renewed in time')
  }
  expect(await late).toBe('given up')
  cluster.fence = fence
}

it('a session that could not be closed is closed before the next write of any session', async () => {
  const { proxy, uri } = await proxied()
  const { cluster, lease } = await writer('open', 'first', uri)
  await lease.acquire()
  await leaveOpen(cluster, proxy)
  expect(lease.sessions.areOpen).toBe(true)
  await cluster.write('app', { insert: 'other', documents: [{}] })
  expect(lease.sessions.areOpen).toBe(false)
  await one.client.db('app').collection<{ _id: number; v: number }>('c').replaceOne({ _id: 1 }, { v: 3 })
  await proxy.deliver()
  expect(await document()).toEqual({ _id: 1, v: 3 })
})

it('a write after the eviction of its instance is refused, and the instance learns that its lease is lost', async () => {
  const { cluster, lease } = await writer('writes after eviction', 'first')
  await lease.acquire()
  const lost = new Promise((resolve) => Object.assign(lease, { onLost: resolve }))
  await evict('writes after eviction')
  lease.fence()
  const error = await write(cluster, 5).catch((reason: unknown) => reason)
  expect(error).toMatchObject({ code: 225 })
  expect(isTransient(error)).toBe(true)
  expect(await lost).toBe('evicted')
})

it('an instance is evicted without closing sessions if an earlier release stored its lease', async () => {
  const fences = () => one.client.db(metadataDatabase).collection('fences').find().toArray()
  const { context, lease } = await writer('earlier', 'first')
  await lease.acquire()
  context.stop()
  await lease.release()
  await leases().updateOne({ _id: OwnershipStore.leaseName('earlier') }, { $unset: { sessions: '' } })
  const before = await fences()
  expect(await viewOf('earlier')).toMatchObject({ sessions: null, expired: true })
  expect(await store().evict(await viewOf('earlier'), 0, async () => {})).toBe(true)
  expect(await fences()).toEqual(before)
  const second = await writer('earlier', 'second')
  await second.lease.acquire()
  expect((await viewOf('earlier')).sessions).not.toBeNull()
})

it('only one write at a time uses a session, and every waiting write gets a session in the end', async () => {
  const { cluster, lease } = await writer('many', 'first')
  await lease.acquire()
  const inserts = Array.from({ length: 100 }, (_, _id) =>
    cluster.write('app', { insert: 'many', documents: [{ _id }] }),
  )
  await Promise.all(inserts)
  expect(await one.client.db('app').collection('many').countDocuments()).toBe(100)
  const removal = { delete: 'many', deletes: [{ q: { _id: { $lt: 50 } }, limit: 0 }] }
  expect(await cluster.write('app', removal)).toMatchObject({ n: 50 })
  const taken = { findAndModify: 'many', query: { _id: 50 }, update: { $set: { a: 1 } }, new: true }
  expect((await cluster.write('app', taken))['value']).toEqual({ _id: 50, a: 1 })
  expect(codeOf(await cluster.write('app', { create: 'many' }).catch((error: unknown) => error))).toBe(48)
})

it('a lease that was removed can be acquired and used again, although its transaction numbers start again', async () => {
  const { cluster, lease } = await writer('removed', 'first')
  await lease.acquire()
  for (const v of [1, 2, 3]) await write(cluster, v)
  await lease.release()
  await leases().deleteOne({ _id: OwnershipStore.leaseName('removed') })
  const again = await writer('removed', 'first')
  await again.lease.acquire()
  await write(again.cluster, 4)
  expect(await document()).toEqual({ _id: 1, v: 4 })
})

it('partitions are released only after the server refuses a write of unknown outcome', async () => {
  const { proxy, uri } = await proxied()
  const { cluster, lease, context } = await writer('rebalanced', 'first', uri)
  await lease.acquire()
  await leaveOpen(cluster, proxy)
  expect(lease.sessions.areOpen).toBe(true)
  const coordination = new Coordination({
    ...{ destination: cluster, lease, context, id: 'rebalanced', partitions: 16 },
    ...{ liveness: new MongoLiveness(cluster), failureDetector: null, onLeaseLost: () => {} },
  })
  await coordination.release([3])
  expect(lease.sessions.areOpen).toBe(false)
  await one.client.db('app').collection<{ _id: number; v: number }>('c').replaceOne({ _id: 1 }, { v: 3 })
  await proxy.deliver()
  expect(await document()).toEqual({ _id: 1, v: 3 })
})
