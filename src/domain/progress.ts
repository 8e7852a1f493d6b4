import type { CommitEstimate, Rehearsal } from './commit-request.ts'
import type { Failure } from './errors.ts'
import type { LimitsReport } from './limits.ts'

/** Public states: mongosync's, and FAILED for what makes mongosync exit. */
export type PublicState = 'IDLE' | 'RUNNING' | 'PAUSED' | 'COMMITTING' | 'COMMITTED' | 'REVERSING' | 'FAILED'

export type ProgressInfo =
  | 'collection copy'
  | 'change event application'
  | 'waiting for commit to complete'
  | 'commit completed'

/** One side of the embedded verifier. Counts of documents and collections; lag in seconds. */
export interface VerificationSide {
  estimatedDocumentCount: number
  hashedDocumentCount: number
  lagTimeSeconds: number
  phase: string
  scannedCollectionCount: number
  totalCollectionCount: number
}

/** The `progress` object of `GET /api/v1/progress`. Bytes are bytes of BSON documents; times are seconds. */
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
  verification: { source: VerificationSide; destination: VerificationSide } | null
  failure?: Failure
  warnings?: string[]
  estimatedSecondsToCatchUp?: number
  estimatedOplogTimeRemaining?: string
  /** The same in seconds, for the metrics. */
  oplogSecondsRemaining?: number
  /** For the metrics, as are the next ones: whether the source's oplog, of each shard, could be read. */
  oplogVisible?: boolean
  /** Of the sync: alive, and lost within the last day. */
  instances?: { alive: number; lost: number }
  /** What the last verdict found different. */
  mismatches?: number
  /** Documents that stayed different over several comparisons. */
  differingDocuments?: number
  indexBuilding?: { indexesBuilt: number; totalIndexesToBuild: number }
  /** Absent while nothing but `loadLevel` holds back bulk work. */
  limits?: LimitsReport
  retrying?: { what: string; since: string }
  /** How long a commit takes, or will still take, to `canWrite`; absent where there is nothing to say. */
  commit?: CommitEstimate
  lastRehearsal?: Rehearsal
}
