import fc from 'fast-check'
import { expect, it } from 'vitest'
import { clusterTime } from '../../src/domain/cluster-time.ts'
import { earlierPosition, type StreamPosition } from '../../src/mongo/change-stream.ts'

/**
 * Generates positions with few different values, so that equal times and equal tokens are common. Like the server's, a token
 * begins with its time.
 */
const positions: fc.Arbitrary<StreamPosition> = fc
  .record({ second: fc.nat({ max: 3 }), within: fc.option(fc.nat({ max: 3 })) })
  .map(({ second, within }) => {
    const time = clusterTime(second, 1)
    if (within === null) return { kind: 'time', time }
    return { kind: 'token', token: { _data: `82${second}${within}` }, time }
  })

/**
 * Returns a sort key for positions. A position that is a time comes before every token of that time, because a stream that
 * starts at the time delivers all events of that time.
 */
const sortKey = (position: StreamPosition): string =>
  `${String(position.time).padStart(20, '0')} ${position.kind === 'token' ? position.token._data : ''}`

it('the earlier of two positions is the one whose stream delivers more events', () => {
  fc.assert(
    fc.property(positions, positions, (one, other) => {
      const earlier = earlierPosition(one, other)
      expect([one, other]).toContain(earlier)
      expect(sortKey(earlier)).toBe([sortKey(one), sortKey(other)].sort()[0])
      expect(sortKey(earlierPosition(other, one))).toBe(sortKey(earlier))
    }),
  )
})

it('the earliest of several positions does not depend on their order, and for two equal positions the result is that position', () => {
  const several = fc.array(positions, { minLength: 1, maxLength: 6 })
  fc.assert(
    fc.property(several, (all) => {
      const first = sortKey(all.reduce(earlierPosition))
      expect(sortKey([...all].reverse().reduce(earlierPosition))).toBe(first)
      expect(first).toBe(all.map(sortKey).sort()[0])
    }),
  )
  fc.assert(
    fc.property(positions, (one) => {
      expect(earlierPosition(one, one)).toBe(one)
    }),
  )
})
