import { syncBuiltinESMExports } from 'node:module'
import timers from 'node:timers/promises'
import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { asRefusal } from '../../src/checks/check.ts'
import { addCircumstances } from '../../src/domain/circumstances.ts'
import { StoppedError } from '../../src/domain/errors.ts'
import type { Journal } from '../../src/domain/journal.ts'
import { TransientReplyError } from '../../src/mongo/errors.ts'
import { type Progressed, type RetryContext, RetryMonitor, retry } from '../../src/mongo/retry.ts'

beforeEach(() => {
  vi.useFakeTimers()
  // Vitest fakes only the timers of the global object.
  const sleep = (ms = 0) => new Promise((resolve) => setTimeout(resolve, ms))
  vi.spyOn(timers, 'setTimeout').mockImplementation(sleep as typeof timers.setTimeout)
  syncBuiltinESMExports()
})
afterEach(() => {
  vi.useRealTimers()
  vi.restoreAllMocks()
  syncBuiltinESMExports()
})

const logged: [string, unknown][] = []
beforeEach(() => void logged.splice(0))
const context: RetryContext = {
  monitor: new RetryMonitor(),
  signal: new AbortController().signal,
  journal: ((message, fields) => logged.push([message, fields])) as Journal,
}

function transientError(): Error {
  const error = new TransientReplyError('not now')
  addCircumstances(error, { cluster: 'cluster1', command: 'insert', namespace: 'app.things' })
  return error
}

test('a retry is shown until a part of the work succeeds, and the duration of the retries is logged', async () => {
  const shown: (string | undefined)[] = []
  let attempts = 0
  const run = retry('copying', context, async (progressed) => {
    attempts += 1
    if (attempts < 3) throw transientError()
    shown.push(context.monitor.current?.what)
    progressed(true)
    shown.push(context.monitor.current?.what)
  })
  await vi.runAllTimersAsync()
  await run
  expect(shown).toEqual(['copying', undefined])
  expect(logged).toEqual([['retry ended', { what: 'copying', attempts: 2, seconds: 0.15 }]])
})

/** Returns the minutes after which `retry` gives up if each attempt runs `attempt` and then fails, or null if it does not give up. */
async function minutesOf(attempt: (progressed: Progressed) => void): Promise<number | null> {
  const began = Date.now()
  const controller = new AbortController()
  const run = retry('copying', { ...context, signal: controller.signal }, async (progressed) => {
    attempt(progressed)
    throw transientError()
  }).catch((error) => error)
  let failed: unknown = null
  void run.then((error) => {
    failed = error
  })
  while (failed === null && Date.now() - began < 60 * 60_000) await vi.advanceTimersByTimeAsync(10_000)
  controller.abort()
  await vi.advanceTimersByTimeAsync(10_000)
  expect(context.monitor.current).toBeUndefined()
  if (failed instanceof StoppedError || failed === null) return null
  expect(failed).toMatchObject({
    failure: 'ClusterUnreachable',
    message:
      'copying: no success for 30 minutes; cluster1 does not answer (not now). Fix the cluster or the network, ' +
      'then send resume. Everything that was copied and applied so far is kept.',
  })
  return Math.round((Date.now() - began) / 60_000)
}

test('retry gives up after 30 minutes, also if each attempt starts from the beginning, but not if attempts make progress', async () => {
  expect(await minutesOf(() => {})).toBe(30)
  expect(await minutesOf((progressed) => progressed(false))).toBe(30)
  expect(await minutesOf((progressed) => progressed(true))).toBe(null)
})

test.each([-1, 1])(
  'retry gives up after the same 30 minutes when the wall clock steps by %i hours between two attempts',
  async (hours) => {
    let failures = 0
    const onRetry = (): void => {
      failures += 1
      // The monotonic clock does not step.
      if (failures === 3) vi.setSystemTime(Date.now() + hours * 3_600_000)
    }
    const began = performance.now()
    const controller = new AbortController()
    let failed: unknown = null
    const run = retry('copying', { ...context, onRetry, signal: controller.signal }, () =>
      Promise.reject(transientError()),
    )
    void run.catch((error) => {
      failed = error
    })
    while (failed === null && performance.now() - began < 60 * 60_000) await vi.advanceTimersByTimeAsync(10_000)
    const minutes = Math.round((performance.now() - began) / 60_000)
    controller.abort()
    await vi.advanceTimersByTimeAsync(10_000)
    expect(minutes).toBe(30)
    expect(failed).toMatchObject({ failure: 'ClusterUnreachable' })
  },
)

test('a command fails with the name of the cluster that does not answer and the last error of the driver', () => {
  expect(asRefusal(transientError(), 'commit')).toMatchObject({
    refusal: 'ClusterUnreachable',
    message: 'cluster1 does not answer (not now); check that cluster and the network, then send commit again',
  })
})
