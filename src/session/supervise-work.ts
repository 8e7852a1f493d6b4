import { setTimeout as sleep } from 'node:timers/promises'
import type { DeadlineInput } from '../../machines/instance-context.ts'
import type { WorkerReport } from '../../machines/protocol.ts'
import { type Failure, FatalError, StoppedError, toFailure } from '../domain/errors.ts'
import { limitReason } from './commit-limit.ts'
import { SyncFollower, type SyncFollowerParts } from './sync-follower.ts'
import type { SyncSession } from './sync-session.ts'

// The actors that the instance machine invokes for as long as it is in a state. They report to the machine.

const watchAgainMS = 500
const longestWatchAgainMS = 30_000

type Report = (report: WorkerReport) => void

/** When the time limit of a commit has passed, aborts it for all instances if it can still be aborted. */
export function superviseDeadline(session: SyncSession, input: DeadlineInput): () => void {
  const { abortsBefore, commitUntil, failure } = input
  if (commitUntil === null) return () => {}
  const controller = new AbortController()
  const retrying = showRetries(session, 'aborting the commit by its maxSeconds', controller.signal)
  const expire = (): void => {
    const reason = limitReason(session, failure, true)
    const abort = async (): Promise<void> => void (await session.peers.abort(abortsBefore, { reason }))
    // Repeated after any failure: nothing else aborts the commit, and this instance may have failed already.
    void again(abort, controller.signal, retrying.onFault)
  }
  const timer = setTimeout(expire, Math.max(0, commitUntil - Date.now()))
  return () => {
    clearTimeout(timer)
    controller.abort()
    retrying.end()
  }
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
  const retrying = showRetries(session, 'following the sync', controller.signal)
  // An instance that has failed cannot fail again, so it repeats the work: it must notice an abort at any time.
  const run = watching ? again(() => follower.watch(retrying.end), controller.signal, retrying.onFault) : follower.run()
  run.catch((error) => {
    if (!controller.signal.aborted) onFault(error)
  })
  return () => {
    controller.abort()
    retrying.end()
  }
}

/** Undoes an aborted commit while this instance is paused or has failed, if no other instance does. */
export function superviseUndo(parts: Omit<SyncFollowerParts, 'onFault'>): () => void {
  const controller = new AbortController()
  const { onFault, end: idle } = showRetries(parts.session, 'undoing an aborted commit', controller.signal)
  const follower = new SyncFollower({ ...parts, report: () => {}, onFault }, controller.signal)
  void again(() => follower.undoWhileIdle(idle), controller.signal, onFault)
  return () => {
    controller.abort()
    idle()
  }
}

/** Shows and logs what is repeated after failures, until `end` is called. */
function showRetries({ context }: SyncSession, what: string, signal: AbortSignal) {
  const key = Symbol(what)
  return {
    onFault: (error: unknown): void => {
      context.onRetry?.(what, error)
      if (!signal.aborted) context.monitor.begin(key, what)
    },
    end: (): void => context.monitor.end(key),
  }
}

/**
 * Repeats the work until it succeeds. A lost lease is not reported, because the machine takes the lease again. Other
 * errors are passed to `onFault`. Each pause is twice as long as the last one, because an error such as a refused login
 * does not pass soon. The pause is short again after a lost lease, and after work that lasted longer than the longest pause.
 */
async function again(work: () => Promise<void>, signal: AbortSignal, onFault: (error: unknown) => void): Promise<void> {
  let pauseMS = watchAgainMS
  while (!signal.aborted) {
    const began = performance.now()
    try {
      return await work()
    } catch (error) {
      if (!(error instanceof StoppedError)) onFault(error)
      if (performance.now() - began > longestWatchAgainMS || error instanceof StoppedError) pauseMS = watchAgainMS
      await sleep(pauseMS, undefined, { signal }).catch(() => {})
      pauseMS = Math.min(2 * pauseMS, longestWatchAgainMS)
    }
  }
}

async function reportFailure(session: SyncSession, error: unknown, sendBack: Report): Promise<void> {
  const failure = await failureToReport(session, error)
  if (failure) sendBack({ type: 'worker.failed', failure })
}

/**
 * Resolves with the failure to report, or with null when the work was only stopped. It also resolves with null for
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
