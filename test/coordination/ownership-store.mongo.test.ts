import { setTimeout as sleep } from 'node:timers/promises'
import type { Document } from 'mongodb'
import { afterAll, beforeEach, describe, expect, it, vi } from 'vitest'
import { historyMax, OwnershipStore } from '../../src/coordination/ownership-store.ts'
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
  await one.client.db('tandem_internal').dropDatabase()
})
afterAll(async () => {
  await Promise.all(closing.map((close) => close()))
})

const rows = (name: string) => one.client.db('tandem_internal').collection<{ _id: string } & Document>(name)
const store = () => new OwnershipStore(one.cluster)
const noPause = async (): Promise<void> => {}

/** The lease of an instance, as a process of its own holds it. */
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

/** As if everybody had seen it unrenewed for ten seconds; a renewal of its own still comes through. */
const expire = (id: string) => rows('leases').updateOne({ _id: `instance:${id}` }, { $set: { expiresAt: givenUp } })

describe('a claim', () => {
  it('falls to one of many contenders who saw the same, each time it is free, and to nobody who saw less', async () => {
    const owners = Array.from({ length: 8 }, (_, index) => ownerToken(`i${index}`, 1))
    for (let epoch = 1; epoch <= 3; epoch++) {
      const seen = (await store().read()).claims.get(3)
      const answers = await Promise.all(owners.map((owner) => store().claim(3, seen, owner)))
      const winners = owners.filter((_, index) => answers[index])
      expect(winners).toHaveLength(1)
      expect((await store().read()).claims.get(3)).toMatchObject({ owner: winners[0], epoch })
      expect(await store().claim(3, seen, 'late#1')).toBe(false)
      await store().release([[3, epoch]], winners[0] as string)
    }
    const history = await rows('ownershipHistory').find().sort({ _id: 1 }).toArray()
    expect(history.map(({ _id }) => _id)).toEqual(['3:1', '3:2', '3:3'])
    for (const line of history) expect(owners).toContain(line['owner'])
  })

  it('is taken over from a dead owner by who saw that owner, under the next epoch', async () => {
    expect(await store().claim('coordinator', undefined, 'a#1')).toBe(true)
    const seen = (await store().read()).claims.get('coordinator')
    const both = await Promise.all(['b#1', 'c#1'].map((owner) => store().claim('coordinator', seen, owner)))
    expect([...both].sort()).toEqual([false, true])
    expect((await store().read()).claims.get('coordinator')).toMatchObject({ epoch: 2 })
    expect(await rows('ownershipHistory').countDocuments()).toBe(2)
  })

  it('keeps the last lines of its history, also after one whose owner died before he could forget any', async () => {
    const last = { owner: 'a#1', since: new Date() }
    const before = historyMax - 3
    await rows('ownership').insertOne({ _id: 7 as never, owner: null, epoch: before, last, schemaVersion: 1 })
    const lines = Array.from({ length: before }, (_, at) => ({ _id: `7:${at + 1}`, owner: 'a#1', at: last.since }))
    await rows('ownershipHistory').insertMany([...lines, { _id: '17:1', owner: 'a#1', at: last.since }])
    for (let turn = 0; turn < 8; turn++) {
      if (turn === 5) {
        // As if its owner had died as soon as the claim was his.
        const died = { owner: 'dead#1', since: new Date() }
        await rows('ownership').updateOne({ _id: 7 as never }, { $inc: { epoch: 1 }, $set: { last: died } })
      }
      const seen = (await store().read()).claims.get(7)
      expect(await store().claim(7, seen, 'b#1')).toBe(true)
      await store().release([[7, (seen?.epoch ?? 0) + 1]], 'b#1')
    }
    const epoch = (await store().read()).claims.get(7)?.epoch as number
    expect(epoch).toBe(before + 9)
    const kept = await rows('ownershipHistory').find({ _id: /^7:/ }).toArray()
    const epochs = kept.map(({ _id }) => Number(_id.split(':')[1])).sort((one, other) => one - other)
    expect(epochs).toEqual(Array.from({ length: historyMax }, (_, at) => epoch - historyMax + 1 + at))
    expect(await rows('ownershipHistory').countDocuments({ _id: '17:1' })).toBe(1)
  })

  it('is given back by its owner alone', async () => {
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

  it('is not given back by a word that comes after its owner has claimed it again', async () => {
    await store().claim(1, undefined, 'a#1')
    await store().release([[1, 1]], 'a#1')
    expect(await store().claim(1, (await store().read()).claims.get(1), 'a#1')).toBe(true)
    await store().release([[1, 1]], 'a#1')
    expect((await store().read()).claims.get(1)).toMatchObject({ owner: 'a#1', epoch: 2 })
  })
})

describe('a lease, as others see it', () => {
  it('shows whose it is, whether it has expired, and whether its owner is at work and takes more of it', async () => {
    const lease = await leaseOf('seen')
    const expiresAt = expect.any(Date)
    const fresh = {
      id: 'seen',
      epoch: 1,
      drained: 1,
      expiresAt,
      expired: false,
      incarnation: 'of seen',
      predecessors: [],
      sessions: { base: expect.any(String), count: 32 },
    }
    expect(await viewOf('seen')).toEqual({ ...fresh, takesWork: false, atWork: false, evicted: false })
    await lease.announce({ takesWork: false, atWork: true })
    expect(await viewOf('seen')).toEqual({ ...fresh, takesWork: false, atWork: true, evicted: false })
    await lease.announce({ takesWork: true, atWork: true })
    expect(await viewOf('seen')).toEqual({ ...fresh, takesWork: true, atWork: true, evicted: false })
    // As an earlier release stores it.
    await rows('leases').updateOne({}, { $unset: { atWork: '' } })
    expect(await viewOf('seen')).toMatchObject({ takesWork: true, atWork: true })
    await expire('seen')
    expect(await viewOf('seen')).toMatchObject({ expired: true, drained: 1 })
    expect(isExpired(lease.token, [await viewOf('seen')])).toBe(false)
  })

  it('that was given back makes its owner dead at once, and the next life of the same process is another', async () => {
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

describe('a burial', () => {
  it('does nothing before the lease has expired', async () => {
    const lease = await leaseOf('alive')
    const before = await viewOf('alive')
    await lease.verify()
    const renewed = await viewOf('alive')
    expect(renewed.expiresAt).not.toEqual(before.expiresAt)
    // Seen expired, and renewed since.
    await store().evict({ ...before, expired: true }, 0, noPause)
    expect(await viewOf('alive')).toEqual(renewed)
    lease.fence()
  })

  it('ends a life: its owner is dead, cannot renew, is told so, and comes back as another', async () => {
    const lease = await leaseOf('buried')
    const former = lease.token
    const lost = vi.fn()
    lease.onLost = lost
    await expire('buried')
    await store().evict(await viewOf('buried'), 0, noPause)
    expect(isExpired(former, [await viewOf('buried')])).toBe(true)
    await lease.verify()
    expect(lost).toHaveBeenCalledExactlyOnceWith('buried')
    expect(lease.held).toBe(false)
    expect(() => lease.fence()).toThrow()
    await lease.acquire()
    lease.fence()
    expect(await viewOf('buried')).toMatchObject({ epoch: lease.epoch, drained: lease.epoch, expired: false })
    const leases = [await viewOf('buried')]
    expect([isExpired(former, leases), isExpired(lease.token, leases)]).toEqual([true, false])
  })

  it('leaves the owner undead between its steps, and whoever comes next finishes it', async () => {
    const lease = await leaseOf('half')
    await expire('half')
    const seen = await viewOf('half')
    const left = new Error('the one who buried died as well')
    const dies = async (): Promise<void> => {
      throw left
    }
    await expect(store().evict(seen, 0, dies)).rejects.toBe(left)
    const between = await viewOf('half')
    expect(between).toMatchObject({ epoch: 2, drained: 1, expired: true })
    expect(isExpired(lease.token, [between])).toBe(false)
    await lease.verify()
    expect(lease.held).toBe(false)
    // By what it saw before the first step nobody can go on; by what stands there now anybody can.
    await store().evict(seen, 0, noPause)
    expect(await viewOf('half')).toEqual(between)
    await store().evict(between, 0, noPause)
    expect(isExpired(lease.token, [await viewOf('half')])).toBe(true)
  })

  it('may be done by two at once and again, and has one result', async () => {
    const lease = await leaseOf('twice')
    await expire('twice')
    const seen = await viewOf('twice')
    await Promise.all([store().evict(seen, 0, noPause), store().evict(seen, 0, noPause)])
    const after = await viewOf('twice')
    expect(after).toMatchObject({ epoch: 2, drained: 3 })
    await store().evict(after, 0, noPause)
    expect(await viewOf('twice')).toEqual(after)
    expect(isExpired(lease.token, [after])).toBe(true)
  })

  it('of a life whose successor has come meanwhile leaves the successor alone', async () => {
    const lease = await leaseOf('back')
    await expire('back')
    const seen = await viewOf('back')
    await store()
      .evict(seen, 0, async () => {
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

  it('is not over before the last write of the buried one has ended', async () => {
    const lease = await leaseOf('writing')
    const cluster = testCluster(one.set.uri, 'tandem:writing:of writing')
    closing.push(() => cluster.close())
    await using hang = await failPoint(one.client, 'hangDuringBatchInsert', { nss: 'app.slow' })
    const write = cluster.write('app', { insert: 'slow', documents: [{ _id: 1 }] })
    await hang.reached()
    await expire('writing')
    const burial = store().evict(await viewOf('writing'), 0, noPause)
    await vi.waitFor(async () => expect((await viewOf('writing')).epoch).toBe(2), patience)
    await sleep(300) // long enough for several looks at what the server works on
    expect(isExpired(lease.token, [await viewOf('writing')])).toBe(false)
    await hang.release()
    await Promise.all([write, burial])
    expect(isExpired(lease.token, [await viewOf('writing')])).toBe(true)
  })
})
