import fc from 'fast-check'
import { expect, it } from 'vitest'
import { clusterTime } from '../../src/domain/cluster-time.ts'
import { earlierPosition, type StreamPosition } from '../../src/mongo/change-stream.ts'

/** A small world, so that equal times and equal tokens are common. A token begins with its time, as the server's do. */
const positions: fc.Arbitrary<StreamPosition> = fc
  .record({ second: fc.nat({ max: 3 }), within: fc.option(fc.nat({ max: 3 })) })
  .map(({ second, within }) => {
    const time = clusterTime(second, 1)
    if (within === null) return { kind: 'time', time }
    return { kind: 'token', token: { _data: `82${second}${within}` }, time }
  })

/** A time comes before every token of its own: a stream that starts there begins with all that happened at it. */
const rank = (position: StreamPosition): string =>
  `${String(position.time).padStart(20, '0')} ${position.kind === 'token' ? position.token._data : ''}`

it('the earlier of two positions is the one whose stream begins with more', () => {
  fc.assert(
    fc.property(positions, positions, (one, other) => {
      const earlier = earlierPosition(one, other)
      expect([one, other]).toContain(earlier)
      expect(rank(earlier)).toBe([rank(one), rank(other)].sort()[0])
      expect(rank(earlierPosition(other, one))).toBe(rank(earlier))
    }),
  )
})

it('the earliest of several is the same in whatever order they come, and itself beside itself', () => {
  const several = fc.array(positions, { minLength: 1, maxLength: 6 })
  fc.assert(
    fc.property(several, (all) => {
      const first = rank(all.reduce(earlierPosition))
      expect(rank([...all].reverse().reduce(earlierPosition))).toBe(first)
      expect(first).toBe(all.map(rank).sort()[0])
    }),
  )
  fc.assert(
    fc.property(positions, (one) => {
      expect(earlierPosition(one, one)).toBe(one)
    }),
  )
})
