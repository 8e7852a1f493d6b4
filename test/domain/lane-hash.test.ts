import fc from 'fast-check'
import { Decimal128 } from 'mongodb'
import { describe, expect, it } from 'vitest'
import { hasSeveralEncodings, idValueKey } from '../../src/domain/id-value.ts'
import { decimalAsNumber, laneHash } from '../../src/domain/lane-hash.ts'
import type { TypedValue } from '../../src/domain/raw-bson.ts'
import { anyValue, documentOf } from './bson-arbitraries.ts'
import { anyPair, equalPair, innerPair, type Pair, rareSpellings, strangers } from './spelled-values.ts'

const keyOf = (value: TypedValue) => idValueKey(value, value[0] as number, 1, value.length)
const hashOf = (value: TypedValue) => laneHash(value, value[0] as number, 1, value.length)

describe('two encodings of one value', () => {
  it('property: have the same key and the same lane', () => {
    fc.assert(
      fc.property(equalPair, ({ one, other, text }) => {
        expect(keyOf(other), text).toBe(keyOf(one))
        expect(hashOf(other), text).toBe(hashOf(one))
      }),
      { numRuns: 1_500 },
    )
  })

  it('property: differ only for types that hasSeveralEncodings names', () => {
    fc.assert(
      fc.property(equalPair, ({ one, other, text }) => {
        if (Buffer.compare(one, other) !== 0)
          expect(
            [one, other].map((value) => hasSeveralEncodings(value[0] as number)),
            text,
          ).toEqual([true, true])
      }),
      { numRuns: 1_000 },
    )
  })
})

describe('two values', () => {
  it.each<[string, fc.Arbitrary<Pair>]>([
    ['that differ slightly', anyPair],
    ['of different structure', strangers],
    ['inside other values', innerPair],
    ...Object.entries(rareSpellings).map(([name, pair]) => [`that are ${name}`, pair] as [string, fc.Arbitrary<Pair>]),
  ])('property: %s have the same key exactly if they are equal', (_, pair) => {
    fc.assert(
      fc.property(pair, ({ one, other, equal, text }) => {
        expect(keyOf(one) === keyOf(other), text).toBe(equal)
        if (equal) expect(hashOf(one), text).toBe(hashOf(other))
      }),
      { numRuns: 1_000 },
    )
  })

  it('are spread over the lanes', () => {
    const counts = [0, 0, 0, 0]
    for (let id = 0; id < 4_000; id++) {
      const value = Buffer.from([0x10, id & 0xff, id >> 8, 0, 0])
      counts[hashOf(value) % 4] = (counts[hashOf(value) % 4] ?? 0) + 1
    }
    expect(Math.min(...counts)).toBeGreaterThan(500)
  })
})

describe('a value in the middle of other bytes', () => {
  it('property: has the same key and lane as the value alone', () => {
    fc.assert(
      fc.property(anyValue, fc.uint8Array({ maxLength: 9 }), (value, before) => {
        const document = documentOf([{ name: '_id', value }])
        const whole = Buffer.concat([before, document])
        const start = before.length + 9
        const end = start + value.length - 1
        const type = value[0] as number
        expect(idValueKey(whole, type, start, end)).toBe(keyOf(value))
        expect(laneHash(whole, type, start, end)).toBe(hashOf(value))
      }),
      { numRuns: 500 },
    )
  })
})

describe('the double nearest to a decimal', () => {
  it.each([
    ['0.1', 0.1],
    ['-123.4500', -123.45],
    ['9007199254740993', 9007199254740992],
    ['1E+6144', Number.POSITIVE_INFINITY],
    ['-1E-6176', -0],
    ['NaN', Number.NaN],
    ['-Infinity', Number.NEGATIVE_INFINITY],
    ['9999999999999999999999999999999999', 1e34],
  ])('of %s is %d', (decimal, number) => {
    expect(decimalAsNumber(Buffer.from(Decimal128.fromString(decimal).bytes), 0)).toBe(number)
  })
})
