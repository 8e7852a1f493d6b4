import { afterEach, beforeEach, expect, it, vi } from 'vitest'
import type { Progress } from '../../src/domain/progress.ts'
import { WorkMeter } from '../../src/domain/work-meter.ts'
import { MongosyncLog } from '../../src/session/mongosync-log.ts'
import { idleProgress } from '../../src/session/report-progress.ts'

/** docs/logs.md: lines in mongosync's format are written once a minute and after changes, and never flood the log. */

const logged: [message: string, fields: Record<string, unknown>][] = []
beforeEach(() => {
  vi.useFakeTimers()
})
afterEach(() => {
  vi.useRealTimers()
  logged.length = 0
})

const running: Progress = {
  ...idleProgress,
  state: 'RUNNING',
  info: 'change event application',
  canWrite: false,
  totalEventsApplied: 0,
  lagTimeSeconds: 1,
  collectionCopy: { estimatedTotalBytes: 10, estimatedCopiedBytes: 10 },
  source: { pingLatencyMs: 3 },
  destination: { pingLatencyMs: -1 },
}
const times = (wanted: string): number => logged.filter(([message]) => message === wanted).length

function reporting(shown: () => Progress, meter = new WorkMeter()): Disposable {
  const journal = (message: string, fields: object) => logged.push([message, fields as Record<string, unknown>])
  const answerOf = ({ state }: Progress): string => JSON.stringify({ progress: { state } })
  const segments = async () => ({ written: 2, total: 5 })
  return new MongosyncLog({ journal, meter, progress: shown, answerOf, segments }).reporting()
}

it('reports at once, then once a minute, and when the state changes', () => {
  let shown = running
  using _report = reporting(() => shown)
  vi.advanceTimersByTime(1_000)
  expect(times('Replication progress')).toBe(1)
  vi.advanceTimersByTime(59_000)
  expect(times('Replication progress')).toBe(1)
  vi.advanceTimersByTime(1_000)
  expect(times('Replication progress')).toBe(2)
  shown = { ...running, state: 'COMMITTING' }
  vi.advanceTimersByTime(1_000)
  expect(times('Replication progress')).toBe(3)
  expect(times('sent response')).toBe(3)
})

it('reports at most every ten seconds while only canCommit changes, even if it changes every second', () => {
  let polls = 0
  using _report = reporting(() => ({ ...running, canCommit: polls++ % 2 === 0 }))
  vi.advanceTimersByTime(600_000)
  expect(times('Replication progress')).toBeLessThanOrEqual(60)
})

it('the first report includes the rates of the work done before it', () => {
  const meter = new WorkMeter()
  let shown = idleProgress
  using _report = reporting(() => shown, meter)
  vi.advanceTimersByTime(5_000)
  meter.read(Array.from({ length: 150 }, () => Buffer.alloc(1)))
  shown = { ...running, totalEventsApplied: 150 }
  vi.advanceTimersByTime(1_000)
  expect(logged).toContainEqual(['Average Source CRUD events rate', { srcCRUDEventsPerSec: 150 }])
  expect(logged[0]).toEqual([
    'Replication progress',
    expect.objectContaining({ totalEventsApplied: 150, eventApplicationRatePerSecond: 150 }),
  ])
})

it('reports nothing before there is a sync', () => {
  using _report = reporting(() => idleProgress)
  vi.advanceTimersByTime(600_000)
  expect(logged).toEqual([])
})

it('reports rates and durations since the last line, and segments during the copy', async () => {
  const meter = new WorkMeter()
  let shown: Progress = { ...running, info: 'collection copy' }
  using _report = reporting(() => shown, meter)
  await vi.advanceTimersByTimeAsync(1_000)
  expect(logged).toContainEqual(['Completed writing N / M partitions to destination cluster', { written: 2, total: 5 }])
  shown = { ...shown, totalEventsApplied: 600 }
  meter.read(Array.from({ length: 120 }, () => Buffer.alloc(1)))
  meter.durations.applyRead.add(10)
  meter.durations.applyRead.add(20)
  await vi.advanceTimersByTimeAsync(60_000)
  const last = (wanted: string) => logged.findLast(([message]) => message === wanted)?.[1]
  expect(last('Replication progress')).toMatchObject({ totalEventsApplied: 600, eventApplicationRatePerSecond: 10 })
  expect(last('Average Source CRUD events rate')).toEqual({ srcCRUDEventsPerSec: 2 })
  expect(last('Operation duration stats')).toEqual({
    CEASourceRead: { averageDurationMs: 15, maximumDurationMs: 20, numOperations: 2 },
    sourcePingLatencyMs: 3,
    destinationPingLatencyMs: 'unreachable',
  })
})
