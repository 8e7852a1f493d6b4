import type { CommitRequest, LateWrites, Rehearsal } from '../src/domain/commit-request.ts'
import type { Failure } from '../src/domain/errors.ts'

/** A commit that was asked for, and when: ms of the asked instance's clock. */
export type StoredRequest = CommitRequest & { at: number }

/** What is stored of the sync as a whole, beside the state it is in. */
export interface SyncContext {
  /** The coordinator's term in which the present step was begun; 0 before the first. */
  term: number
  /** The verifier has compared everything once. */
  hashed: boolean
  /** Number of the present attempt to commit; 0 before the first. */
  attempt: number
  /** Of the present attempt, as decimal digits. */
  commitPoint: string | null
  /** What the commit that is under way was asked for; null while there is none. */
  request: StoredRequest | null
  /** How many commits have been aborted, rehearsals included. */
  aborts: number
  /** Why the last commit was aborted, for the operator; null where the operator asked for it, or there was none. */
  abortReason: string | null
  lastRehearsal: Rehearsal | null
  /** How often an attempt has failed so far. */
  failures: number
  /** What the present attempt has failed with; null while it has not. */
  failure: Failure | null
  /** Stored by a release that allowed users' writes before it stored anything of it, in an attempt that may have come so far. */
  mayBeOpen: boolean
  /** No attempt has come to its decision since it was first noted where a reversal would begin. */
  writesHeld: boolean
  /** Cluster time of the source, as decimal digits, up to which the last check before the decision had seen it quiet. */
  quietUntil: string | null
  /** What the check after unblocking found; null before it. */
  lateWrites: LateWrites | null
}

export const freshSync: SyncContext = {
  term: 0,
  hashed: false,
  attempt: 0,
  commitPoint: null,
  request: null,
  aborts: 0,
  abortReason: null,
  lastRehearsal: null,
  failures: 0,
  failure: null,
  mayBeOpen: false,
  writesHeld: false,
  quietUntil: null,
  lateWrites: null,
}

/** Whose work a report is about: the coordinator of this term, in this attempt. */
export interface Worked {
  term: number
  attempt: number
}

/** What the coordinator reports of its term's work, in the past tense. */
export type CoordinatorReport =
  | { type: 'initialised' }
  | { type: 'commit.gathered' }
  | { type: 'commit.pointTaken'; commitPoint: string }
  | { type: 'commit.applied' }
  | { type: 'commit.prepared' }
  | { type: 'commit.verified' }
  | { type: 'commit.decided'; quietUntil: string }
  | { type: 'commit.opened' }
  | { type: 'commit.converted' }
  /** `aborts`: how many commits had been aborted when it was begun. */
  | { type: 'commit.undone'; aborts: number }
  /** The coordinator begins anew and is about to apply changes: what the attempt under way had prepared is held back again. */
  | { type: 'commit.renewed' }
  | { type: 'commit.failed'; failure: Failure }
  | { type: 'reversal.begun' }
  | { type: 'reversal.adapted' }
  | { type: 'reversal.noted' }
  | { type: 'verification.hashed' }
  | { type: 'verification.restarted' }
  | { type: 'lateWrites.found'; lateWrites: LateWrites }
  /** Where `mayBeOpen`: users can write on the destination. */
  | { type: 'commit.foundOpen' }

/** What happens to the sync as a whole. */
export type SyncEvent =
  | (CoordinatorReport & Worked)
  /** A coordinator's term begins. */
  | { type: 'coordinator.elected'; term: number }
  /** Any instance, which knows of so many aborted commits. `replaces`: a request at this time is known to bind nobody any more. */
  | { type: 'commit.requested'; request: StoredRequest; replaces: number | null; abortsBefore: number }
  /** Any instance: aborts the commit before which `abortsBefore` had been aborted. */
  | { type: 'commit.aborted'; abortsBefore: number; reason: string | null; rehearsal: Rehearsal | null }
