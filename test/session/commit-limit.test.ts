import { expect, it } from 'vitest'
import { syncMachine } from '../../machines/sync.ts'
import { freshSync, type SyncContext } from '../../machines/sync-context.ts'
import type { SyncSnapshot } from '../../machines/sync-view.ts'
import { CommitLimit, type OwnLimit } from '../../src/session/commit-limit.ts'

/** A coordinator aborts a commit that has exceeded the `maxSeconds` of the stored request. */

const requestedAt = 1_000_000
const none: OwnLimit = { abortsBefore: 0, commitUntil: null }

function syncIn(value: unknown, maxSeconds: number | null, more: Partial<SyncContext> = {}): SyncSnapshot {
  const request = { dryRun: false, maxSeconds, at: requestedAt }
  return syncMachine.resolveState({ value: value as never, context: { ...freshSync, request, ...more } })
}

const gathering = { committing: 'gathering' }

/** True if the limit is exceeded `sinceRequestMS` after the request, when the commit was observed for `observedMS`. */
function exceeded(sync: SyncSnapshot, observedMS: number, sinceRequestMS: number, own = none): boolean {
  let now = 5
  const limit = new CommitLimit(() => now)
  limit.isExceeded(sync, own, requestedAt + sinceRequestMS)
  now += observedMS
  return limit.isExceeded(sync, own, requestedAt + sinceRequestMS)
}

it.each([
  ['that it has not received', gathering],
  ['that has failed', 'failed'],
  ['that is being started again', 'restoring'],
])('a coordinator aborts a commit %s only after its time limit has passed', (_what, value) => {
  expect(exceeded(syncIn(value, 5), 5_000, 4_999)).toBe(false)
  expect(exceeded(syncIn(value, 5), 5_000, 5_000)).toBe(true)
})

it('the operator has ten seconds, or the time limit if shorter, after the coordinator observes the request', () => {
  const [day, hour] = [86_400_000, 3_600]
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
  expect(exceeded(syncIn(gathering, 5, { aborts: 3 }), 60_000, 60_000, own)).toBe(false)
  expect(exceeded(syncIn(gathering, 5, { aborts: 4 }), 60_000, 60_000, own)).toBe(true)
})

it.each([
  ['without a time limit', gathering, null],
  ['that is decided', { decided: 'opening' }, 5],
] as const)('a commit %s is not aborted', (_what, value, maxSeconds) => {
  expect(exceeded(syncIn(value, maxSeconds), 60_000, 60_000)).toBe(false)
})
