import type { CommitEstimate, Rehearsal } from './commit-request.ts'
import type { InitialCompareMethod } from './compare-method.ts'
import type { Failure } from './errors.ts'
import type { LimitsReport } from './limits.ts'

/** Public states: those of mongosync, and FAILED for errors that make mongosync exit. */
export type PublicState = 'IDLE' | 'RUNNING' | 'PAUSED' | 'COMMITTING' | 'COMMITTED' | 'REVERSING' | 'FAILED'

export type ProgressInfo =
  | 'collection copy'
  | 'change event application'
  | 'waiting for commit to complete'
  | 'commit completed'

/** The embedded verifier's figures for one of the two clusters. */
export interface VerificationSide {
  estimatedDocumentCount: number
  hashedDocumentCount: number
  lagTimeSeconds: number
  phase: string
  scannedCollectionCount: number
  totalCollectionCount: number
}

/** Progress of the index builds on the destination, for the whole sync. The `_id` indexes are not counted. */
export interface IndexBuilding {
  indexesBuilt: number
  /** Includes the indexes that are already built. */
  totalIndexesToBuild: number
  /** Number of collections whose indexes are all built. */
  collectionsFinished: number
  /** Number of collections with at least one index, built or not. */
  collectionsTotal: number
}

/** The `progress` object of `GET /api/v1/progress`. Bytes are bytes of BSON documents. */
export interface Progress {
  state: PublicState
  canCommit: boolean
  canWrite: boolean | null
  info: ProgressInfo | null
  lagTimeSeconds: number | null
  totalEventsApplied: number | null
  collectionCopy: { estimatedTotalBytes: number; estimatedCopiedBytes: number } | null
  directionMapping: { Source: string; Destination: string } | null
  mongosyncID: string | null
  coordinatorID: string | null
  verification: {
    source: VerificationSide
    destination: VerificationSide
    /** Absent if the first pass compares bytes. */
    initialCompareMethod?: InitialCompareMethod
  } | null
  /** Documents of the source that this process has compared in first passes; absent while it has compared none. */
  comparedDocumentCount?: number
  failure?: Failure
  warnings?: string[]
  /**
   * Absent while the copy runs, in states other than RUNNING, and while the lag is at most a second or does not
   * decrease.
   */
  estimatedSecondsToCatchUp?: number
  estimatedOplogTimeRemaining?: string
  /** The remaining oplog time in seconds, for the metrics and the log. */
  oplogSecondsRemaining?: number
  /** True if the oplog of each source shard could be read. Only the metrics show this and the next three fields. */
  oplogVisible?: boolean
  /** The number of instances that are alive, and the number of instances that were lost within the last day. */
  instances?: { alive: number; lost: number }
  /** Number of differences in the verifier's last verdict, which it issues before a commit is decided. */
  mismatches?: number
  /** Number of documents that were different in several comparisons in a row. */
  differingDocuments?: number
  /** Number of collections that this instance still converges; absent if there is none. */
  convergingCollections?: number
  /** Absent if the sync builds no indexes, or if there are no indexes to build. */
  indexBuilding?: IndexBuilding
  /**
   * The last ping of each cluster in milliseconds: at least 1, or -1 if it failed. Present only in RUNNING and
   * COMMITTING.
   */
  source?: { pingLatencyMs: number }
  destination?: { pingLatencyMs: number }
  /** Absent while only `loadLevel` limits bulk work. */
  limits?: LimitsReport
  retrying?: { what: string; since: string }
  /**
   * Estimates when the commit in progress, or a commit that starts now, reaches `canWrite`; absent if that is unknown.
   */
  commit?: CommitEstimate
  lastRehearsal?: Rehearsal
}
