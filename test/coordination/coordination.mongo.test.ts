import type { Document } from 'mongodb'
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { Coordination } from '../../src/coordination/coordination.ts'
import { MongoLiveness } from '../../src/coordination/mongo-liveness.ts'
import { OwnershipStore } from '../../src/coordination/ownership-store.ts'
import { deferred } from '../../src/domain/deferred.ts'
import { metadataDatabase } from '../../src/domain/namespace.ts'
import type { Cluster } from '../../src/mongo/cluster.ts'
import { Lease } from '../../src/mongo/lease.ts'
import type { LeaseLoss } from '../../src/mongo/lease-watch.ts'
import { givenUp } from '../../src/mongo/lease-watch.ts'
import { type TestContext, testCluster, testContext } from '../mongo/clusters.ts'
import { oneSet } from '../mongo/one-set.ts'
import { failPoint } from '../support/fail-point.ts'
import { slowness } from '../support/slowness.ts'

/** Several instances share the coordinator role and the partitions. These tests replace the work on the partitions. */

const one = oneSet()
const partitions = 8
const patience = { timeout: 15_000, interval: 20 }

interface Part {
  coordination: Coordination
  lease: Lease
  context: TestContext
  cluster: Cluster
  losses: LeaseLoss[]
}
let parts: Part[] = []

beforeEach(async () => {
  await one.client.db(metadataDatabase).dropDatabase()
})
afterEach(async () => {
  await Promise.all(parts.map(leave))
  parts = []
})

async function leave({ coordination, lease, context, cluster }: Part): Promise<void> {
  await coordination.stop()
  await lease.release()
  context.stop()
  await cluster.close()
}

/** Starts an instance with its own client, like a separate process. The instance is at work and takes its share. */
async function join(id: string): Promise<Part> {
  const [context, incarnation] = [testContext(), `${id} ${parts.length}`]
  const cluster = testCluster(one.set.uri, `tandem:${id}:${incarnation}`)
  const lease = new Lease(cluster, OwnershipStore.leaseName(id), { id, incarnation }, context)
  const losses: LeaseLoss[] = []
  const coordination = new Coordination({
    destination: cluster,
    lease,
    id,
    partitions,
    context,
    liveness: new MongoLiveness(cluster),
    failureDetector: null,
    onLeaseLost: (reason) => losses.push(reason),
  })
  const part = { coordination, lease, context, cluster, losses }
  parts.push(part)
  expect(coordination.coordinatorID).toBeNull()
  await begin(part)
  return part
}

async function begin({ lease, coordination }: Part): Promise<void> {
  await lease.acquire()
  coordination.engage(true)
  await coordination.start()
  coordination.takeWork(true)
}

/** Gives back the partitions that are assigned to other instances, as event application does. */
const giveBack = async ({ coordination }: Part): Promise<void> => {
  const leaving = [...coordination.held.keys()].filter((partition) => !coordination.staying.has(partition))
  await coordination.release(leaving)
}

/** Resolves when a round has ended that began after this call. */
async function nextRound(coordination: Coordination): Promise<void> {
  await coordination.changed()
  await coordination.changed()
}

/** Waits until every partition has one owner and the instances have the given shares. */
async function shared(shares: [Part, number][]): Promise<void> {
  await vi.waitFor(async () => {
    for (const [part] of shares) await giveBack(part)
    const held = shares.map(([{ coordination }]) => [...coordination.staying])
    expect(held.map(({ length }) => length)).toEqual(shares.map(([, count]) => count))
    expect(new Set(held.flat()).size).toBe(partitions)
  }, patience)
}

const rows = (name: string) => one.client.db(metadataDatabase).collection<{ _id: string } & Document>(name)
/** Expires the lease, as if this instance had been disconnected for ten seconds. Its renewals come too late. */
async function expire(id: string): Promise<void> {
  await rows('leases').updateOne({ _id: `instance:${id}` }, { $set: { expiresAt: givenUp } })
}

describe('instances that share partitions', () => {
  it('own all partitions alone, take equal shares together, and take over at once from an instance that leaves', async () => {
    const a = await join('a')
    await shared([[a, 8]])
    expect([a.coordination.leading, a.coordination.ownsAll, a.coordination.isAlone]).toEqual([true, true, true])
    const b = await join('b')
    expect(b.coordination.coordinatorID).toBe('a')
    await shared([
      [a, 4],
      [b, 4],
    ])
    const c = await join('c')
    await shared([
      [a, 3],
      [b, 3],
      [c, 2],
    ])
    expect([...c.coordination.members].sort()).toEqual(['a', 'b', 'c'])
    const since = performance.now()
    await leave(a)
    await shared([
      [b, 4],
      [c, 4],
    ])
    expect(performance.now() - since).toBeLessThan(3_000 * (await slowness()))
    await vi.waitFor(() => {
      const leading = [b, c].filter(({ coordination }) => coordination.leading)
      expect(leading).toHaveLength(1)
      const ids = new Set([b, c].map(({ coordination }) => coordination.coordinatorID))
      expect([...ids]).toEqual([leading[0]?.coordination.id])
    }, patience)
    const claims = await rows('ownershipHistory').countDocuments()
    const epochs = await rows('ownership').find().toArray()
    // The history has one document for each change of an owner.
    expect(claims).toBe(epochs.reduce((sum, { epoch }) => sum + (epoch as number), 0))
  })

  it('give all partitions back for a commit, including those that a claim under way obtains', async () => {
    const [a, b] = [await join('a'), await join('b')]
    await shared([
      [a, 4],
      [b, 4],
    ])
    const slow = {
      failCommands: ['update'],
      namespace: `${metadataDatabase}.ownership`,
      blockConnection: true,
      blockTimeMS: 600,
    }
    await using claiming = await failPoint(one.client, 'failCommand', { ...slow, appName: 'tandem:b:b 1' })
    a.coordination.takeWork(false)
    await a.coordination.release([...a.coordination.held.keys()])
    await claiming.reached()
    b.coordination.takeWork(false)
    const yielded = b.coordination.yieldAll()
    await claiming.release()
    await yielded
    a.coordination.takeWork(true)
    await vi.waitFor(() => expect(a.coordination.hasEverything).toBe(true), patience)
    expect(b.coordination.held.size).toBe(0)
  })

  it('leave a paused instance its partitions and give it no others, and the paused instance gives up the coordinator role', async () => {
    const a = await join('a')
    await shared([[a, 8]])
    const b = await join('b')
    await shared([
      [a, 4],
      [b, 4],
    ])
    const kept = [...a.coordination.held.keys()]
    a.coordination.takeWork(false)
    a.coordination.engage(false)
    await vi.waitFor(() => expect(b.coordination.leading).toBe(true), patience)
    await leave(b)
    await vi.waitFor(() => expect(a.coordination.members).toEqual(['a']), patience)
    expect([...a.coordination.held.keys()]).toEqual(kept)
    // A paused instance coordinates when it is the only one, so that an aborted commit is undone.
    await vi.waitFor(() => expect(a.coordination.leading).toBe(true), patience)
    a.coordination.takeWork(true)
    a.coordination.engage(true)
    await shared([[a, 8]])
    expect(a.coordination.leading).toBe(true)
  })

  it('hand the coordinator role to an instance that is at work, also while no instance takes partitions', async () => {
    const [a, b] = [await join('a'), await join('b')]
    for (const { coordination } of [a, b]) {
      coordination.takeWork(false)
      await coordination.yieldAll()
    }
    a.coordination.engage(false)
    await vi.waitFor(
      () => expect([a, b].map(({ coordination }) => coordination.leading)).toEqual([false, true]),
      patience,
    )
    // Now both have failed. The coordinator keeps its role, and the other instance does not take it.
    b.coordination.engage(false)
    const { coordinatorEpoch } = b.coordination
    for (let rounds = 0; rounds < 3; rounds++)
      await Promise.all([a, b].map(({ coordination }) => nextRound(coordination)))
    expect([b.coordination.leading, b.coordination.coordinatorEpoch]).toEqual([true, coordinatorEpoch])
    await expire('b')
    await vi.waitFor(() => expect(a.coordination.leading).toBe(true), patience)
  })

  it('that have failed leave a vacant coordinator role to an instance that is at work', async () => {
    const [a, b, c] = [await join('a'), await join('b'), await join('c')]
    b.coordination.engage(false)
    await vi.waitFor(
      async () => expect((await rows('leases').findOne({ _id: 'instance:b' }))?.['atWork']).toBe(false),
      patience,
    )
    const owners = new Set<unknown>()
    const watching = setInterval(() => owners.add(c.coordination.coordinatorID), 20)
    await leave(a)
    await vi.waitFor(() => expect(c.coordination.leading).toBe(true), patience)
    clearInterval(watching)
    expect([...owners].filter((id) => id === 'b')).toEqual([])
    await leave(c)
    await vi.waitFor(() => expect(b.coordination.leading).toBe(true), patience)
  })

  it('stop leading when they begin to give up the coordinator role, even if they are at work again before the release', async () => {
    const a = await join('a')
    await shared([[a, 8]])
    const b = await join('b')
    await shared([
      [a, 4],
      [b, 4],
    ])
    const epoch = a.coordination.coordinatorEpoch
    const [begun, proceed] = [deferred<void>(), deferred<void>()]
    const release = vi.spyOn(OwnershipStore.prototype, 'release').mockImplementationOnce(async function (
      this: OwnershipStore,
      ...given
    ) {
      begun.resolve()
      await proceed.promise
      await this.release(...given)
    })
    a.coordination.takeWork(false)
    a.coordination.engage(false)
    await begun.promise
    a.coordination.engage(true)
    const { leading } = a.coordination
    proceed.resolve()
    expect(leading).toBe(false)
    await vi.waitFor(() => {
      const epochs = [a, b].map(({ coordination }) => (coordination.leading ? coordination.coordinatorEpoch : 0))
      expect(Math.max(...epochs)).toBeGreaterThan(epoch)
    }, patience)
    release.mockRestore()
  })

  it('evict a disconnected instance, which notices the eviction and returns in a new lease term', async () => {
    const a = await join('a')
    const b = await join('b')
    await shared([
      [a, 4],
      [b, 4],
    ])
    const [former, lost] = [a.coordination.token, a.lease.epoch]
    await expire('a')
    await shared([[b, 8]])
    expect(b.coordination.isExpired(former)).toBe(true)
    await vi.waitFor(() => expect(a.losses).toEqual(['evicted']), patience)
    expect([a.coordination.held.size, a.coordination.leading]).toEqual([0, false])
    await vi.waitFor(() => expect(b.coordination.leading).toBe(true), patience)
    await begin(a)
    expect(a.lease.epoch).toBeGreaterThan(lost)
    await shared([
      [a, 4],
      [b, 4],
    ])
    expect(a.coordination.coordinatorID).toBe('b')
  })

  it('begin a round at once when they are woken, and continue after the server has refused a read', async () => {
    const a = await join('a')
    await shared([[a, 8]])
    const reads = vi.spyOn(OwnershipStore.prototype, 'read').mockRejectedValueOnce(new Error('no primary'))
    a.coordination.wake()
    await vi.waitFor(() => expect(a.context.retried.map(({ what }) => what)).toContain('coordinating'), patience)
    expect(a.coordination.held.size).toBe(8)
    reads.mockRestore()
    const b = await join('b')
    await shared([
      [a, 4],
      [b, 4],
    ])
  })

  it('announce again that they take work after a delayed write of their own has overwritten the announcement', async () => {
    const a = await join('a')
    const name = OwnershipStore.leaseName('a')
    const shown = async (): Promise<unknown> => (await rows('leases').findOne({ _id: name }))?.['takesWork']
    await vi.waitFor(async () => expect(await shown()).toBe(true), patience)
    await rows('leases').updateOne({ _id: name }, { $set: { takesWork: false } })
    await vi.waitFor(async () => expect(await shown()).toBe(true), patience)
    const b = await join('b')
    await shared([
      [a, 4],
      [b, 4],
    ])
  })

  it('count as not stopped until they declare that they have stopped, or until their lease term is over', async () => {
    const a = await join('a')
    const b = await join('b')
    const c = await join('c')
    await shared([
      [a, 3],
      [b, 3],
      [c, 2],
    ])
    const { coordination } = a
    expect((await coordination.notStoppedFor(1)).sort()).toEqual(['b', 'c'])
    b.coordination.takeWork(false)
    await b.coordination.stopFor(1)
    expect(b.coordination.held.size).toBe(0)
    await vi.waitFor(async () => expect(await coordination.notStoppedFor(1)).toEqual(['c']), patience)
    // A declaration for one convergence does not count for a later convergence.
    expect((await coordination.notStoppedFor(2)).sort()).toEqual(['b', 'c'])
    // This is the first step of an eviction. c counts until the eviction is complete, so until the writes of c have ended.
    await rows('leases').updateOne(
      { _id: OwnershipStore.leaseName('c') },
      { $inc: { epoch: 1 }, $set: { buried: true, expiresAt: givenUp } },
    )
    await vi.waitFor(async () => expect(await coordination.notStoppedFor(1)).toEqual([]), patience)
    // In its new lease term, b has not declared that it has stopped.
    await b.coordination.stop()
    await b.lease.release()
    await join('b')
    await vi.waitFor(async () => expect(await coordination.notStoppedFor(1)).toEqual(['b']), patience)
  })
})
