import { expect, it, vi } from 'vitest'
import { RetryMonitor } from '../../src/mongo/retry.ts'
import { superviseDeadline, superviseSync } from '../../src/session/supervise-work.ts'
import type { SyncSession } from '../../src/session/sync-session.ts'

/** An instance that has failed in a commit repeats some operations itself, because no further failure restarts them. */

const away = new Error('no success for 30 minutes')

function sessionOf(peers: object): { session: SyncSession; monitor: RetryMonitor; retried: string[] } {
  const monitor = new RetryMonitor()
  const retried: string[] = []
  const context = { monitor, onRetry: (what: string) => retried.push(what) }
  const session = { context, peers, coordination: { leading: false }, commit: {}, verification: { observed: () => {} } }
  return { session: session as unknown as SyncSession, monitor, retried }
}

it('an abort by maxSeconds is repeated after any failure, and progress shows that', async () => {
  let attempts = 0
  const { session, monitor, retried } = sessionOf({
    abort: async () => {
      attempts += 1
      if (attempts < 3) throw away
      return true
    },
  })
  const what = 'aborting the commit by its maxSeconds'
  const failure = { error: 'ClusterUnreachable', errorDescription: 'away' } as const
  const stop = superviseDeadline(session, { abortsBefore: 0, commitUntil: 0, failure })
  await vi.waitFor(() => expect(monitor.current?.what).toBe(what))
  await vi.waitFor(() => expect(attempts).toBe(3), { timeout: 10_000 })
  stop()
  expect(retried).toEqual([what, what])
  expect(monitor.current).toBeUndefined()
})

it('an instance that has failed continues to follow the sync after any failure', async () => {
  let reads = 0
  const view = { convergences: 0, failures: 0, failure: null }
  const { session, monitor, retried } = sessionOf({
    view,
    wait: () => new Promise(() => {}),
    load: async () => {
      reads += 1
      if (reads === 1) throw away
      return { context: { request: null, aborts: 0 } }
    },
  })
  const reported: string[] = []
  const parts = {
    session,
    part: () => null,
    asked: () => ({ abortsBefore: 0, commitUntil: null, dryRun: false, failure: null }),
    ended: async () => {},
    storing: async () => {},
    report: ({ type }: { type: string }) => void reported.push(type),
  }
  const stop = superviseSync(parts, true)
  await vi.waitFor(() => expect(reported).toEqual(['sync.observed']), { timeout: 10_000 })
  expect(retried).toEqual(['following the sync'])
  expect(monitor.current).toBeUndefined()
  stop()
})
