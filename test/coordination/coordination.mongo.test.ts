import type { Document } from 'mongodb'
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { Coordination } from '../../src/coordination/coordination.ts'
import { MongoLiveness } from '../../src/coordination/mongo-liveness.ts'
import { OwnershipStore } from '../../src/coordination/ownership-store.ts'
import { deferred } from '../../src/domain/deferred.ts'
import type { Cluster } from '../../src/mongo/cluster.ts'
import { Lease, type LeaseLoss } from '../../src/mongo/lease.ts'
import { givenUp } from '../../src/mongo/lease-watch.ts'
import { type TestContext, testCluster, testContext } from '../mongo/clusters.ts'
import { oneSet } from '../mongo/one-set.ts'
import { failPoint } from '../support/fail-point.ts'
import { slowness } from '../support/slowness.ts'

/** Several instances' parts in one team, without the work that they divide. */

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
  await one.client.db('tandem_internal').dropDatabase()
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

/** An instance as a process of its own has it: at work, and taking its share. */
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

/** As whoever applies events does: gives back what is wanted elsewhere. */
const giveBack = async ({ coordination }: Part): Promise<void> => {
  const leaving = [...coordination.held.keys()].filter((partition) => !coordination.staying.has(partition))
  await coordination.release(leaving)
}

/** With a look that began after this one had ended. */
async function looked(coordination: Coordination): Promise<void> {
  await coordination.changed()
  await coordination.changed()
}

/** Until every partition has one owner, and shares are as given. */
async function shared(shares: [Part, number][]): Promise<void> {
  await vi.waitFor(async () => {
    for (const [part] of shares) await giveBack(part)
    const held = shares.map(([{ coordination }]) => [...coordination.staying])
    expect(held.map(({ length }) => length)).toEqual(shares.map(([, count]) => count))
    expect(new Set(held.flat()).size).toBe(partitions)
  }, patience)
}

const rows = (name: string) => one.client.db('tandem_internal').collection<{ _id: string } & Document>(name)
/** As if this instance had been cut off for ten seconds; its renewals come too late. */
async function expire(id: string): Promise<void> {
  await rows('leases').updateOne({ _id: `instance:${id}` }, { $set: { expiresAt: givenUp } })
}

describe('instances that share partitions', () => {
  it('have all of them alone, equal shares together, and take over at once from one who leaves', async () => {
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
    // One line for each time that anything changed hands.
    expect(claims).toBe(epochs.reduce((sum, { epoch }) => sum + (epoch as number), 0))
  })

  it('give everything back for a commit, also what a claim brings that was under way', async () => {
    const [a, b] = [await join('a'), await join('b')]
    await shared([
      [a, 4],
      [b, 4],
    ])
    const slow = {
      failCommands: ['update'],
      namespace: 'tandem_internal.ownership',
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

  it('leave a paused one what it has, and give it nothing; it gives up the office', async () => {
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
    // Nobody else is there to coordinate: an aborted commit is undone also where all are paused.
    await vi.waitFor(() => expect(a.coordination.leading).toBe(true), patience)
    a.coordination.takeWork(true)
    a.coordination.engage(true)
    await shared([[a, 8]])
    expect(a.coordination.leading).toBe(true)
  })

  it('hand the office to one that is at work, also while nobody takes partitions, as while a commit is undone', async () => {
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
    // It has failed as well: somebody keeps the office, and nobody takes it from him.
    b.coordination.engage(false)
    const { coordinatorEpoch } = b.coordination
    for (let looks = 0; looks < 3; looks++) await Promise.all([a, b].map(({ coordination }) => looked(coordination)))
    expect([b.coordination.leading, b.coordination.coordinatorEpoch]).toEqual([true, coordinatorEpoch])
    await expire('b')
    await vi.waitFor(() => expect(a.coordination.leading).toBe(true), patience)
  })

  it('that have failed stand back from a vacant office for one that is at work', async () => {
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

  it('lead no more from when they begin to give up the office, also when they are at work again before that is done', async () => {
    const a = await join('a')
    await shared([[a, 8]])
    const b = await join('b')
    await shared([
      [a, 4],
      [b, 4],
    ])
    const epoch = a.coordination.coordinatorEpoch
    const [begun, goOn] = [deferred<void>(), deferred<void>()]
    const release = vi.spyOn(OwnershipStore.prototype, 'release').mockImplementationOnce(async function (
      this: OwnershipStore,
      ...given
    ) {
      begun.resolve()
      await goOn.promise
      await this.release(...given)
    })
    a.coordination.takeWork(false)
    a.coordination.engage(false)
    await begun.promise
    a.coordination.engage(true)
    const { leading } = a.coordination
    goOn.resolve()
    expect(leading).toBe(false)
    await vi.waitFor(() => {
      const epochs = [a, b].map(({ coordination }) => (coordination.leading ? coordination.coordinatorEpoch : 0))
      expect(Math.max(...epochs)).toBeGreaterThan(epoch)
    }, patience)
    release.mockRestore()
  })

  it('bury one that is cut off, which finds that out and comes back in another life', async () => {
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
    await vi.waitFor(() => expect(a.losses).toEqual(['buried']), patience)
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

  it('look again at once when told to, and go on looking while the server refuses', async () => {
    const a = await join('a')
    await shared([[a, 8]])
    const looks = vi.spyOn(OwnershipStore.prototype, 'read').mockRejectedValueOnce(new Error('no primary'))
    a.coordination.wake()
    await vi.waitFor(() => expect(a.context.retried.map(({ what }) => what)).toContain('coordinating'), patience)
    expect(a.coordination.held.size).toBe(8)
    looks.mockRestore()
    const b = await join('b')
    await shared([
      [a, 4],
      [b, 4],
    ])
  })

  it('tell again that they take work when a late word of their own has come after it', async () => {
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
})
