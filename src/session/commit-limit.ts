import { canBeAborted, type SyncSnapshot } from '../../machines/sync-view.ts'
import { type ClusterTime, secondsBetween } from '../domain/cluster-time.ts'
import type { Failure } from '../domain/errors.ts'
import type { SyncSession } from './sync-session.ts'

/** The time limit of the commit that this instance has received. */
export interface OwnLimit {
  abortsBefore: number
  /** Null while this instance has no time limit of its own. */
  commitUntil: number | null
}

/**
 * For this long (ms), but not longer than the time limit, a coordinator without a time limit of its own lets the
 * operator send it the commit before it aborts the commit. The time limit may already have passed when that coordinator
 * takes over.
 */
const graceMS = 10_000

/**
 * The time limit of a commit, as the coordinator enforces it. An instance that has received the commit aborts it itself
 * (`commitDeadline` of the instance machine). All such instances may be gone, and a coordinator that has not received
 * the commit, or that joined the commit of the others, has no time limit of its own. It then uses the stored request.
 *
 * The time since the request is measured by the destination's cluster time, because the clocks of hosts may differ. The
 * seconds of cluster time do not advance while the clock of a primary is behind them, for instance after that clock was
 * set back. The time limit therefore also counts as exceeded once this process has observed the commit for `maxSeconds`.
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

  /** True when the commit of this stored state has exceeded its time limit. Call it with each state that is read. */
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

/** Explains to the operator why a commit was aborted when its time limit had passed. */
export function limitReason(session: SyncSession, failure: Failure | null, isReceived: boolean): string {
  const why = failure
    ? `it had failed with ${failure.error}: ${failure.errorDescription}`
    : isReceived
      ? `it waited for ${session.commit.waitingFor}`
      : `it waited for the instance ${session.coordination.id}, which had not received the commit`
  return `the commit was aborted by its maxSeconds: ${why}`
}
