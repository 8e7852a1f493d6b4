import { setTimeout as sleep } from 'node:timers/promises'
import { BSON, type Document, MongoClient } from 'mongodb'
import { expect, it, onTestFinished, vi } from 'vitest'
import { OwnershipStore } from '../../src/coordination/ownership-store.ts'
import type { Cluster } from '../../src/mongo/cluster.ts'
import { isTransient } from '../../src/mongo/errors.ts'
import { readFacts } from '../../src/mongo/identity.ts'
import { Lease } from '../../src/mongo/lease.ts'
import { writesEnded } from '../../src/mongo/predecessors.ts'
import { rawSequence } from '../../src/mongo/raw-values.ts'
import { failPoint } from '../support/fail-point.ts'
import { type TestContext, testCluster, testContext } from './clusters.ts'
import { oneSet } from './one-set.ts'

/**
 * tandem sends a batch of updates or deletes as a transaction, so that one transaction number fences all of its statements. It
 * writes a batch that cannot run in a transaction without one.
 */

const one = oneSet({ members: 3 })
const c = () => one.client.db('app').collection<{ _id: number; v?: number; u?: number }>('c')
const openTransactions = () =>
  one.client
    .db('admin')
    .aggregate([
      { $currentOp: { allUsers: true, idleSessions: true } },
      { $match: { 'transaction.parameters': { $exists: true } } },
    ])
    .toArray()

async function writer(id: string): Promise<{ cluster: Cluster; lease: Lease; context: TestContext }> {
  const context = testContext()
  const cluster = testCluster(one.set.uri, `tandem:${id}:first`)
  await readFacts(cluster)
  cluster.stopped = context.signal
  const lease = new Lease(cluster, OwnershipStore.leaseName(id), { id, incarnation: 'first' }, context)
  Object.assign(cluster, { fence: () => lease.fence(), sessions: lease.sessions })
  onTestFinished(async () => {
    context.stop()
    await lease.release()
    await cluster.close()
    await one.client.db('app').dropDatabase()
  })
  await lease.acquire()
  return { cluster, lease, context }
}

const replacements = (count: number, v: number) =>
  Array.from({ length: count }, (_, _id) => ({ q: { _id }, u: { _id, v }, upsert: true }))

const entriesOf = async (op: Document): Promise<number> =>
  await one.client.db('local').collection('oplog.rs').countDocuments(op)

it('a batch of updates writes one oplog entry, and so does a batch of deletes', async () => {
  const { cluster } = await writer('batches')
  await one.client.db('app').createCollection('c')
  const updates = replacements(100, 1).map((statement) => Buffer.from(BSON.serialize(statement)))
  const before = await entriesOf({ op: 'c', 'o.applyOps.ns': 'app.c' })
  const updated = await cluster.write('app', { update: 'c', updates: rawSequence('updates', updates) })
  expect(updated).toMatchObject({ ok: 1, n: 100 })
  const deletes = replacements(50, 0).map(({ q }) => ({ q, limit: 1 }))
  expect(await cluster.write('app', { delete: 'c', deletes })).toMatchObject({ ok: 1, n: 50 })
  expect(await entriesOf({ op: 'c', 'o.applyOps.ns': 'app.c' })).toBe(before + 2)
  expect(await c().countDocuments({ v: 1 })).toBe(50)
})

it('a batch for a capped collection, which does not support transactions, is written statement by statement', async () => {
  const { cluster } = await writer('capped')
  await one.client.db('app').createCollection('c', { capped: true, size: 100_000 })
  const updates = replacements(20, 1).map(({ q, u }) => ({ q, u, upsert: true }))
  expect(await cluster.write('app', { update: 'c', updates })).toMatchObject({ ok: 1, n: 20 })
  expect(await c().countDocuments()).toBe(20)
})

it('the reply lists each statement that fails, and the other statements take effect', async () => {
  const { cluster } = await writer('failing')
  await c().createIndex({ u: 1 }, { unique: true })
  const updates = Array.from({ length: 20 }, (_, _id) => ({
    q: { _id },
    u: { _id, u: Math.min(_id, 17) },
    upsert: true,
  }))
  const reply = await cluster.write('app', { update: 'c', updates, ordered: false })
  expect(reply).toMatchObject({
    n: 18,
    writeErrors: [
      { index: 18, code: 11000 },
      { index: 19, code: 11000 },
    ],
  })
  expect(await c().countDocuments()).toBe(18)
})

it('a statement that may change several documents is sent as a transaction', async () => {
  const { cluster } = await writer('multi')
  await cluster.write('app', { insert: 'c', documents: Array.from({ length: 10 }, (_, _id) => ({ _id, v: 1 })) })
  const before = await entriesOf({ op: 'c', 'o.applyOps.ns': 'app.c' })
  expect(
    await cluster.write('app', { update: 'c', updates: [{ q: {}, u: { $set: { v: 2 } }, multi: true }] }),
  ).toMatchObject({ n: 10 })
  expect(await cluster.write('app', { delete: 'c', deletes: [{ q: { v: 2 }, limit: 0 }] })).toMatchObject({ n: 10 })
  expect(await entriesOf({ op: 'c', 'o.applyOps.ns': 'app.c' })).toBe(before + 2)
})

it('a commit that fails with a network error leaves no transaction open, and the batch can be sent again', async () => {
  const { cluster } = await writer('cut')
  await c().insertOne({ _id: 0, v: 0 })
  const data = { failCommands: ['commitTransaction'], closeConnection: true }
  await using _ = await failPoint(one.client, 'failCommand', data, { times: 1 })
  const error = await cluster
    .write('app', { update: 'c', updates: replacements(20, 1) })
    .catch((reason: unknown) => reason)
  expect(isTransient(error)).toBe(true)
  await cluster.write('app', { update: 'c', updates: replacements(20, 2) })
  expect(await openTransactions()).toEqual([])
  expect(await c().countDocuments({ v: 2 })).toBe(20)
})

it('a transaction whose owner may no longer write is closed before the next write', async () => {
  const { cluster } = await writer('unfenced')
  await one.client.db('app').createCollection('c')
  const { fence } = cluster
  let checks = 0
  cluster.fence = () => {
    checks += 1
    // The fence is checked before the batch, when the batch is sent, and when the commit is sent.
    if (checks === 3) throw new Error('the lease could not be renewed in time')
    fence()
  }
  await expect(cluster.write('app', { update: 'c', updates: replacements(20, 1) })).rejects.toThrow('renewed')
  expect(await openTransactions()).toHaveLength(1)
  cluster.fence = fence
  await cluster.write('app', { insert: 'other', documents: [{}] })
  expect(await openTransactions()).toEqual([])
  expect(await c().countDocuments()).toBe(0)
})

it('a failover between batches does not lose any batch', async () => {
  const { cluster } = await writer('failover')
  await one.client.db('app').createCollection('c')
  let version = 0
  let isOver = false
  const writing = (async () => {
    while (!isOver) {
      version += 1
      const updates = replacements(50, version)
      while (
        !(await cluster.write('app', { update: 'c', updates }).then(
          () => true,
          (error) => {
            if (!isTransient(error)) throw error
            return false
          },
        ))
      );
    }
  })()
  await vi.waitFor(() => expect(version).toBeGreaterThan(5), { timeout: 20_000 })
  await one.set.stepDown()
  const at = version
  await vi.waitFor(() => expect(version).toBeGreaterThan(at + 5), { timeout: 60_000 })
  isOver = true
  await writing
  expect(await c().countDocuments({ v: version })).toBe(50)
})

it('after a transient abort, a statement that may change several documents is not sent without a transaction number', async () => {
  const { cluster } = await writer('busy')
  await cluster.write('app', { insert: 'c', documents: Array.from({ length: 10 }, (_, _id) => ({ _id, v: 1 })) })
  // Unlike a real LockTimeout, this fail point leaves the transaction open on the server.
  const data = { failCommands: ['commitTransaction'], errorCode: 24 }
  await using _ = await failPoint(one.client, 'failCommand', data, { times: 1 })
  const command = { update: 'c', updates: [{ q: {}, u: { $set: { v: 2 } }, multi: true }] }
  expect(isTransient(await cluster.write('app', command).catch((reason: unknown) => reason))).toBe(true)
  expect(await c().countDocuments({ v: 2 })).toBe(0)
  expect(await cluster.write('app', command)).toMatchObject({ n: 10 })
  expect(await c().countDocuments({ v: 2 })).toBe(10)
  expect(await openTransactions()).toEqual([])
})

it('a takeover waits for the open transaction of a process that connected as another user', async () => {
  const { cluster } = await writer('successor')
  await one.client.db('app').createCollection('c')
  await using former = new MongoClient(one.set.uri, { appName: 'tandem:successor:gone' })
  const session = former.startSession()
  session.startTransaction()
  await former.db('app').collection<{ _id: number }>('c').insertOne({ _id: 1 }, { session })
  let hasEnded = false
  const ended = writesEnded(cluster, ['gone']).then(() => {
    hasEnded = true
  })
  await sleep(500)
  expect(hasEnded).toBe(false)
  await session.abortTransaction()
  await ended
  await session.endSession()
})
