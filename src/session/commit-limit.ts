import { canBeAborted, type SyncSnapshot } from '../../machines/sync-view.ts'
import { type ClusterTime, secondsBetween } from '../domain/cluster-time.ts'
import type { Failure } from '../domain/errors.ts'
import type { SyncSession } from './sync-session.ts'

/** The time limit of the commit that this instance has received, as in the context of the instance machine. */
export interface OwnLimit {
  /** Number of aborted commits before that commit. It identifies the commit. */
  abortsBefore: number
  /** Milliseconds since 1970 by this host's wall clock; null while this instance has no time limit of its own. */
  commitUntil: number | null
}

/**
 * How long (ms) a coordinator without a time limit of its own observes a commit before it aborts it. The time limit may
 * already have passed when such a coordinator takes over, and the operator needs time to send it the commit. If the time
 * limit is shorter than this, the coordinator waits only for the time limit.
 */
const graceMS = 10_000

/**
 * Decides whether the coordinator must abort a commit because of its time limit. Usually an instance that has received
 * the commit aborts it (`commitDeadline` of the instance machine). All such instances may be gone, though, and a
 * coordinator that has not received the commit, or has joined the commit of other instances, has no time limit of its
 * own. Such a coordinator uses the time limit of the stored request.
 *
 * The time since the request is measured by the destination's cluster time, because the clocks of hosts may differ. The
 * cluster time does not advance while the primary's clock is behind it, for example after that clock was set back. The
 * time limit therefore also counts as exceeded once this process has observed the commit for `maxSeconds`.
 */
export class CommitLimit {
  readonly #clusterTime: () => ClusterTime
  readonly #now: () => number
  #observed: { commit: string; atMS: number } | null = null

  /**
   * @param clusterTime the destination's cluster time
   * @param now a monotonic clock, ms
   */
  constructor(clusterTime: () => ClusterTime, now = () => performance.now()) {
    this.#clusterTime = clusterTime
    this.#now = now
  }

  /**
   * Returns true when the commit of this stored state has exceeded its time limit and can still be aborted. Returns false
   * if this instance has its own time limit for this commit. Call it with every state that is read, because the first
   * call begins the observation of a commit.
   */
  isExceeded(sync: SyncSnapshot, own: OwnLimit): boolean {
    const { request, aborts } = sync.context
    if (request === null || request.maxSeconds === null || !canBeAborted(sync)) return false
    if (own.commitUntil !== null && own.abortsBefore === aborts) return false
    const commit = `${aborts} ${request.at}`
    if (this.#observed?.commit !== commit) this.#observed = { commit, atMS: this.#now() }
    const limitMS = request.maxSeconds * 1_000
    const observedMS = this.#now() - this.#observed.atMS
    if (observedMS >= limitMS) return true
    // A request that an earlier release stored has no cluster time.
    if (request.atClusterTime === undefined || observedMS < Math.min(limitMS, graceMS)) return false
    return secondsBetween(BigInt(request.atClusterTime), this.#clusterTime()) > request.maxSeconds
  }
}

/**
 * Explains to the operator why a commit had not been decided when its time limit had passed.
 * @param isReceived true if this instance takes part in the commit
 */
export function limitReason(session: SyncSession, failure: Failure | null, isReceived: boolean): string {
  const why = failure
    ? `it had failed with ${failure.error}: ${failure.errorDescription}`
    : isReceived
      ? `it waited for ${session.commit.waitingFor}`
      : `it waited for the instance ${session.coordination.id}, which had not received the commit`
  return `the commit was aborted because its maxSeconds had passed: ${why}`
}
