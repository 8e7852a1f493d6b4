import { beforeEach, describe, expect, it } from 'vitest'
import type { Segment } from '../../src/domain/catalog.ts'
import { metadataDatabase } from '../../src/domain/namespace.ts'
import type { OwnerToken } from '../../src/domain/owner.ts'
import { SegmentStore } from '../../src/mongo/segment-store.ts'
import { StoredDocuments } from '../../src/mongo/stored-documents.ts'
import { testContext } from './clusters.ts'
import { oneSet } from './one-set.ts'

const one = oneSet()
let store: SegmentStore

beforeEach(async () => {
  await one.client.db(metadataDatabase).dropDatabase()
  store = new SegmentStore((version) => new StoredDocuments(one.cluster, testContext(), version))
  await store.createIndexes()
})

const uuid = (digit: number): string => Buffer.alloc(16, digit).toString('latin1')
const noneExpired = (): boolean => false
const expired =
  (...tokens: OwnerToken[]) =>
  (owner: OwnerToken): boolean =>
    tokens.includes(owner)

/** Returns segments of one collection. The order of their priorities is the reverse of the order of their ordinals. */
function segmentsOf(collection: string, count: number, firstPriority = 0): Segment[] {
  return Array.from({ length: count }, (_, ordinal) => ({
    collection,
    ordinal,
    priority: firstPriority + count - 1 - ordinal,
    from: ordinal === 0 ? null : Buffer.from([0x10, ordinal]),
    to: ordinal === count - 1 ? null : Buffer.from([0x10, ordinal + 1]),
    last: null,
    natural: null,
    done: false,
    documents: 0,
    bytes: 0,
    attempts: 0,
    wasOwn: false,
    claim: 0,
  }))
}

/** Stores a plan and makes its segments claimable. */
async function planAndOpen(segments: Segment[]): Promise<void> {
  await store.plan(segments)
  await store.open([...new Set(segments.map(({ collection }) => collection))])
}

const load = async (collection: string): Promise<Segment[]> => (await store.load([collection])).get(collection) ?? []
const priorities = (segments: Segment[]): number[] => segments.map(({ priority }) => priority)
const done = (segment: Segment, bytes: number): Segment => ({ ...segment, done: true, bytes, documents: 1 })

describe('segments', () => {
  it('can be claimed by an owner whose id looks like a field path, because earlier releases did not check ids', async () => {
    await planAndOpen(segmentsOf(uuid(1), 2))
    const claimed = await store.claim('$x.$y#1', 1, 2, noneExpired)
    expect(claimed).toHaveLength(2)
    await store.saveProgress(
      claimed.map((segment) => done(segment, 10)),
      '$x.$y#1',
    )
    expect(await store.bytesBy('$x.$y')).toEqual(new Map([[uuid(1), 20]]))
  })

  it('are not replaced, opened or removed by a coordinator of an earlier term', async () => {
    const ofTerm = (term: number) =>
      new SegmentStore((version) => new StoredDocuments(one.cluster, testContext(), version), { term })
    await ofTerm(3).plan(segmentsOf(uuid(1), 3))
    const before = await load(uuid(1))
    await expect(ofTerm(2).plan(segmentsOf(uuid(1), 2))).rejects.toMatchObject({ failure: 'LeaseLost' })
    await ofTerm(2).open([uuid(1)])
    await ofTerm(2).remove([uuid(1)])
    expect(await load(uuid(1))).toEqual(before)
    expect(await store.claim('a#1', 1, 9, noneExpired)).toEqual([])
    await ofTerm(3).open([uuid(1)])
    expect(await store.claim('a#1', 1, 9, noneExpired)).toHaveLength(3)
    await ofTerm(3).remove([uuid(1)])
    expect(await load(uuid(1))).toEqual([])
  })

  it('are loaded as they were planned', async () => {
    const planned = segmentsOf(uuid(1), 3)
    await planAndOpen([...planned, ...segmentsOf(uuid(2), 2)])
    expect(await load(uuid(1))).toEqual(planned)
    expect(await store.openCollections()).toEqual(new Set([uuid(1), uuid(2)]))
    await store.remove([uuid(2)])
    expect(await load(uuid(2))).toEqual([])
    expect(await store.openCollections()).toEqual(new Set([uuid(1)]))
  })

  it('that are read in natural order are loaded as they were stored, and have a version that every earlier build refuses', async () => {
    const splits = [Buffer.from([0x10, 1]), Buffer.from([0x10, 2])]
    const [planned] = segmentsOf(uuid(1), 1) as [Segment]
    planned.natural = { splits, server: null, tokens: [] }
    await planAndOpen([planned, ...segmentsOf(uuid(2), 1, 5)])
    const versions = async () => {
      const rows = await one.client.db(metadataDatabase).collection('segments').find().sort({ priority: 1 }).toArray()
      return rows.map((row) => row['schemaVersion'])
    }
    expect(await load(uuid(1))).toEqual([planned])
    expect(await versions()).toEqual([3, 2])
    // The previous release reads version 1. Later builds without natural order read version 2 as well.
    for (const reads of [[1], [1, 2]]) {
      const earlier = new StoredDocuments(one.cluster, testContext(), { writes: 1, reads })
      await expect(earlier.find('segments', { 'splits.0': { $exists: true } })).rejects.toThrow(/schema version 3/)
    }
    const [claimed, other] = (await store.claim('a#1', 1, 2, noneExpired)) as [Segment, Segment]
    expect(claimed).toMatchObject({ ...planned, claim: 1 })
    const natural = { splits, server: 'process term', tokens: [Buffer.from('new'), Buffer.from('old')] }
    await store.saveProgress([{ ...claimed, natural }, other], 'a#1')
    expect(await load(uuid(1))).toEqual([{ ...claimed, natural }])
    // A former owner's progress does not replace it.
    await store.saveProgress([{ ...claimed, natural: { ...natural, tokens: [] } }], 'b#1')
    await store.release('a#1', 9)
    expect(await store.claim('b#1', 2, 1, noneExpired)).toMatchObject([{ natural }])
    expect(await versions()).toEqual([3, 2])
  })

  it('cannot be claimed before their plan is open', async () => {
    await store.plan([...segmentsOf(uuid(1), 2), ...segmentsOf(uuid(2), 1, 2)])
    expect(await store.claim('a#1', 2, 64, noneExpired)).toEqual([])
    await store.open([uuid(1)])
    expect(priorities(await store.claim('a#1', 3, 64, noneExpired))).toEqual([0, 1])
    await store.open([uuid(1), uuid(2)])
    expect(priorities(await store.claim('a#1', 4, 64, noneExpired))).toEqual([2])
  })

  it('are claimed by the instance that opens their plan, and by no other, also if the plan is opened again', async () => {
    const planned = segmentsOf(uuid(1), 3)
    await store.plan([...planned, ...segmentsOf(uuid(2), 1, 3)])
    const claimed = await store.open([uuid(1)], planned, { owner: 'a#1', number: 5, limit: 64 })
    expect(claimed).toEqual(planned.map((segment) => ({ ...segment, claim: 5 })))
    expect(await load(uuid(1))).toEqual(claimed)
    expect(await store.claim('b#1', 2, 64, noneExpired)).toEqual([])
    // As if the reply to the first attempt was lost.
    expect(priorities(await store.open([uuid(1)], planned, { owner: 'a#1', number: 5, limit: 64 }))).toEqual([0, 1, 2])
    expect(await store.open([uuid(1)], planned, { owner: 'b#1', number: 6, limit: 64 })).toEqual([])
    await store.saveProgress([done(claimed[0] as Segment, 10)], 'a#1')
    expect(await store.bytesBy('a')).toEqual(new Map([[uuid(1), 10]]))
    expect(priorities(await store.claim('b#1', 3, 64, (owner) => owner === 'a#1'))).toHaveLength(2)
  })

  it('are all opened and at most `limit` of them claimed in one write, in the order of their priorities', async () => {
    const inOrder = (segments: Segment[]) => segments.toSorted((one, other) => one.priority - other.priority)
    const planned = inOrder([...segmentsOf(uuid(1), 20), ...segmentsOf(uuid(2), 10, 20)])
    await store.plan(planned)
    const opening = { owner: 'a#1', number: 5, limit: 24 }
    const claimed = await store.open([uuid(1), uuid(2)], planned, opening)
    expect(claimed).toEqual(planned.slice(0, 24).map((segment) => ({ ...segment, claim: 5 })))
    expect(inOrder([...(await load(uuid(1))), ...(await load(uuid(2)))])).toEqual([...claimed, ...planned.slice(24)])
    // As if the reply to the first attempt was lost.
    expect(await store.open([uuid(1), uuid(2)], planned, opening)).toEqual(claimed)
    expect(priorities(await store.claim('b#1', 2, 64, noneExpired))).toEqual([24, 25, 26, 27, 28, 29])
  })

  it('are claimed in the order of their priorities, across collections', async () => {
    await planAndOpen([...segmentsOf(uuid(1), 3, 4), ...segmentsOf(uuid(2), 4)])
    const claimed = await store.claim('a#1', 2, 64, noneExpired)
    expect(priorities(claimed)).toEqual([0, 1, 2, 3, 4, 5, 6])
    expect(await store.claim('a#1', 3, 64, noneExpired)).toEqual([])
  })

  it('are claimed once each when several owners claim at the same moment', async () => {
    await planAndOpen(segmentsOf(uuid(1), 60))
    const taken: [string, number][] = []
    await Promise.all(
      ['a#1', 'b#1', 'c#7', 'd#2'].map(async (owner, index) => {
        for (let claim = index; ; claim++) {
          const claimed = await store.claim(owner, claim, 2, noneExpired)
          if (claimed.length > 0)
            taken.push(...priorities(claimed).map((priority): [string, number] => [owner, priority]))
          // A claim may be empty because other owners have taken all its candidates. The loop ends only when all segments are claimed.
          else if (taken.length === 60) return
        }
      }),
    )
    expect(taken.map(([, priority]) => priority).sort((one, other) => one - other)).toEqual(
      Array.from({ length: 60 }, (_, priority) => priority),
    )
    const rows = await one.client.db(metadataDatabase).collection('segments').find().toArray()
    for (const [owner, priority] of taken)
      expect(rows.find((row) => row['priority'] === priority)?.['owner']).toBe(owner)
  })

  it('of an expired owner continue after its last _id; completed segments and those of other owners do not change', async () => {
    await planAndOpen(segmentsOf(uuid(1), 4))
    const [first, second] = (await store.claim('a#1', 2, 2, noneExpired)) as [Segment, Segment]
    const [third] = (await store.claim('c#1', 2, 1, noneExpired)) as [Segment]
    const last = Buffer.from([0x10, 9, 0, 0, 0])
    await store.saveProgress([done(first, 100), { ...second, last, bytes: 70, documents: 7, attempts: 1 }], 'a#1')
    expect(priorities(await store.claim('b#1', 2, 8, noneExpired))).toEqual([3])
    const taken = await store.claim('b#1', 3, 8, expired('a#1'))
    expect(taken).toMatchObject([
      { priority: second.priority, last, bytes: 70, documents: 7, attempts: 1, wasOwn: false },
    ])
    // The expired owner may still send its progress.
    await store.saveProgress([{ ...second, bytes: 5_000, done: true }], 'a#1')
    expect(await load(uuid(1))).toContainEqual(taken[0])
    expect(third.priority).toBe(2)
    expect(await store.claim('b#1', 4, 8, expired('a#1'))).toEqual([])
  })

  it('of a collection that was split again do not take the progress of an earlier range with the same ordinal', async () => {
    await planAndOpen(segmentsOf(uuid(1), 1))
    const [before] = (await store.claim('a#1', 2, 1, noneExpired)) as [Segment]
    await store.remove([uuid(1)])
    await planAndOpen(segmentsOf(uuid(1), 2))
    await store.claim('a#1', 3, 2, noneExpired)
    await store.saveProgress([done(before, 100)], 'a#1')
    for (const segment of await load(uuid(1))) expect(segment).toMatchObject({ done: false, bytes: 0 })
  })

  it('are marked with `wasOwn` when the instance that released them claims them again, and not for another instance', async () => {
    await planAndOpen(segmentsOf(uuid(1), 2))
    const [one, other] = (await store.claim('a#1', 2, 2, noneExpired)) as [Segment, Segment]
    await store.saveProgress([{ ...one, bytes: 10 }], 'a#1')
    await store.saveProgress([done(other, 20)], 'a#1')
    await store.release('a#1', 2)
    expect(await store.claim('a#1', 3, 2, noneExpired)).toMatchObject([
      { priority: one.priority, bytes: 10, wasOwn: true },
    ])
    await store.release('a#1', 3)
    expect(await store.claim('b#1', 2, 2, noneExpired)).toMatchObject([
      { priority: one.priority, bytes: 10, wasOwn: false },
    ])
    // A segment that the same instance copied in an earlier lease term is still its own.
    expect(await store.claim('a#4', 2, 2, expired('b#1'))).toMatchObject([{ wasOwn: false }])
    expect(await store.claim('a#6', 2, 2, expired('a#4'))).toMatchObject([{ wasOwn: true }])
  })

  it('that were claimed again are not affected by a delayed release', async () => {
    await planAndOpen(segmentsOf(uuid(1), 2))
    await store.claim('a#1', 2, 2, noneExpired)
    await store.release('a#1', 2)
    await store.claim('a#1', 3, 2, noneExpired)
    await store.release('a#1', 2)
    expect(await store.claim('b#1', 2, 2, noneExpired)).toEqual([])
  })

  it('count each byte once, for the instance that owns them now', async () => {
    await planAndOpen([...segmentsOf(uuid(1), 3), ...segmentsOf(uuid(2), 2, 3)])
    const [a0, a1] = (await store.claim('a#1', 2, 2, noneExpired)) as [Segment, Segment]
    const [b0, b1] = (await store.claim('b#1', 2, 2, noneExpired)) as [Segment, Segment]
    await store.saveProgress([done(a0, 100), { ...a1, bytes: 30 }], 'a#1')
    await store.saveProgress([done(b0, 7), { ...b1, bytes: 5 }], 'b#1')
    expect(await store.bytesByInstance()).toEqual(
      new Map([
        ['a', 130],
        ['b', 12],
      ]),
    )
    await store.claim('b#1', 4, 8, expired('a#1'))
    expect(await store.bytesByInstance()).toEqual(
      new Map([
        ['a', 100],
        ['b', 42],
      ]),
    )
    const byCollection = await store.bytesBy('b')
    expect([...byCollection.values()].reduce((sum, bytes) => sum + bytes, 0)).toBe(42)
    const copied = await store.bytesOf([uuid(1), uuid(2), uuid(9)])
    expect([...copied.values()].reduce((sum, bytes) => sum + bytes, 0)).toBe(142)
    expect(copied.has(uuid(9))).toBe(false)
    expect(await store.bytesBy('nobody')).toEqual(new Map())
  })

  it('that are planned again after a crash replace the segments of the first plan', async () => {
    await planAndOpen(segmentsOf(uuid(1), 5))
    await store.remove([uuid(1)])
    await planAndOpen(segmentsOf(uuid(1), 2))
    expect(await load(uuid(1))).toHaveLength(2)
  })
})
