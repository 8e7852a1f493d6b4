import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import type { Sample } from '../../src/cli/samples.ts'
import { widthOf } from '../../src/cli/table.ts'
import { bar, duration, headline, ratesOf, sparkline, view } from '../../src/cli/view.ts'
import { type InstanceRow, totalsOf } from '../../src/domain/instances.ts'
import type { Progress } from '../../src/domain/progress.ts'
import { idleProgress } from '../../src/session/report-progress.ts'

const row = (mongosyncID: string, progress: Partial<Progress>): InstanceRow => ({
  mongosyncID,
  coordinator: mongosyncID === 'a',
  status: 'alive',
  lastSeenSeconds: 0,
  partitions: [0, 1],
  progress: { ...idleProgress, mongosyncID, ...progress },
})
const sample = (at: number, rows: InstanceRow[]): Sample => ({
  at,
  answered: rows.slice(0, 1).map(({ progress }) => progress),
  unanswered: [],
  rows,
  totals: totalsOf(rows),
})
const copying = (at: number, copied: number, lagTimeSeconds = 2): Sample =>
  sample(at, [
    row('a', {
      state: 'RUNNING',
      info: 'collection copy',
      lagTimeSeconds,
      totalEventsApplied: copied / 1_000,
      collectionCopy: { estimatedCopiedBytes: copied, estimatedTotalBytes: 10_000_000 },
    }),
  ])

describe('rates', () => {
  test('cover the last half minute', () => {
    const history = [copying(0, 0), copying(40_000, 2_000_000), copying(60_000, 4_000_000)]
    expect(ratesOf(history)).toEqual({ bytes: 100_000, events: 100, copyEnds: 60 })
  })

  test('are unknown after only one sample, and across a restart, because the counters restart from zero', () => {
    const nothing = { bytes: null, events: null, copyEnds: null }
    expect(ratesOf([copying(0, 5)])).toEqual(nothing)
    expect(ratesOf([copying(0, 5_000_000), copying(1_000, 1_000_000)])).toEqual(nothing)
  })
})

describe('bar', () => {
  test('property: has the requested width, and is full only at 100 %', () => {
    fc.assert(
      fc.property(fc.double({ min: -1, max: 2, noNaN: true }), fc.integer({ min: 1, max: 60 }), (share, cells) => {
        const drawn = bar(share, cells)
        expect(widthOf(drawn)).toBe(cells)
        expect(drawn.includes('░')).toBe(share < 1)
      }),
    )
  })
})

test('sparkline: shows the last values, the highest as the highest bar', () => {
  expect(sparkline([0, 0, 0])).toBe('▁▁▁')
  expect(sparkline([0, 7, 14])).toBe('▁▅█')
  expect(sparkline([1, 2, 3, 4], 2)).toBe('▆█')
  expect(sparkline([])).toBe('')
})

test.each([
  [0, '0 s'],
  [0.2, '1 s'],
  [59, '59 s'],
  [60, '1 min'],
  [3_725, '1 h 2 min'],
  [86_400 * 2 + 3_600 * 5, '2 d 5 h'],
  [86_400, '1 d'],
])('duration: %d s is %s', (seconds, text) => {
  expect(duration(seconds)).toBe(text)
})

describe('view', () => {
  const half = [copying(0, 0, 4), copying(10_000, 5_000_000, 2)]

  test('for one instance, shows the state, the copy with its rate and time left, the lag with its history, and the events', () => {
    const lines = view(half, 120)
    expect(lines[0]).toBe('00:00:10  RUNNING (collection copy), copied 50.00 %, lag 2 s')
    expect(lines[1]).toBe('copy    ████████████░░░░░░░░░░░░  50.00 %  5.0 MB of 10.0 MB  500.0 kB/s  10 s left')
    expect(lines[2]).toBe('lag     █▅  2 s')
    expect(lines[3]).toBe('events  5,000 applied  500/s')
    expect(lines).toHaveLength(4)
  })

  test('shows next to the copy how many collections converge', () => {
    const collectionCopy = { estimatedCopiedBytes: 5_000_000, estimatedTotalBytes: 10_000_000 }
    const one = (convergingCollections: number): InstanceRow =>
      row('a', { state: 'RUNNING', info: 'collection copy', collectionCopy, convergingCollections })
    expect(view([sample(0, [one(1)])], 120)[1]).toMatch(/5\.0 MB of 10\.0 MB {2}1 collection converging$/)
    expect(view([sample(0, [one(1_200)])], 120)[1]).toMatch(/ {2}1,200 collections converging$/)
  })

  test('for several instances, shows a table, and their messages in full', () => {
    const failure = { error: 'DuplicateKey' as const, errorDescription: `why, ${'x'.repeat(200)}` }
    const lines = view([sample(0, [row('a', { state: 'RUNNING' }), row('b', { state: 'FAILED', failure })])], 80)
    const table = lines.findIndex((line) => line.startsWith('instance'))
    expect(lines.slice(table + 1, table + 4).map((line) => line.split(' ')[0])).toEqual(['a', 'b', 'total'])
    expect(lines.at(-1)).toBe(`b: DuplicateKey: ${failure.errorDescription}`)
  })

  test('names the instances that do not answer, and shows the progress of the verifier', () => {
    const side = (hashedDocumentCount: number) => ({
      estimatedDocumentCount: 4_000,
      hashedDocumentCount,
      lagTimeSeconds: 0,
      phase: 'initial hashing',
      scannedCollectionCount: 1,
      totalCollectionCount: 2,
    })
    const verification = { source: side(1_000), destination: side(900) }
    const one = sample(0, [row('a', { state: 'RUNNING', verification })])
    const lines = view([{ ...one, unanswered: [{ url: 'http://b', why: 'no instance answers at http://b' }] }], 120)
    expect(lines).toContain('verify  ██████░░░░░░░░░░░░░░░░░░  initial hashing  1,000 of 4,000 documents')
    expect(lines.at(-1)).toBe('no instance answers at http://b')
    expect(lines[0]).toMatch(/1 not answering/)
  })

  test('property: no drawn line is wider than the terminal', () => {
    fc.assert(
      fc.property(fc.integer({ min: 20, max: 200 }), (width) => {
        for (const line of view(half, width)) expect(widthOf(line)).toBeLessThanOrEqual(width)
      }),
    )
  })

  test('shows only the state before a sync has started', () => {
    const idle: Sample = { at: 0, answered: [idleProgress], unanswered: [], rows: [], totals: totalsOf([]) }
    expect(headline(idle)).toBe('IDLE')
    expect(view([idle], 80)).toEqual(['00:00:00  IDLE'])
  })
})
