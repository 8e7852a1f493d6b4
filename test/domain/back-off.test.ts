import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { BackOff } from '../../src/domain/back-off.ts'

const step = fc.record({
  afterMS: fc.integer({ min: 0, max: 20_000 }),
  suffering: fc.constantFrom(null, 'flow control', 'the cache is full'),
})
const writes = fc.integer({ min: 1, max: 16 })

/** A back-off and its clock. */
function backOffAt(begin: number) {
  let now = begin
  const backOff = new BackOff(() => now)
  const note = (afterMS: number, suffering: string | null): void => {
    now += afterMS
    backOff.record(suffering)
  }
  return { backOff, note, now: () => now }
}

describe('backing off from a destination that suffers', () => {
  it('is at full speed until it does', () => {
    const { backOff, note } = backOffAt(0)
    note(1_000, null)
    expect(backOff.active).toBeNull()
    expect([1, 4, 16].map((most) => backOff.allowed(most))).toEqual([1, 4, 16])
    expect([1, 4, 16].map((most) => backOff.rest(most))).toEqual([0, 0, 0])
  })

  it('halves at once, again every few seconds, then rests, and names why and since when', () => {
    const { backOff, note } = backOffAt(5_000)
    const seen: [number, number][] = []
    for (const after of [0, 2_000, 2_000, 3_000, 3_000]) {
      note(after, 'flow control')
      seen.push([backOff.allowed(4), backOff.rest(4)])
    }
    expect(seen).toEqual([
      [2, 0],
      [2, 0],
      [1, 0],
      [1, 1],
      [1, 3],
    ])
    expect(backOff.active).toEqual({ reason: 'flow control', since: 5_000 })
  })

  it('comes back step by step once it has been calm for ten seconds each', () => {
    const { backOff, note } = backOffAt(0)
    note(0, 'flow control')
    note(4_000, 'flow control')
    expect(backOff.allowed(8)).toBe(2)
    note(9_999, null)
    expect(backOff.allowed(8)).toBe(2)
    note(1, null)
    expect(backOff.allowed(8)).toBe(4)
    note(9_999, null)
    expect(backOff.allowed(8)).toBe(4)
    note(1, null)
    expect(backOff.allowed(8)).toBe(8)
    expect(backOff.active).toBeNull()
  })

  it('whatever happens, something is always written and never more than asked for', () => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 200 }), writes, (steps, most) => {
        const { backOff, note } = backOffAt(0)
        for (const { afterMS, suffering } of steps) {
          const before = backOff.allowed(most)
          note(afterMS, suffering)
          expect(backOff.allowed(most)).toBeGreaterThanOrEqual(1)
          expect(backOff.allowed(most)).toBeLessThanOrEqual(most)
          expect(backOff.rest(most)).toBeLessThanOrEqual(127)
          if (backOff.allowed(most) < before) expect(suffering).not.toBeNull()
          expect(backOff.active === null).toBe(backOff.allowed(16) === 16)
        }
      }),
    )
  })

  it('is at full speed again two minutes after the last sign at the latest', () => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 50 }), (steps) => {
        const { backOff, note } = backOffAt(0)
        for (const { afterMS, suffering } of steps) note(afterMS, suffering)
        for (let second = 0; second < 120; second += 1) note(1_000, null)
        expect(backOff.active).toBeNull()
      }),
    )
  })
})
