import { afterEach, beforeEach, expect, it, vi } from 'vitest'
import { createActor, initialTransition, transition } from 'xstate'
import { instanceMachine } from '../../machines/instance.ts'
import type { InstanceContext } from '../../machines/instance-context.ts'
import { parseStartBody } from '../../src/api/start-body.ts'
import type { Progress } from '../../src/domain/progress.ts'
import { idleProgress } from '../../src/session/report-progress.ts'
import { StateLog } from '../../src/session/state-log.ts'

/** docs/logs.md: the log has one progress line a minute while there is a sync. */

beforeEach(() => {
  vi.useFakeTimers()
  return () => vi.useRealTimers()
})

const logged: [message: string, fields: unknown][] = []
afterEach(() => {
  logged.length = 0
})
const stateLog = () =>
  new StateLog(
    (message, fields) => logged.push([message, fields]),
    () => undefined,
  )

it('the progress of a sync is logged once a minute, with the current figures, until the report ends', () => {
  let shown: Progress = { ...idleProgress, state: 'RUNNING', info: 'collection copy', lagTimeSeconds: 7 }
  shown = { ...shown, collectionCopy: { estimatedTotalBytes: 900, estimatedCopiedBytes: 300 } }
  const report = stateLog().reporting(() => shown)
  vi.advanceTimersByTime(59_999)
  expect(logged).toEqual([])
  vi.advanceTimersByTime(1)
  const figures = { state: 'RUNNING', info: 'collection copy', lagTimeSeconds: 7, estimatedCopiedBytes: 300 }
  expect(logged).toEqual([['progress', expect.objectContaining({ ...figures, warnings: 0 })]])

  shown = { ...shown, totalEventsApplied: 11, retrying: { what: 'writing metadata', since: 'now' }, warnings: ['one'] }
  vi.advanceTimersByTime(60_000)
  expect(logged).toHaveLength(2)
  const changed = { totalEventsApplied: 11, retrying: 'writing metadata', warnings: 1 }
  expect(logged[1]).toEqual(['progress', expect.objectContaining(changed)])

  report[Symbol.dispose]()
  vi.advanceTimersByTime(600_000)
  expect(logged).toHaveLength(2)
})

it('no progress is logged before there is a sync', () => {
  let shown = idleProgress
  const report = stateLog().reporting(() => shown)
  vi.advanceTimersByTime(600_000)
  expect(logged).toEqual([])
  shown = { ...idleProgress, state: 'RUNNING' }
  vi.advanceTimersByTime(60_000)
  expect(logged).toEqual([['progress', expect.objectContaining({ state: 'RUNNING' })]])
  report[Symbol.dispose]()
})

const idle = createActor(instanceMachine, { input: null }).getSnapshot()
const configuration = parseStartBody({ source: 'cluster0', destination: 'cluster1' })
const running = (more: Partial<InstanceContext>) =>
  createActor(instanceMachine, { input: { ...idle.context, configuration, ...more } }).getSnapshot()
const phases = () => logged.map(([message]) => message).filter((message) => /^Starting|^Commit/.test(message))

it('each phase is logged when it begins', () => {
  const log = stateLog()
  for (const snapshot of [idle, running({}), running({ copyCompleted: true })]) log.logged(snapshot)
  expect(phases()).toEqual(['Starting change event application phase'])
  for (const commitRequested of [true, true, false, true]) log.logged(running({ copyCompleted: true, commitRequested }))
  expect(phases().slice(1)).toEqual(['Commit handler called', 'Commit handler called'])
})

it('a phase that began before a restart is not logged again, and a phase that begins later is logged', () => {
  const committing = running({ copyCompleted: true, commitRequested: true })
  const log = stateLog()
  for (const snapshot of [idle, committing, committing]) log.logged(snapshot)
  expect(phases()).toEqual([])
  log.logged(running({ copyCompleted: true }))
  log.logged(committing)
  expect(phases()).toEqual(['Commit handler called'])
})

it('each failure is logged once, also if it replaces another failure', () => {
  const failures = () => logged.flatMap(([message, fields]) => (message === 'failed' ? [fields] : []))
  const failure = { error: 'MissingPrivileges', errorDescription: 'no' } as const
  const [failed] = initialTransition(instanceMachine, { ...idle.context, configuration, failure })
  const log = stateLog()
  for (const snapshot of [failed, failed]) log.logged(snapshot)
  expect(failures()).toMatchObject([{ error: 'MissingPrivileges' }])
  const takenOver = { error: 'LeaseLost', errorDescription: 'taken over' } as const
  const [replaced] = transition(instanceMachine, failed, { type: 'worker.failed', failure: takenOver })
  for (const snapshot of [replaced, replaced]) log.logged(snapshot)
  expect(failures()).toMatchObject([{ error: 'MissingPrivileges' }, { error: 'LeaseLost', during: 'failed.resting' }])
})
