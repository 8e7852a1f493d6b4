import { beforeEach, describe, expect, it } from 'vitest'
import { Barriers, barriersVersion, type Touched } from '../../src/coordination/barriers.ts'
import { clusterTime } from '../../src/domain/cluster-time.ts'
import { metadataDatabase } from '../../src/domain/namespace.ts'
import { StoredDocuments } from '../../src/mongo/stored-documents.ts'
import { testContext } from '../mongo/clusters.ts'
import { oneSet } from '../mongo/one-set.ts'

const one = oneSet()
beforeEach(async () => {
  await one.client.db(metadataDatabase).dropDatabase()
})

const barriers = (term = 0) => new Barriers(new StoredDocuments(one.cluster, testContext(), barriersVersion), { term })
const uuid = (digit: number): string => Buffer.alloc(16, digit).toString('latin1')
const touched: Touched = new Map([
  ['app', new Set([uuid(1), uuid(255)])],
  ['other', new Set()],
])

describe('a barrier', () => {
  it('returns what the coordinator read from the catalog when it finished the barrier', async () => {
    const time = clusterTime(4, 1)
    const observed = [
      { database: 'app', time: clusterTime(5, 7), indexesOf: new Set([uuid(1), uuid(3)]) },
      { database: 'other', time: clusterTime(0x9000_0000, 2), indexesOf: new Set<string>() },
    ]
    await barriers().reach(time, touched, [0])
    expect(await barriers().whenDone(time, touched)).toBeNull()
    await barriers().done({ time, touched, reached: new Set([0]) }, observed)
    expect(await barriers().whenDone(time, touched)).toEqual(observed)
    const stored = one.client.db(metadataDatabase).collection('barriers')
    expect(await stored.findOne()).toMatchObject({ schemaVersion: 2 })
    // Version 1 stores the field `observed` under the name `seen`.
    await stored.updateMany({}, { $rename: { observed: 'seen' }, $set: { schemaVersion: 1 } })
    expect(await barriers().whenDone(time, touched)).toEqual(observed)
    await barriers().done({ time, touched, reached: new Set([0]) }, observed.slice(0, 1))
    expect(await barriers().whenDone(time, touched)).toEqual(observed.slice(0, 1))
    expect(await stored.findOne()).not.toHaveProperty('seen')
    // Earlier releases did not store what the coordinator read from the catalog.
    await stored.updateMany({}, { $unset: { observed: 1 }, $set: { schemaVersion: 1 } })
    expect(await barriers().whenDone(time, touched)).toEqual([])
  })

  it('collects the partitions that have reached it, and keeps the touched collections of the first report', async () => {
    const time = clusterTime(5, 1)
    expect(await barriers().next()).toBeNull()
    await barriers().reach(time, touched, [0, 4])
    expect(await barriers().next()).toEqual({ time, touched, reached: new Set([0, 4]) })
    await barriers().reach(time, touched, [4, 7])
    await barriers().reach(time, touched, [])
    expect(await barriers().next()).toEqual({ time, touched, reached: new Set([0, 4, 7]) })
    expect(await barriers().whenDone(time, touched)).toBeNull()
  })

  it('is stored once when several instances reach it at the same time', async () => {
    const time = clusterTime(6, 1)
    await Promise.all(Array.from({ length: 8 }, (_, partition) => barriers().reach(time, touched, [partition])))
    expect((await barriers().next())?.reached.size).toBe(8)
    expect(await one.client.db(metadataDatabase).collection('barriers').countDocuments()).toBe(1)
  })

  it('counts a partition that waits at a later barrier as having reached this one', async () => {
    const [first, second, third] = [clusterTime(3, 1), clusterTime(3, 2), clusterTime(30, 1)]
    await barriers().reach(second, touched, [1, 2])
    await barriers().reach(third, touched, [3])
    await barriers().done({ time: third, touched, reached: new Set() }, [])
    expect((await barriers().next())?.reached).toEqual(new Set([1, 2, 3]))
    await barriers().reach(first, touched, [0])
    expect(await barriers().next()).toMatchObject({ time: first, reached: new Set([0, 1, 2, 3]) })
    await barriers().done({ time: first, touched, reached: new Set() }, [])
    // A partition that has only reached an earlier barrier does not count.
    expect(await barriers().next()).toMatchObject({ time: second, reached: new Set([1, 2, 3]) })
  })

  it('is returned in the order of the times, however many digits a time has', async () => {
    const times = [clusterTime(9, 2), clusterTime(1, 1), clusterTime(2_000_000_000, 1), clusterTime(16, 0)]
    for (const time of times) await barriers().reach(time, touched, [1])
    const returned: bigint[] = []
    for (let next = await barriers().next(); next; next = await barriers().next()) {
      returned.push(next.time)
      await barriers().done(next, [])
    }
    expect(returned).toEqual([...times].sort((one, other) => (one < other ? -1 : 1)))
  })

  it('that is done is opened again by changes that it did not cover', async () => {
    const time = clusterTime(12, 1)
    const more: Touched = new Map([['app', new Set([uuid(9)])]])
    await barriers().reach(time, touched, [1])
    await barriers().done({ time, touched, reached: new Set() }, [])
    await barriers().reach(time, more, [2])
    expect(await barriers().whenDone(time, more)).toBeNull()
    const next = await barriers().next()
    expect(next?.touched.get('app')).toEqual(new Set([uuid(1), uuid(255), uuid(9)]))
    if (next) await barriers().done(next, [])
    expect(await barriers().whenDone(time, more)).not.toBeNull()
    expect(await barriers().whenDone(time, touched)).not.toBeNull()
  })

  it('is marked as done, but never created, by an instance that owns all partitions', async () => {
    const time = clusterTime(13, 1)
    await barriers().markDone(time, touched)
    expect(await one.client.db(metadataDatabase).collection('barriers').countDocuments()).toBe(0)
    await barriers().reach(time, touched, [1])
    await barriers().markDone(time, touched)
    expect(await barriers().next()).toBeNull()
    expect(await barriers().whenDone(time, touched)).not.toBeNull()
  })

  it('stays done for a partition that reaches it late, and is not returned as the next barrier', async () => {
    const time = clusterTime(7, 1)
    await barriers().reach(time, touched, [1])
    await barriers().done({ time, touched, reached: new Set() }, [])
    await barriers().reach(time, touched, [2])
    expect(await barriers().whenDone(time, touched)).not.toBeNull()
    expect(await barriers().next()).toBeNull()
    // A time that no partition has reached is not done.
    await barriers().done({ time: clusterTime(8, 1), touched, reached: new Set() }, [])
    expect(await barriers().whenDone(clusterTime(8, 1), touched)).toBeNull()
  })

  it('is removed once it is done and no partition can reach it again', async () => {
    const times = [clusterTime(20, 1), clusterTime(20, 2), clusterTime(300, 1), clusterTime(4_000, 1)]
    const [first, second, third, open] = times as [bigint, bigint, bigint, bigint]
    for (const time of times) await barriers().reach(time, touched, [1])
    for (const time of [first, third, open]) await barriers().done({ time, touched, reached: new Set() }, [])
    await barriers().reach(open, new Map([['more', new Set()]]), [2])
    await barriers().removePassed(third)
    expect(await barriers().whenDone(first, touched)).toBeNull()
    expect(await barriers().whenDone(third, touched)).not.toBeNull()
    // This barrier is not done. It stays whatever the positions are, because a partition waits there.
    expect((await barriers().next())?.time).toBe(second)
    await barriers().removePassed(clusterTime(5_000, 1))
    const left = await one.client.db(metadataDatabase).collection('barriers').find().toArray()
    expect(left.map((barrier) => barrier['done'])).toEqual([false, false])
  })

  it('is not changed by a coordinator of an earlier term once a later term has taken it over', async () => {
    const [first, second, third] = [clusterTime(30, 1), clusterTime(30, 2), clusterTime(30, 3)]
    const reached = new Set<number>()
    for (const time of [first, second, third]) await barriers().reach(time, touched, [1])
    await barriers(4).done({ time: first, touched, reached }, [])
    await barriers(5).takeOver()
    await barriers(4).takeOver()
    await barriers(4).done({ time: second, touched, reached }, [])
    await barriers(4).markDone(second, touched)
    await barriers(4).removePassed(third)
    expect(await barriers().next()).toMatchObject({ time: second })
    expect(await barriers().whenDone(first, touched)).not.toBeNull()
    await barriers(5).done({ time: second, touched, reached }, [])
    await barriers(6).markDone(third, touched)
    expect(await barriers().next()).toBeNull()
    await barriers(6).removePassed(clusterTime(31, 1))
    expect(await one.client.db(metadataDatabase).collection('barriers').countDocuments()).toBe(0)
  })
})
