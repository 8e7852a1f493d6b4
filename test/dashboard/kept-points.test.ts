import { expect, test } from 'vitest'
import type { HistoryPoint, Sample } from '../../src/api/sample-schema.ts'
import { History } from '../../src/dashboard/history.js'
import { KeptPoints } from '../../src/dashboard/kept-points.js'

/** The history of the dashboard has every point of the last ten minutes, and one point per minute for a day. */

const minuteMS = 60_000
const hourMS = 60 * minuteMS
/** Returns the point at a time. Its lag is 9 in one second of each minute, and 1 in all other seconds. */
const pointAt = (at: number): HistoryPoint => [at, at, 1e9, at, at % minuteMS === 7_000 ? 9 : 1]

function secondsOf(hours: number): KeptPoints {
  const kept = new KeptPoints()
  for (let at = hourMS; at <= (hours + 1) * hourMS; at += 1_000) kept.add(pointAt(at))
  return kept
}

test('the samples of a day need only about as much memory as two thousand points', () => {
  const { points } = secondsOf(30)
  const newest = points.at(-1)?.[0] ?? 0
  expect(points.length).toBeLessThan(600 + 24 * 60 + 5)
  expect(points[0]?.[0]).toBeGreaterThanOrEqual(newest - 24 * hourMS)
  expect(points[0]?.[0]).toBeLessThan(newest - 23.9 * hourMS)
  expect(points.map(([at]) => at)).toEqual(points.map(([at]) => at).sort((one, other) => one - other))
})

test('keeps every point of the last ten minutes, and the last counts and highest lag of each older minute', () => {
  const { points } = secondsOf(1)
  const newest = points.at(-1)?.[0] ?? 0
  const fine = points.filter(([at]) => at >= newest - 10 * minuteMS)
  expect(fine.length).toBe(601)
  const coarse = points.slice(0, -601)
  expect(coarse.length).toBe(50)
  for (const [at, copied, , , lag] of coarse) {
    expect([at % minuteMS, copied, lag]).toEqual([59_000, at, 9])
  }
  const unknown = new KeptPoints({ fineMS: 0, coarseMS: 100 })
  for (const [at, lag] of [
    [1, null],
    [2, 4],
    [3, null],
    [300, 1],
  ] as const)
    unknown.add([at, 0, 0, 0, lag])
  expect(unknown.points).toEqual([
    [3, 0, 0, 0, 4],
    [300, 0, 0, 0, 1],
  ])
})

test('after the clock is set back, later points are dropped, and new points are kept and pruned as before', () => {
  const kept = new KeptPoints()
  const start = 5 * hourMS
  for (let at = start; at <= start + hourMS; at += 1_000) kept.add(pointAt(at))
  // The clock is set back by less than the ten minutes of fine points, then by more.
  for (const back of [5 * minuteMS, 30 * minuteMS]) {
    const from = (kept.points.at(-1)?.[0] ?? 0) - back
    for (let at = from; at < from + 20 * minuteMS; at += 1_000) {
      kept.add(pointAt(at))
      if (at === from) expect(kept.points.at(-1)).toEqual(pointAt(at))
    }
    const times = kept.points.map(([at]) => at)
    expect(times).toEqual([...new Set(times)].sort((one, other) => one - other))
    expect(times.at(-1)).toBe(from + 20 * minuteMS - 1_000)
    expect(times.filter((at) => at >= from + 10 * minuteMS - 1_000)).toHaveLength(601)
  }
  expect(kept.points.length).toBeLessThan(601 + 60)
})

test('the page continues its charts after the clock is set back', () => {
  const history = new History()
  history.merge([10_000, 11_000, 12_000].map(pointAt))
  const totals = {
    estimatedCopiedBytes: 1,
    estimatedTotalBytes: 1,
    totalEventsApplied: 1,
    lagTimeSeconds: 2,
    percent: 0,
  }
  const sample = { self: 'a', problem: null, progress: null, instances: [{}], totals }
  history.add({ ...sample, at: 11_000 } as unknown as Sample)
  expect(history.lag().map(({ at }) => at)).toEqual([10_000, 11_000])
})

test('the page shows the points of an instance without gaps and with rates, even at one point a minute', () => {
  const history = new History()
  const { points } = secondsOf(2)
  history.merge(points)
  expect(history.lag()).toHaveLength(points.length)
  const rates = history.bytesPerSecond()
  expect(rates).toHaveLength(points.length)
  // The copied bytes of `pointAt` grow by one byte per millisecond.
  for (const { value } of rates.slice(1)) expect(value).toBeCloseTo(1_000)
  // The page keeps the points that a restarted instance has lost.
  const newest = points.at(-1)?.[0] ?? 0
  history.merge([pointAt(newest + 5_000), pointAt(newest + 6_000)])
  expect(history.lag().length).toBeGreaterThan(points.length - 10)
})

test('samples that tandem took every ten seconds while no page was open are connected, and have rates', () => {
  const history = new History()
  const points = Array.from({ length: 20 }, (_, at): HistoryPoint => [at * 10_007, at * 10_007, 1e9, 0, 1])
  history.merge(points)
  expect(history.lag().map(({ value }) => value)).toEqual(points.map(() => 1))
  for (const { value } of history.bytesPerSecond().slice(1)) expect(value).toBeCloseTo(1_000)
})
