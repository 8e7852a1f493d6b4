import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import {
  advanced,
  asksForNaturalOrder,
  beforeNaturalRead,
  idRangesOf,
  isRandomOrder,
  tokensMax,
} from '../../src/domain/natural-order.ts'
import { Random } from '../support/random.ts'

const ascending = (count: number): bigint[] => Array.from({ length: count }, (_, at) => BigInt(at) * 7n + 1n)

describe('isRandomOrder', () => {
  it.each([100, 250, 500])('recognizes record ids in random order, among %i documents', (count) => {
    fc.assert(
      fc.property(fc.string({ minLength: 1 }), (seed) => isRandomOrder(new Random(seed).shuffle(ascending(count)))),
    )
  })

  it.each<[string, (at: number) => number]>([
    ['ascends, like an ObjectId', (at) => at],
    ['descends', (at) => -at],
    ['begins with one of ten tenants that write in turn', (at) => (at % 50) * 10 + Math.floor(at / 50)],
    ['begins with one of ten tenants that were loaded one after the other', (at) => ((at + 250) % 500) * 2],
    ['ascends, but neighbours are exchanged', (at) => (at % 2 === 0 ? at + 1 : at - 1)],
  ])('an order that %s is not random', (_, recordIdAt) => {
    expect(isRandomOrder(Array.from({ length: 500 }, (_, at) => BigInt(recordIdAt(at))))).toBe(false)
  })

  it('never reports a random order for a small sample', () => {
    expect(isRandomOrder(new Random('small').shuffle(ascending(99)))).toBe(false)
    expect(isRandomOrder([])).toBe(false)
  })

  it('depends only on the order, not on the distances between record ids', () => {
    fc.assert(
      fc.property(fc.uniqueArray(fc.bigInt(1n, 2n ** 62n), { minLength: 100, maxLength: 200 }), (recordIds) => {
        const sorted = [...recordIds].sort((one, other) => (one < other ? -1 : 1))
        const ranks = recordIds.map((recordId) => BigInt(sorted.indexOf(recordId)))
        return isRandomOrder(recordIds) === isRandomOrder(ranks)
      }),
    )
  })
})

it('a collection is read in natural order if its name, its database or every database is named', () => {
  const asks = (...selections: Parameters<typeof asksForNaturalOrder>[0] & object) =>
    ['a.x', 'a.y', 'b.x'].filter((name) => asksForNaturalOrder(selections, name[0] as string, name.slice(2)))
  expect(asks()).toEqual([])
  expect(asks({ database: 'a' })).toEqual(['a.x', 'a.y'])
  expect(asks({ database: 'a', collections: ['y'] }, { database: 'b', collections: ['y'] })).toEqual(['a.y'])
  expect(asks({ database: '.' })).toEqual(['a.x', 'a.y', 'b.x'])
  expect(asksForNaturalOrder(null, 'a', 'x')).toBe(false)
})

describe('the progress of a read in natural order', () => {
  it('keeps the newest tokens, newest first, and ignores a batch without a token', () => {
    let read = beforeNaturalRead([])
    for (let at = 0; at < tokensMax + 5; at++) read = advanced(advanced(read, Buffer.from([at])), null)
    expect(read.tokens.map(([at]) => at)).toEqual(Array.from({ length: tokensMax }, (_, at) => tokensMax + 4 - at))
  })

  const splits = fc.array(fc.uint8Array({ minLength: 2, maxLength: 20 }).map((bytes) => Buffer.from(bytes)))
  it('divides the collection into adjacent ranges without outer bounds, for any splits', () => {
    fc.assert(
      fc.property(splits, (all) => {
        const ranges = idRangesOf({ from: null, to: null, natural: beforeNaturalRead(all) })
        expect(ranges.map(({ from }) => from)).toEqual([null, ...all])
        expect(ranges.map(({ to }) => to)).toEqual([...all, null])
      }),
    )
  })

  it.each([
    [2_000, 1_000],
    [2_000, 60_000],
    [3, 9_000_000],
  ])('of %i splits of %i bytes stores at most 1 MiB', (count, bytes) => {
    const { splits: kept } = beforeNaturalRead(Array.from({ length: count }, () => Buffer.alloc(bytes)))
    expect(kept.length * bytes).toBeLessThanOrEqual(1024 * 1024)
    if (bytes < 1024 * 1024) expect(kept.length).toBeGreaterThan(0)
  })

  it('for a segment that is read in _id order, the only range is the segment itself', () => {
    const [from, to] = [Buffer.from([1]), Buffer.from([2])]
    expect(idRangesOf({ from, to, natural: null })).toEqual([{ from, to }])
  })
})
