import { setTimeout as sleep } from 'node:timers/promises'
import type { Document } from 'mongodb'
import { afterAll, beforeEach, describe, expect, it, vi } from 'vitest'
import { historyMax, OwnershipStore } from '../../src/coordination/ownership-store.ts'
import { metadataDatabase } from '../../src/domain/namespace.ts'
import { isExpired, type LeaseView, ownerToken } from '../../src/domain/owner.ts'
import { Lease } from '../../src/mongo/lease.ts'
import { givenUp } from '../../src/mongo/lease-watch.ts'
import { testCluster, testContext } from '../mongo/clusters.ts'
import { oneSet } from '../mongo/one-set.ts'
import { failPoint } from '../support/fail-point.ts'

const one = oneSet()
const closing: (() => Promise<unknown>)[] = []
const patience = { timeout: 10_000, interval: 20 }

beforeEach(async () => {
  await one.client.db(metadataDatabase).dropDatabase()
})
afterAll(async () => {
  await Promise.all(closing.map((close) => close()))
})

const rows = (name: string) => one.client.db(metadataDatabase).collection<{ _id: string } & Document>(name)
const store = () => new OwnershipStore(one.cluster)
const noPause = async (): Promise<void> => {}

/** Takes the lease of an instance with a separate client, like another process. */
async function leaseOf(id: string, incarnation = `of ${id}`): Promise<Lease> {
  const context = testContext()
  const cluster = testCluster(one.set.uri, `tandem:${id}:${incarnation}`)
  const lease = new Lease(cluster, OwnershipStore.leaseName(id), { id, incarnation }, context)
  closing.push(async () => {
    context.stop()
    await lease.release()
    await cluster.close()
  })
  await lease.acquire()
  return lease
}

const viewOf = async (id: string): Promise<LeaseView> => {
  const found = (await store().read()).leases.find((lease) => lease.id === id)
  if (!found) throw new Error(`no lease of ${id}`)
  return found
}

/** Expires the lease, as if all instances had observed it unrenewed for ten seconds. Its holder can still renew it. */
const expire = (id: string) => rows('leases').updateOne({ _id: `instance:${id}` }, { $set: { expiresAt: givenUp } })

describe('a read', () => {
  it('also returns documents of other collections, with the same command', async () => {
    await leaseOf('a')
    await rows('positions').insertMany([
      { _id: '1', n: 1 },
      { _id: '2', n: 2 },
    ])
    const taken: Document[][] = []
    const part = (collection: string, pipeline: Document[]) => {
      return { collection, pipeline, take: (documents: Document[]) => void taken.push(documents) }
    }
    const { leases, claims } = await store().read([
      part('positions', [{ $match: { n: 2 } }]),
      part('members', [{ $limit: 1 }]),
    ])
    expect(leases.map(({ id }) => id)).toEqual(['a'])
    expect(claims.size).toBe(0)
    expect(taken).toEqual([[{ _id: '2', n: 2 }], []])
  })

  it('returns leases, claims, the revision of the state and whether a barrier is open, with one command', async () => {
    await leaseOf('a')
    await store().claim(3, undefined, 'a#1')
    await store().claim('coordinator', undefined, 'a#1')
    expect(await store().read()).toMatchObject({ revision: null, hasOpenBarrier: false })
    await rows('stages').insertMany([{ _id: 'sync', revision: 7 }, { _id: 'other' }])
    await rows('barriers').insertMany([
      { _id: '1', done: true },
      { _id: '2', done: false },
    ])
    const read = vi.spyOn(one.cluster, 'read')
    const { leases, claims, revision, hasOpenBarrier } = await store().read()
    expect(read).toHaveBeenCalledTimes(1)
    read.mockRestore()
    expect(leases.map(({ id, epoch }) => ({ id, epoch }))).toEqual([{ id: 'a', epoch: 1 }])
    expect([...claims.keys()].sort()).toEqual([3, 'coordinator'])
    expect({ revision, hasOpenBarrier }).toEqual({ revision: 7, hasOpenBarrier: true })
    await rows('barriers').updateOne({ _id: '2' }, { $set: { done: true } })
    expect((await store().read()).hasOpenBarrier).toBe(false)
  })
})

describe('a claim', () => {
  it('is won by one of many contenders with the same read each time it is free, and by none with an older read', async () => {
    const owners = Array.from({ length: 8 }, (_, index) => ownerToken(`i${index}`, 1))
    for (let epoch = 1; epoch <= 3; epoch++) {
      const observed = (await store().read()).claims.get(3)
      const answers = await Promise.all(owners.map((owner) => store().claim(3, observed, owner)))
      const winners = owners.filter((_, index) => answers[index])
      expect(winners).toHaveLength(1)
      expect((await store().read()).claims.get(3)).toMatchObject({ owner: winners[0], epoch })
      expect(await store().claim(3, observed, 'late#1')).toBe(false)
      await store().release([[3, epoch]], winners[0] as string)
    }
    const history = await rows('ownershipHistory').find().sort({ _id: 1 }).toArray()
    expect(history.map(({ _id }) => _id)).toEqual(['3:1', '3:2', '3:3'])
    for (const line of history) expect(owners).toContain(line['owner'])
  })

  it('is taken over in the next epoch by one of the instances that read its last owner', async () => {
    expect(await store().claim('coordinator', undefined, 'a#1')).toBe(true)
    const observed = (await store().read()).claims.get('coordinator')
    const both = await Promise.all(['b#1', 'c#1'].map((owner) => store().claim('coordinator', observed, owner)))
    expect([...both].sort()).toEqual([false, true])
    expect((await store().read()).claims.get('coordinator')).toMatchObject({ epoch: 2 })
    expect(await rows('ownershipHistory').countDocuments()).toBe(2)
  })

  it('keeps the latest documents of its history, also after an owner died before it could delete any', async () => {
    const last = { owner: 'a#1', since: new Date() }
    const before = historyMax - 3
    await rows('ownership').insertOne({ _id: 7 as never, owner: null, epoch: before, last, schemaVersion: 1 })
    const lines = Array.from({ length: before }, (_, at) => ({ _id: `7:${at + 1}`, owner: 'a#1', at: last.since }))
    await rows('ownershipHistory').insertMany([...lines, { _id: '17:1', owner: 'a#1', at: last.since }])
    for (let turn = 0; turn < 8; turn++) {
      if (turn === 5) {
        // As if an owner had died immediately after its claim.
        const died = { owner: 'dead#1', since: new Date() }
        await rows('ownership').updateOne({ _id: 7 as never }, { $inc: { epoch: 1 }, $set: { last: died } })
      }
      const observed = (await store().read()).claims.get(7)
      expect(await store().claim(7, observed, 'b#1')).toBe(true)
      await store().release([[7, (observed?.epoch ?? 0) + 1]], 'b#1')
    }
    const epoch = (await store().read()).claims.get(7)?.epoch as number
    expect(epoch).toBe(before + 9)
    const kept = await rows('ownershipHistory').find({ _id: /^7:/ }).toArray()
    const epochs = kept.map(({ _id }) => Number(_id.split(':')[1])).sort((one, other) => one - other)
    expect(epochs).toEqual(Array.from({ length: historyMax }, (_, at) => epoch - historyMax + 1 + at))
    expect(await rows('ownershipHistory').countDocuments({ _id: '17:1' })).toBe(1)
  })

  it('of several is won for each claim that is still as it was read, in one command', async () => {
    const since = new Date()
    await store().claim(1, undefined, 'a#1')
    await store().claim(2, undefined, 'a#1')
    await store().release([[1, 1]], 'a#1')
    const observed = (await store().read()).claims
    const wanted = new Map([1, 2, 3, 4].map((key) => [key, observed.get(key)]))
    // Others take the claims 1 (which was stored) and 3 (which was not) after the read.
    expect(await store().claim(1, observed.get(1), 'b#1')).toBe(true)
    expect(await store().claim(3, undefined, 'b#1')).toBe(true)
    await store().release([[2, 1]], 'a#1')
    const again = new Map([...wanted, [2, (await store().read()).claims.get(2)]])
    const taken = await store().takeAll(again, 'c#1', since)
    expect([...taken].sort()).toEqual([2, 4])
    const { claims } = await store().read()
    expect([1, 2, 3, 4].map((key) => claims.get(key)?.owner)).toEqual(['b#1', 'c#1', 'b#1', 'c#1'])
    await store().record(new Map([...taken].map((key) => [key, again.get(key as number)])), 'c#1', since)
    const history = await rows('ownershipHistory').find().sort({ _id: 1 }).toArray()
    expect(history.map(({ _id, owner }) => [_id, owner])).toEqual([
      ['1:1', 'a#1'],
      ['1:2', 'b#1'],
      ['2:1', 'a#1'],
      ['2:2', 'c#1'],
      ['3:1', 'b#1'],
      ['4:1', 'c#1'],
    ])
    expect(await store().takeAll(new Map(), 'c#1', since)).toEqual(new Set())
  })

  it('is given back only by its owner', async () => {
    await store().claim(1, undefined, 'a#1')
    await store().claim(2, undefined, 'b#1')
    const both = [
      [1, 1],
      [2, 1],
    ] as const
    await store().release(both, 'a#1')
    await store().release([], 'b#1')
    const { claims } = await store().read()
    expect([claims.get(1), claims.get(2)]).toMatchObject([
      { owner: null, epoch: 1 },
      { owner: 'b#1', epoch: 1 },
    ])
  })

  it('is not given back by a delayed release that arrives after its owner has claimed it again', async () => {
    await store().claim(1, undefined, 'a#1')
    await store().release([[1, 1]], 'a#1')
    expect(await store().claim(1, (await store().read()).claims.get(1), 'a#1')).toBe(true)
    await store().release([[1, 1]], 'a#1')
    expect((await store().read()).claims.get(1)).toMatchObject({ owner: 'a#1', epoch: 2 })
  })
})

describe('a lease that another instance reads', () => {
  it('shows its owner, whether it has expired, and whether the owner is at work and takes partitions', async () => {
    const lease = await leaseOf('read')
    const expiresAt = expect.any(Date)
    const fresh = {
      id: 'read',
      epoch: 1,
      drained: 1,
      expiresAt,
      expired: false,
      incarnation: 'of read',
      predecessors: [],
      sessions: { base: expect.any(String), count: 32 },
      stoppedFor: 0,
    }
    expect(await viewOf('read')).toEqual({ ...fresh, takesWork: false, atWork: false, evicted: false })
    await lease.announce({ takesWork: false, atWork: true })
    expect(await viewOf('read')).toEqual({ ...fresh, takesWork: false, atWork: true, evicted: false })
    await lease.announce({ takesWork: true, atWork: true })
    expect(await viewOf('read')).toEqual({ ...fresh, takesWork: true, atWork: true, evicted: false })
    await lease.announce({ takesWork: true, atWork: true, stoppedFor: 3 })
    expect(await viewOf('read')).toMatchObject({ stoppedFor: 3 })
    // An earlier release stores neither field.
    await rows('leases').updateOne({}, { $unset: { atWork: '', stoppedFor: '' } })
    expect(await viewOf('read')).toMatchObject({ takesWork: true, atWork: true, stoppedFor: 0 })
    await expire('read')
    expect(await viewOf('read')).toMatchObject({ expired: true, drained: 1 })
    expect(isExpired(lease.token, [await viewOf('read')])).toBe(false)
  })

  it('expires at once when it is given back, and the next lease term of the same process has another token', async () => {
    const lease = await leaseOf('left')
    const former = lease.token
    await lease.release()
    expect(isExpired(former, [await viewOf('left')])).toBe(true)
    await lease.acquire()
    expect(lease.token).not.toBe(former)
    const leases = [await viewOf('left')]
    expect([isExpired(former, leases), isExpired(lease.token, leases)]).toEqual([true, false])
  })
})

describe('an eviction', () => {
  it('does nothing before the lease has expired', async () => {
    const lease = await leaseOf('alive')
    const before = await viewOf('alive')
    await lease.verify()
    const renewed = await viewOf('alive')
    expect(renewed.expiresAt).not.toEqual(before.expiresAt)
    // The lease was observed as expired, and was renewed since.
    await store().evict({ ...before, expired: true }, 0, noPause)
    expect(await viewOf('alive')).toEqual(renewed)
    lease.fence()
  })

  it('ends a lease term: its owner cannot renew the lease, notices the loss, and returns in a new term', async () => {
    const lease = await leaseOf('evicted')
    const former = lease.token
    const lost = vi.fn()
    lease.onLost = lost
    await expire('evicted')
    await store().evict(await viewOf('evicted'), 0, noPause)
    expect(isExpired(former, [await viewOf('evicted')])).toBe(true)
    await lease.verify()
    expect(lost).toHaveBeenCalledExactlyOnceWith('evicted')
    expect(lease.held).toBe(false)
    expect(() => lease.fence()).toThrow()
    await lease.acquire()
    lease.fence()
    expect(await viewOf('evicted')).toMatchObject({ epoch: lease.epoch, drained: lease.epoch, expired: false })
    const leases = [await viewOf('evicted')]
    expect([isExpired(former, leases), isExpired(lease.token, leases)]).toEqual([true, false])
  })

  it('does not free the claims between its two steps, and another instance can complete it', async () => {
    const lease = await leaseOf('half')
    await expire('half')
    const observed = await viewOf('half')
    const crash = new Error('the evicting instance died')
    const dies = async (): Promise<void> => {
      throw crash
    }
    await expect(store().evict(observed, 0, dies)).rejects.toBe(crash)
    const between = await viewOf('half')
    expect(between).toMatchObject({ epoch: 2, drained: 1, expired: true })
    expect(isExpired(lease.token, [between])).toBe(false)
    await lease.verify()
    expect(lease.held).toBe(false)
    // The lease as read before the first step does not match any more. The lease as stored now does.
    await store().evict(observed, 0, noPause)
    expect(await viewOf('half')).toEqual(between)
    await store().evict(between, 0, noPause)
    expect(isExpired(lease.token, [await viewOf('half')])).toBe(true)
  })

  it('has one result when two instances perform it at the same time and one repeats it', async () => {
    const lease = await leaseOf('twice')
    await expire('twice')
    const observed = await viewOf('twice')
    await Promise.all([store().evict(observed, 0, noPause), store().evict(observed, 0, noPause)])
    const after = await viewOf('twice')
    expect(after).toMatchObject({ epoch: 2, drained: 3 })
    await store().evict(after, 0, noPause)
    expect(await viewOf('twice')).toEqual(after)
    expect(isExpired(lease.token, [after])).toBe(true)
  })

  it('does not affect a new lease term that began in the meantime', async () => {
    const lease = await leaseOf('back')
    await expire('back')
    const observed = await viewOf('back')
    await store()
      .evict(observed, 0, async () => {
        throw new Error('half')
      })
      .catch(() => {})
    const between = await viewOf('back')
    await lease.verify()
    await lease.acquire()
    const now = await viewOf('back')
    await store().evict(between, 0, noPause)
    expect(await viewOf('back')).toEqual(now)
    expect(isExpired(lease.token, [now])).toBe(false)
    lease.fence()
  })

  it('does not end before the last write of the evicted instance has ended', async () => {
    const lease = await leaseOf('writing')
    const cluster = testCluster(one.set.uri, 'tandem:writing:of writing')
    closing.push(() => cluster.close())
    await using hang = await failPoint(one.client, 'hangDuringBatchInsert', { nss: 'app.slow' })
    const write = cluster.write('app', { insert: 'slow', documents: [{ _id: 1 }] })
    await hang.reached()
    await expire('writing')
    const eviction = store().evict(await viewOf('writing'), 0, noPause)
    await vi.waitFor(async () => expect((await viewOf('writing')).epoch).toBe(2), patience)
    await sleep(300) // long enough for several reads of the operations that the server executes
    expect(isExpired(lease.token, [await viewOf('writing')])).toBe(false)
    await hang.release()
    await Promise.all([write, eviction])
    expect(isExpired(lease.token, [await viewOf('writing')])).toBe(true)
  })
})
