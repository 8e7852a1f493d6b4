import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { asRefusal } from '../../src/checks/check.ts'
import { addCircumstances } from '../../src/domain/circumstances.ts'
import { StoppedError } from '../../src/domain/errors.ts'
import type { Journal } from '../../src/domain/journal.ts'
import { TransientReplyError } from '../../src/mongo/errors.ts'
import { type Progressed, type RetryContext, RetryMonitor, retry } from '../../src/mongo/retry.ts'

/** Vitest fakes the timers of the global object alone. */
vi.mock('node:timers/promises', () => ({
  setTimeout: (ms: number) => new Promise((resolve) => setTimeout(resolve, ms)),
}))
beforeEach(() => void vi.useFakeTimers())
afterEach(() => void vi.useRealTimers())

const said: [string, unknown][] = []
beforeEach(() => void said.splice(0))
const context: RetryContext = {
  monitor: new RetryMonitor(),
  signal: new AbortController().signal,
  journal: ((message, fields) => said.push([message, fields])) as Journal,
}

function passing(): Error {
  const error = new TransientReplyError('not now')
  addCircumstances(error, { cluster: 'cluster1', command: 'insert', namespace: 'app.things' })
  return error
}

test('what is retried is shown until anything succeeds, and how long it took is logged', async () => {
  const shown: (string | undefined)[] = []
  let attempts = 0
  const run = retry('copying', context, async (progressed) => {
    attempts += 1
    if (attempts < 3) throw passing()
    shown.push(context.monitor.current?.what)
    progressed(true)
    shown.push(context.monitor.current?.what)
  })
  await vi.runAllTimersAsync()
  await run
  expect(shown).toEqual(['copying', undefined])
  expect(said).toEqual([['retry ended', { what: 'copying', attempts: 2, seconds: 0.15 }]])
})

/** Minutes until it is given up, when each attempt comes so far and fails then. */
async function minutesOf(attempt: (progressed: Progressed) => void): Promise<number | null> {
  const began = Date.now()
  const controller = new AbortController()
  const run = retry('copying', { ...context, signal: controller.signal }, async (progressed) => {
    attempt(progressed)
    throw passing()
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

test('it is given up after 30 minutes, also where each attempt begins again, but not where it goes on', async () => {
  expect(await minutesOf(() => {})).toBe(30)
  expect(await minutesOf((progressed) => progressed(false))).toBe(30)
  expect(await minutesOf((progressed) => progressed(true))).toBe(null)
})

test('a command that a cluster does not answer says which, and the driver’s last error', () => {
  expect(asRefusal(passing(), 'commit')).toMatchObject({
    refusal: 'ClusterUnreachable',
    message: 'cluster1 does not answer (not now); check that cluster and the network, then send commit again',
  })
})
