import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { BackOff } from '../../src/domain/back-off.ts'

const step = fc.record({
  afterMS: fc.integer({ min: 0, max: 20_000 }),
  overload: fc.constantFrom(null, 'flow control', 'the cache is full'),
})
const writes = fc.integer({ min: 1, max: 16 })

/** Returns a back-off, and a function that lets time pass and then records the state of the destination. */
function backOffAt(begin: number) {
  let now = begin
  const backOff = new BackOff(() => now)
  const record = (afterMS: number, overload: string | null): void => {
    now += afterMS
    backOff.record(overload)
  }
  return { backOff, record }
}

describe('backing off from an overloaded destination', () => {
  it('does not slow down before the first overload', () => {
    const { backOff, record } = backOffAt(0)
    record(1_000, null)
    expect(backOff.active).toBeNull()
    expect([1, 4, 16].map((most) => backOff.allowed(most))).toEqual([1, 4, 16])
    expect([1, 4, 16].map((most) => backOff.pauseFactor(most))).toEqual([0, 0, 0])
  })

  it('halves the concurrent writes at once and every few seconds, then doubles the pauses, and reports the reason and the start of the overload', () => {
    const { backOff, record } = backOffAt(5_000)
    const levels: [number, number][] = []
    for (const after of [0, 2_000, 2_000, 3_000, 3_000]) {
      record(after, 'flow control')
      levels.push([backOff.allowed(4), backOff.pauseFactor(4)])
    }
    expect(levels).toEqual([
      [2, 0],
      [2, 0],
      [1, 0],
      [1, 1],
      [1, 3],
    ])
    expect(backOff.active).toEqual({ reason: 'flow control', since: 5_000 })
  })

  it('takes one step back to full speed after every ten seconds without overload', () => {
    const { backOff, record } = backOffAt(0)
    record(0, 'flow control')
    record(4_000, 'flow control')
    expect(backOff.allowed(8)).toBe(2)
    record(9_999, null)
    expect(backOff.allowed(8)).toBe(2)
    record(1, null)
    expect(backOff.allowed(8)).toBe(4)
    record(9_999, null)
    expect(backOff.allowed(8)).toBe(4)
    record(1, null)
    expect(backOff.allowed(8)).toBe(8)
    expect(backOff.active).toBeNull()
  })

  it('property: always allows at least one write, and never more than at full speed', () => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 200 }), writes, (steps, most) => {
        const { backOff, record } = backOffAt(0)
        for (const { afterMS, overload } of steps) {
          const before = backOff.allowed(most)
          record(afterMS, overload)
          expect(backOff.allowed(most)).toBeGreaterThanOrEqual(1)
          expect(backOff.allowed(most)).toBeLessThanOrEqual(most)
          expect(backOff.pauseFactor(most)).toBeLessThanOrEqual(127)
          if (backOff.allowed(most) < before) expect(overload).not.toBeNull()
          expect(backOff.active === null).toBe(backOff.allowed(16) === 16)
        }
      }),
    )
  })

  it('is at full speed again at most two minutes after the last overload', () => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 50 }), (steps) => {
        const { backOff, record } = backOffAt(0)
        for (const { afterMS, overload } of steps) record(afterMS, overload)
        for (let second = 0; second < 120; second += 1) record(1_000, null)
        expect(backOff.active).toBeNull()
      }),
    )
  })
})
