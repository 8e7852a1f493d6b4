import fc from 'fast-check'
import { BSON, Timestamp } from 'mongodb'
import { describe, expect, it } from 'vitest'
import {
  clusterTime,
  clusterTimeAt,
  clusterTimeOfToken,
  laterOf,
  ordinalOf,
  secondsOf,
} from '../../src/domain/cluster-time.ts'

const half = fc.oneof(
  fc.integer({ min: 0, max: 0xffff_ffff }),
  fc.constantFrom(0, 1, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff),
)

/** Returns a token in the server's form: the type byte of a timestamp, the seconds, the ordinal, and the rest. */
const tokenOf = (seconds: number, ordinal: number, rest = '2B022C0100296E5A1004') =>
  `82${[seconds, ordinal].map((value) => value.toString(16).padStart(8, '0').toUpperCase()).join('')}${rest}`

describe('cluster time', () => {
  it('property: returns its seconds and ordinal over the whole unsigned range', () => {
    fc.assert(
      fc.property(half, half, (seconds, ordinal) => {
        const time = clusterTime(seconds, ordinal)
        expect([secondsOf(time), ordinalOf(time)]).toEqual([seconds, ordinal])
      }),
    )
  })

  it('property: is ordered by seconds, then by ordinal', () => {
    fc.assert(
      fc.property(half, half, half, half, (s1, o1, s2, o2) => {
        const [one, other] = [clusterTime(s1, o1), clusterTime(s2, o2)]
        const later = s1 > s2 || (s1 === s2 && o1 > o2)
        expect(one > other).toBe(later)
        expect(laterOf(one, other)).toBe(later ? one : other)
        expect(laterOf(one, other)).toBe(laterOf(other, one))
      }),
    )
  })

  it('property: is read from the bytes of a BSON timestamp', () => {
    fc.assert(
      fc.property(half, half, (t, i) => {
        const document = Buffer.from(BSON.serialize({ a: new Timestamp({ t, i }) }))
        expect(clusterTimeAt(document, 7)).toBe(clusterTime(t, i))
      }),
    )
  })
})

describe('the cluster time of a resume token', () => {
  it('property: is the first element of the token', () => {
    fc.assert(
      fc.property(half, half, (seconds, ordinal) => {
        expect(clusterTimeOfToken(tokenOf(seconds, ordinal))).toBe(clusterTime(seconds, ordinal))
        expect(clusterTimeOfToken(tokenOf(seconds, ordinal, '').toLowerCase())).toBe(clusterTime(seconds, ordinal))
      }),
    )
  })

  it('property: has the same order as the text of the token', () => {
    fc.assert(
      fc.property(half, half, half, half, (s1, o1, s2, o2) => {
        const [one, other] = [tokenOf(s1, o1), tokenOf(s2, o2)]
        expect(clusterTimeOfToken(one) < clusterTimeOfToken(other)).toBe(one < other)
      }),
    )
  })

  it.each(['', '82', '8263', `81${'0'.repeat(16)}`, `82${'0'.repeat(15)}G`, `x82${'0'.repeat(16)}`])(
    'cannot be read from %j',
    (token) => {
      expect(() => clusterTimeOfToken(token)).toThrow(RangeError)
    },
  )
})
