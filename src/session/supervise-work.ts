import { setTimeout as sleep } from 'node:timers/promises'
import type { DeadlineInput } from '../../machines/instance-context.ts'
import type { WorkerReport } from '../../machines/protocol.ts'
import { type Failure, FatalError, StoppedError, toFailure } from '../domain/errors.ts'
import { SyncFollower, type SyncFollowerParts } from './sync-follower.ts'
import type { SyncSession } from './sync-session.ts'

/** The workers that the machine invokes as long as a state lasts: they run, follow orders and report. */

const watchAgainMS = 500

type Report = (report: WorkerReport) => void

/** Aborts a commit that can still be aborted, for all instances, when its time is over. */
export function superviseDeadline(work: SyncSession, input: DeadlineInput, sendBack: Report): () => void {
  const { abortsBefore, commitUntil, failure } = input
  if (commitUntil === null) return () => {}
  const expire = (): void => {
    const why = failure
      ? `it had failed with ${failure.error}: ${failure.errorDescription}`
      : `it waited for ${work.commit.waitingFor}`
    const reason = `the commit was aborted by its maxSeconds: ${why}`
    work.team.abort(abortsBefore, { reason }).catch((error) => reportFailure(work, error, sendBack))
  }
  const timer = setTimeout(expire, Math.max(0, commitUntil - Date.now()))
  return () => clearTimeout(timer)
}

/** Follows the sync as a whole, and does the coordinator's work in it. */
export function superviseSync(parts: Omit<SyncFollowerParts, 'onFault'>, watching: boolean): () => void {
  const { work } = parts
  const left = new AbortController()
  const report: Report = (what) => {
    if (!left.signal.aborted) parts.report(what)
  }
  const onFault = (error: unknown): void => void reportFailure(work, error, report)
  const follower = new SyncFollower({ ...parts, report, onFault }, left.signal)
  const run = watching ? again(() => follower.watch(), left.signal) : follower.run()
  run.catch((error) => {
    if (!left.signal.aborted) onFault(error)
  })
  return () => left.abort()
}

/** Undoes an aborted commit while this instance rests, if no other instance would. */
export function superviseRest(parts: Omit<SyncFollowerParts, 'onFault'>): () => void {
  const { context } = parts.work
  const left = new AbortController()
  const [what, key] = ['undoing an aborted commit', Symbol('undo')]
  const idle = (): void => context.monitor.end(key)
  const onFault = (error: unknown): void => {
    context.onRetry?.(what, error)
    if (!left.signal.aborted) context.monitor.begin(key, what, error instanceof Error ? error.message : String(error))
  }
  const follower = new SyncFollower({ ...parts, report: () => {}, onFault }, left.signal)
  void again(() => follower.rest(idle), left.signal, onFault)
  return () => {
    left.abort()
    idle()
  }
}

/**
 * Repeats the work when the lease was lost; the machine takes the lease again. Other errors go to `onFault`, or are
 * thrown.
 */
async function again(work: () => Promise<void>, left: AbortSignal, onFault?: (error: unknown) => void): Promise<void> {
  while (!left.aborted) {
    try {
      return await work()
    } catch (error) {
      if (!(error instanceof StoppedError)) {
        if (!onFault) throw error
        onFault(error)
      }
      await sleep(watchAgainMS, undefined, { signal: left }).catch(() => {})
    }
  }
}

async function reportFailure(work: SyncSession, error: unknown, sendBack: Report): Promise<void> {
  const failure = await failureToReport(work, error)
  if (failure) sendBack({ type: 'worker.failed', failure })
}

/**
 * Resolves with the failure to report; null when the work was only told to stop. Null also for a failure that only
 * shows that this instance was replaced, because the loss of the lease, which requires another reaction, is reported
 * separately.
 */
export async function failureToReport(work: SyncSession, error: unknown): Promise<Failure | null> {
  if (error instanceof StoppedError) return null
  if (error instanceof FatalError && error.failure === 'LeaseLost') {
    await work.lease.verify()
    if (!work.lease.held) return null
  }
  return toFailure(error)
}
