/**
 * The request of `POST /api/v1/commit`. All instances of a sync take part in the same commit, so all must receive the
 * same request.
 */
export interface CommitRequest {
  /**
   * A rehearsal: it runs all steps up to the verdict and returns to RUNNING. It never enables writes on the
   * destination.
   */
  dryRun: boolean
  /** Aborts the commit if its decision is not stored within this many seconds; null for no limit. */
  maxSeconds: number | null
}

/** With a larger lag, a commit is refused and `canCommit` is false, as in later releases of mongosync. */
export const commitLagMaxSeconds = 30

export const plainCommit: CommitRequest = { dryRun: false, maxSeconds: null }

/** The result of a cutover rehearsal: `progress.lastRehearsal`. */
export interface Rehearsal {
  /** End of the rehearsal, ISO 8601. */
  at: string
  /** The steps in order, with the seconds that each took. */
  steps: { step: string; seconds: number }[]
  /**
   * Seconds during which applications must not write: from the step that takes the commit timestamp to the end of the
   * last check.
   */
  outageSeconds: number
  /**
   * `equal`, `not verified` (verification is disabled), or the name of the failure that would have ended a real
   * commit.
   */
  verdict: string
}

/** One wait of a commit and its estimated duration: an entry of `progress.commit`. */
export interface CommitWait {
  what: string
  estimatedSeconds: number
}

/** `progress.commit`: the estimated time to `canWrite`, of a commit that starts now or of the one in progress. */
export interface CommitEstimate {
  estimatedSeconds: number
  waitingFor: CommitWait[]
}

/** Writes on the source that were found only after writes were enabled on the destination, which does not have them. */
export interface LateWrites {
  total: number
  /** The first of these writes: operation, namespace and `_id`. */
  first: string[]
  /** The name of the failure that prevented the check of the source. */
  unchecked?: string
}
