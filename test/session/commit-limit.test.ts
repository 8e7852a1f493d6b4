import { expect, it, onTestFinished, vi } from 'vitest'
import { syncMachine } from '../../machines/sync.ts'
import { freshSync, type SyncContext } from '../../machines/sync-context.ts'
import type { SyncSnapshot } from '../../machines/sync-view.ts'
import { clusterTime } from '../../src/domain/cluster-time.ts'
import { CommitLimit, type OwnLimit } from '../../src/session/commit-limit.ts'

/** A coordinator aborts a commit that has exceeded the `maxSeconds` of the stored request. */

const requestedAt = 1_000
const none: OwnLimit = { abortsBefore: 0, commitUntil: null }

function syncIn(value: unknown, maxSeconds: number | null, more: Partial<SyncContext> = {}): SyncSnapshot {
  const request = { dryRun: false, maxSeconds, at: 7, atClusterTime: clusterTime(requestedAt, 9).toString() }
  return syncMachine.resolveState({ value: value as never, context: { ...freshSync, request, ...more } })
}

const gathering = { committing: 'gathering' }

/** Observes the commit for `observedMS`. By the cluster time, the request is then `sinceRequest` seconds old. */
function exceeded(sync: SyncSnapshot, observedMS: number, sinceRequest: number, own = none): boolean {
  let now = 5
  const limit = new CommitLimit(
    () => clusterTime(requestedAt + sinceRequest, 0),
    () => now,
  )
  limit.isExceeded(sync, own)
  now += observedMS
  return limit.isExceeded(sync, own)
}

it.each([
  ['in a commit that it has not received', gathering],
  ['in a commit that has failed', 'failed'],
  ['in a commit that begins again', 'restoring'],
])('%s, a coordinator waits until the time limit has passed', (_what, value) => {
  expect(exceeded(syncIn(value, 25), 10_000, 24)).toBe(false)
  expect(exceeded(syncIn(value, 25), 10_000, 26)).toBe(true)
})

it('the clocks of the instances do not count', () => {
  vi.spyOn(Date, 'now').mockReturnValue(86_400_000)
  onTestFinished(() => void vi.restoreAllMocks())
  expect(exceeded(syncIn(gathering, 300), 10_000, 20)).toBe(false)
  vi.spyOn(Date, 'now').mockReturnValue(-86_400_000)
  expect(exceeded(syncIn(gathering, 300), 10_000, 310)).toBe(true)
})

it('the time limit has passed for a coordinator that has observed the commit for that long, whatever the cluster time is', () => {
  // If the destination's clock was ahead and is set back, the cluster time stands still until the clock has caught up.
  expect([exceeded(syncIn(gathering, 300), 299_999, 0), exceeded(syncIn(gathering, 300), 300_000, 0)]).toEqual([
    false,
    true,
  ])
})

it('a request that an earlier release stored has no cluster time, so its time limit begins when it is observed', () => {
  const request = { dryRun: false, maxSeconds: 300, at: 7 }
  const sync = syncIn(gathering, 300, { request })
  expect([exceeded(sync, 299_999, 86_400), exceeded(sync, 300_000, 0)]).toEqual([false, true])
})

it('a coordinator that observes the request only now gives the operator ten seconds, or the time limit, to send the commit', () => {
  const [day, hour] = [86_400, 3_600]
  expect([exceeded(syncIn(gathering, hour), 9_999, day), exceeded(syncIn(gathering, hour), 10_000, day)]).toEqual([
    false,
    true,
  ])
  expect([exceeded(syncIn(gathering, 2), 1_999, day), exceeded(syncIn(gathering, 2), 2_000, day)]).toEqual([
    false,
    true,
  ])
})

it('a coordinator that has received the commit keeps to its own time limit', () => {
  const own = { abortsBefore: 3, commitUntil: 7 }
  expect(exceeded(syncIn(gathering, 5, { aborts: 3 }), 60_000, 60, own)).toBe(false)
  expect(exceeded(syncIn(gathering, 5, { aborts: 4 }), 60_000, 60, own)).toBe(true)
})

it.each([
  ['without a time limit', gathering, null],
  ['that is decided', { decided: 'opening' }, 5],
] as const)('a commit %s is not aborted', (_what, value, maxSeconds) => {
  expect(exceeded(syncIn(value, maxSeconds), 60_000, 60)).toBe(false)
})
