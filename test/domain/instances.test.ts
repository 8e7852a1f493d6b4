import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { type InstanceRow, percentOf, totalsOf } from '../../src/domain/instances.ts'
import { idleProgress } from '../../src/session/report-progress.ts'

/** Generates a figure of up to about a petabyte, so that the sum of several figures is still an exact number. */
const count = fc.maxSafeNat().map((value) => Math.floor(value / 8))

const row: fc.Arbitrary<Pick<InstanceRow, 'status' | 'progress'>> = fc.record({
  status: fc.constantFrom('alive', 'lost'),
  progress: fc
    .record({
      lagTimeSeconds: fc.option(count, { nil: null }),
      totalEventsApplied: fc.option(count, { nil: null }),
      collectionCopy: fc.option(fc.record({ estimatedTotalBytes: count, estimatedCopiedBytes: count }), { nil: null }),
    })
    .map((figures) => ({ ...idleProgress, ...figures })),
})
const rows = fc.array(row, { maxLength: 6 })

const alive = (progress: Partial<InstanceRow['progress']>): Pick<InstanceRow, 'status' | 'progress'> => ({
  status: 'alive',
  progress: { ...idleProgress, ...progress },
})
const copy = (estimatedCopiedBytes: number, estimatedTotalBytes: number) => ({
  collectionCopy: { estimatedCopiedBytes, estimatedTotalBytes },
})

describe('totalsOf', () => {
  test('is zero without instances, and for instances that have not begun', () => {
    const nothing = {
      estimatedCopiedBytes: 0,
      estimatedTotalBytes: 0,
      percent: 0,
      lagTimeSeconds: null,
      totalEventsApplied: 0,
    }
    expect(totalsOf([])).toEqual(nothing)
    expect(totalsOf([alive({}), alive({})])).toEqual(nothing)
  })

  test('adds copied bytes and applied events; the total is the largest total, and the lag is the largest lag', () => {
    const one = alive({ ...copy(300, 900), lagTimeSeconds: 4, totalEventsApplied: 10 })
    const two = alive({ ...copy(301, 1_000), lagTimeSeconds: 7, totalEventsApplied: 5 })
    const paused = alive({ ...copy(0, 1_000), lagTimeSeconds: null, totalEventsApplied: 1 })
    expect(totalsOf([one, two, paused])).toEqual({
      estimatedCopiedBytes: 601,
      estimatedTotalBytes: 1_000,
      percent: 60.1,
      lagTimeSeconds: 7,
      totalEventsApplied: 16,
    })
  })

  test('is 100 percent only when no instance is copying, even if two instances counted the same segment', () => {
    const copying = alive({ ...copy(400, 1_000), state: 'RUNNING', info: 'collection copy' })
    const done = alive({ ...copy(700, 1_000), info: 'change event application' })
    expect(totalsOf([copying, done]).percent).toBe(99.99)
    expect(totalsOf([{ ...copying, status: 'lost' }, done]).percent).toBe(100)
    const paused = alive({ ...copying.progress, state: 'PAUSED' })
    expect(totalsOf([paused, done]).percent).toBe(100)
  })

  test('ignores the lag of a lost instance, but counts the events that it applied', () => {
    const lost = { ...alive({ lagTimeSeconds: 900, totalEventsApplied: 3 }), status: 'lost' as const }
    expect(totalsOf([lost, alive({ lagTimeSeconds: 1, totalEventsApplied: 2 })])).toMatchObject({
      lagTimeSeconds: 1,
      totalEventsApplied: 5,
    })
    expect(totalsOf([lost]).lagTimeSeconds).toBeNull()
  })

  test('property: each figure is the sum or the maximum over the instances, in any order', () => {
    fc.assert(
      fc.property(rows, (rows) => {
        const totals = totalsOf(rows)
        expect(totalsOf([...rows].reverse())).toMatchObject({
          estimatedTotalBytes: totals.estimatedTotalBytes,
          lagTimeSeconds: totals.lagTimeSeconds,
        })
        let [copied, total, totalOfLost, events] = [0, 0, 0, 0]
        const lags: number[] = []
        for (const { status, progress } of rows) {
          copied += progress.collectionCopy?.estimatedCopiedBytes ?? 0
          const reported = progress.collectionCopy?.estimatedTotalBytes ?? 0
          if (status === 'alive') total = Math.max(total, reported)
          else totalOfLost = Math.max(totalOfLost, reported)
          events += progress.totalEventsApplied ?? 0
          if (status === 'alive' && progress.lagTimeSeconds !== null) lags.push(progress.lagTimeSeconds)
        }
        // The total of a lost instance counts only if no live instance reports one.
        total ||= totalOfLost
        expect(totals).toEqual({
          estimatedCopiedBytes: copied,
          estimatedTotalBytes: total,
          percent: percentOf(copied, total),
          lagTimeSeconds: lags.length === 0 ? null : lags.sort((a, b) => b - a)[0],
          totalEventsApplied: events,
        })
      }),
    )
  })

  test('property: the percentage never falls when more is copied', () => {
    fc.assert(
      fc.property(rows, row, (rows, more) => {
        const same = { ...more, progress: { ...more.progress, ...copy(1_000, 0) } }
        expect(totalsOf([...rows, same]).percent).toBeGreaterThanOrEqual(totalsOf(rows).percent)
      }),
    )
  })
})

describe('percentOf', () => {
  test('property: is between 0 and 100 with two decimals, and 100 only if everything is copied', () => {
    fc.assert(
      fc.property(count, count, (copied, total) => {
        const percent = percentOf(copied, total)
        expect(percent).toBeGreaterThanOrEqual(0)
        expect(percent).toBeLessThanOrEqual(100)
        expect(Number(percent.toFixed(2))).toBe(percent)
        expect(percent === 100).toBe(total > 0 && copied >= total)
      }),
    )
  })

  test('property: is 100 if everything is copied, and less if a single byte is missing', () => {
    fc.assert(
      fc.property(count, (total) => {
        fc.pre(total > 0)
        expect(percentOf(total, total)).toBe(100)
        expect(percentOf(total - 1, total)).toBeLessThan(100)
      }),
    )
  })
})
