/** What `POST /api/v1/commit` asks for. All instances of a sync take part in the same commit, so they must be asked for the same. */
export interface CommitRequest {
  /** A rehearsal: everything up to the verdict, then RUNNING again. The destination is never unblocked. */
  dryRun: boolean
  /** The commit is aborted when `canWrite` is not reached within this many seconds; null for no limit. */
  maxSeconds: number | null
}

/** A commit is refused, and `canCommit` is false, while the application of changes is further behind, as in mongosync since 1.21. */
export const commitLagMaxSeconds = 30

export const plainCommit: CommitRequest = { dryRun: false, maxSeconds: null }

/** What a rehearsal of the cutover came to: `progress.lastRehearsal`. */
export interface Rehearsal {
  /** When it ended, ISO 8601. */
  at: string
  /** The steps in their order, with the seconds that each took. */
  steps: { step: string; seconds: number }[]
  /** Seconds for which writes would have stood still: from blocking the source to the end of the last check. */
  outageSeconds: number
  /** `equal`, `not verified` (verification is switched off), or the name of the failure that a real commit would have met. */
  verdict: string
}

/** What a commit waits for, and for how long about: an entry of `progress.commit`. */
export interface CommitWait {
  what: string
  estimatedSeconds: number
}

/** `progress.commit`: how long a commit would take from now, or how long the present one will still take, to `canWrite`. */
export interface CommitEstimate {
  estimatedSeconds: number
  waitingFor: CommitWait[]
}

/** Source writes that were found after the destination was unblocked: they are not on the destination. */
export interface LateWrites {
  total: number
  /** The first of them: operation, namespace and `_id`. */
  first: string[]
  /** The name of the failure that kept the source from being checked. */
  unchecked?: string
}
