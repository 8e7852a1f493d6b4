import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import {
  assignShards,
  chooseChunks,
  type KeyValues,
  type PlannedChunk,
  splitAtValues,
} from '../../src/domain/choose-chunks.ts'
import { typedDouble } from '../../src/domain/raw-bson.ts'

const keysOf = (numbers: readonly number[]): KeyValues[] => numbers.map((number) => [typedDouble(number)])
const numberIn = (values: KeyValues | null): number | null => values?.[0]?.readDoubleLE(1) ?? null
const starts = (chunks: readonly PlannedChunk[]) => chunks.map(({ from }) => numberIn(from))
const to = (length: number, each = (at: number) => at) => Array.from({ length }, (_, at) => each(at))

describe('the chunks of a collection', () => {
  it('are those of the source when there are enough of them', () => {
    const chunks = chooseChunks(keysOf([10, 20, 30]), keysOf(to(40)), 4, 100)
    expect(starts(chunks)).toEqual([null, 10, 20, 30])
    for (const { weight } of chunks) expect(weight).toBeCloseTo(10.25)
  })

  it('are those of the source when no document is known', () => {
    const chunks = chooseChunks(keysOf([10, 20, 30]), [], 4, 100)
    expect(starts(chunks)).toEqual([null, 10, 20, 30])
    expect(chunks.map(({ weight }) => weight)).toEqual([0.25, 0.25, 0.25, 0.25])
  })

  it('are adjacent chunks of the source, merged to similar sizes, when there are too many', () => {
    const bounds = to(999, (at) => at + 1)
    const chunks = chooseChunks(keysOf(bounds), keysOf(to(1000)), 10, 10)
    expect(starts(chunks)).toEqual([null, 100, 200, 300, 400, 500, 600, 700, 800, 900])
    // Nine tenths of the documents are in the last tenth of the chunks.
    const skewed = [...to(100, (at) => at * 9), ...to(900, (at) => 900 + at / 9)]
    const [, first, ...others] = starts(chooseChunks(keysOf(bounds), keysOf(skewed), 10, 10))
    expect(first).toBe(891)
    expect(others).toHaveLength(8)
  })

  it('are split at samples where one chunk of the source is much larger than the others', () => {
    const chunks = chooseChunks(keysOf([500, 510, 520]), keysOf(to(1000)), 10, 100)
    expect(starts(chunks)).toEqual([null, 100, 200, 300, 400, 500, 510, 520, 600, 700, 800, 900])
  })

  it('begin at samples when no boundary is known, and no two of them begin at the same value', () => {
    expect(starts(chooseChunks([], keysOf(to(100)), 4, 4))).toEqual([null, 25, 50, 75])
    const equal = chooseChunks([], keysOf([...to(50, () => 7), ...to(50, () => 8)]), 10, 10)
    expect(starts(equal)).toEqual([null, 8])
    expect(starts(chooseChunks([], [], 10, 10))).toEqual([null])
  })

  it('are in ascending order, are at most as many as allowed, and contain every sample', () => {
    const ascending = fc
      .array(fc.integer({ min: 0, max: 500 }), { maxLength: 300 })
      .map((numbers) => numbers.sort((one, other) => one - other))
    const bounds = fc.uniqueArray(fc.integer({ min: 0, max: 500 }), { maxLength: 100 })
    fc.assert(
      fc.property(
        bounds,
        ascending,
        fc.integer({ min: 1, max: 50 }),
        fc.integer({ min: 0, max: 50 }),
        (some, samples, wanted, more) => {
          const known = some.sort((one, other) => one - other)
          const chunks = chooseChunks(keysOf(known), keysOf(samples), wanted, wanted + more)
          const [first, ...others] = starts(chunks) as [null, ...number[]]
          expect(first).toBeNull()
          expect(others).toEqual([...new Set(others)].sort((one, other) => one - other))
          expect(chunks.length).toBeLessThanOrEqual(wanted + more)
          for (const start of others) expect([...known, ...samples]).toContain(start)
          for (const { weight } of chunks) expect(weight).toBeGreaterThanOrEqual(0)
          expect(chunks.reduce((sum, { weight }) => sum + weight, 0)).toBeCloseTo(samples.length + 1)
        },
      ),
    )
  })
})

it('chunks are split at further values, except where a chunk already begins', () => {
  const chunks = chooseChunks(keysOf([10, 20]), keysOf(to(30)), 3, 10)
  expect(starts(splitAtValues(chunks, keysOf([5, 10, 12, 15, 30])))).toEqual([null, 5, 10, 12, 15, 20, 30])
  const sum = (some: readonly PlannedChunk[]) => some.reduce((all, { weight }) => all + weight, 0)
  expect(sum(splitAtValues(chunks, keysOf([5, 12])))).toBeCloseTo(sum(chunks))
  expect(splitAtValues(chunks, [])).toEqual(chunks)
})

describe('the shards of chunks', () => {
  const ofWeights = (...weights: number[]): PlannedChunk[] => weights.map((weight) => ({ from: null, weight }))
  const all = () => ['a', 'b', 'c']

  it('get adjacent chunks and similar shares', () => {
    expect(assignShards(ofWeights(...to(9, () => 1)), all)).toEqual([...'aaabbbccc'])
    expect(assignShards(ofWeights(6, 1, 1, 1, 1, 1, 1, 1, 1), all)).toEqual([...'abbbbcccc'])
    expect(assignShards(ofWeights(1, 1, 1, 6), all)).toEqual([...'aaab'])
    expect(assignShards(ofWeights(1, 1), all)).toEqual(['a', 'b'])
    expect(assignShards([], all)).toEqual([])
  })

  it('may be restricted for some of the chunks', () => {
    const allowed = ({ weight }: PlannedChunk) => (weight === 2 ? ['b', 'c'] : ['a', 'b', 'c'])
    const assigned = assignShards(ofWeights(2, 2, 2, 2, 1, 1, 1, 1), allowed)
    expect(assigned).toEqual([...'bbcc', ...'aaaa'])
  })

  it('get at most one chunk more than their share', () => {
    const weights = fc.array(fc.integer({ min: 1, max: 20 }), { minLength: 3, maxLength: 200 })
    fc.assert(
      fc.property(weights, (some) => {
        const assigned = assignShards(ofWeights(...some), all)
        const largest = Math.max(...some)
        const share = some.reduce((sum, weight) => sum + weight, 0) / 3
        for (const shard of all()) {
          const load = some.reduce((sum, weight, at) => (assigned[at] === shard ? sum + weight : sum), 0)
          expect(load).toBeLessThanOrEqual(share + largest)
        }
      }),
    )
  })
})
