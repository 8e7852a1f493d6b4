import { setTimeout as sleep } from 'node:timers/promises'
import type { DeadlineInput } from '../../machines/instance-context.ts'
import type { WorkerReport } from '../../machines/protocol.ts'
import { type Failure, FatalError, StoppedError, toFailure } from '../domain/errors.ts'
import { limitReason } from './commit-limit.ts'
import { SyncFollower, type SyncFollowerParts } from './sync-follower.ts'
import type { SyncSession } from './sync-session.ts'

// The actors that the instance machine invokes for as long as it is in a state. They report to the machine.

const watchAgainMS = 500

type Report = (report: WorkerReport) => void

/** When the time limit of a commit has passed, aborts it for all instances if it can still be aborted. */
export function superviseDeadline(session: SyncSession, input: DeadlineInput, sendBack: Report): () => void {
  const { abortsBefore, commitUntil, failure } = input
  if (commitUntil === null) return () => {}
  const expire = (): void => {
    const reason = limitReason(session, failure, true)
    session.peers.abort(abortsBefore, { reason }).catch((error) => reportFailure(session, error, sendBack))
  }
  const timer = setTimeout(expire, Math.max(0, commitUntil - Date.now()))
  return () => clearTimeout(timer)
}

/** Follows the state of the sync as a whole. Does the coordinator's work while this instance coordinates. */
export function superviseSync(parts: Omit<SyncFollowerParts, 'onFault'>, watching: boolean): () => void {
  const { session } = parts
  const controller = new AbortController()
  const report: Report = (what) => {
    if (!controller.signal.aborted) parts.report(what)
  }
  const onFault = (error: unknown): void => void reportFailure(session, error, report)
  const follower = new SyncFollower({ ...parts, report, onFault }, controller.signal)
  const run = watching ? again(() => follower.watch(), controller.signal) : follower.run()
  run.catch((error) => {
    if (!controller.signal.aborted) onFault(error)
  })
  return () => controller.abort()
}

/** Undoes an aborted commit while this instance is paused or has failed, if no other instance does. */
export function superviseUndo(parts: Omit<SyncFollowerParts, 'onFault'>): () => void {
  const { context } = parts.session
  const controller = new AbortController()
  const [what, key] = ['undoing an aborted commit', Symbol('undo')]
  const idle = (): void => context.monitor.end(key)
  const onFault = (error: unknown): void => {
    context.onRetry?.(what, error)
    if (!controller.signal.aborted) context.monitor.begin(key, what)
  }
  const follower = new SyncFollower({ ...parts, report: () => {}, onFault }, controller.signal)
  void again(() => follower.undoWhileIdle(idle), controller.signal, onFault)
  return () => {
    controller.abort()
    idle()
  }
}

/**
 * Repeats the work after the lease was lost; the machine takes the lease again. Other errors are passed to `onFault`,
 * or thrown when it is not given.
 */
async function again(
  work: () => Promise<void>,
  signal: AbortSignal,
  onFault?: (error: unknown) => void,
): Promise<void> {
  while (!signal.aborted) {
    try {
      return await work()
    } catch (error) {
      if (!(error instanceof StoppedError)) {
        if (!onFault) throw error
        onFault(error)
      }
      await sleep(watchAgainMS, undefined, { signal }).catch(() => {})
    }
  }
}

async function reportFailure(session: SyncSession, error: unknown, sendBack: Report): Promise<void> {
  const failure = await failureToReport(session, error)
  if (failure) sendBack({ type: 'worker.failed', failure })
}

/**
 * Resolves with the failure to report, or with null when the work was only told to stop. It also resolves with null for
 * a failure that only shows that this instance was replaced: the loss of the lease requires another reaction and is
 * reported separately.
 */
export async function failureToReport(session: SyncSession, error: unknown): Promise<Failure | null> {
  if (error instanceof StoppedError) return null
  if (error instanceof FatalError && error.failure === 'LeaseLost') {
    await session.lease.verify()
    if (!session.lease.held) return null
  }
  return toFailure(error)
}
