import type { CommitRequest, LateWrites, Rehearsal } from '../src/domain/commit-request.ts'
import type { Failure } from '../src/domain/errors.ts'

/** A requested commit. `at`: when it was requested, ms by the clock of the instance that received the request. */
export type StoredRequest = CommitRequest & { at: number }

/** What is stored about the sync as a whole, in addition to its state. */
export interface SyncContext {
  /** The coordinator's term in which the current step was begun; 0 before the first. */
  term: number
  /** The verifier has compared everything once. */
  hashed: boolean
  /** Number of the current commit attempt; 0 before the first. */
  attempt: number
  /** Commit timestamp of the current attempt, as decimal digits; null before it is taken. */
  commitPoint: string | null
  /** The request of the commit that is under way; null while none is. */
  request: StoredRequest | null
  /** How many commits have been aborted, rehearsals included. */
  aborts: number
  /** Why the last commit was aborted, for the operator; null when the operator aborted it, or no commit was aborted. */
  abortReason: string | null
  lastRehearsal: Rehearsal | null
  /** How often an attempt has failed so far. */
  failures: number
  /** The failure of the current attempt; null while it has not failed. */
  failure: Failure | null
  /**
   * Users may be able to write on the destination although no decision is stored: an earlier release, which enabled
   * writes before it stored the decision, may have got that far in this attempt.
   */
  mayBeOpen: boolean
  /** No attempt has been decided since the starting position of a reversal was first stored. */
  writesHeld: boolean
  /**
   * Cluster time of the source, as decimal digits, up to which the last check before the decision found no writes
   * there.
   */
  quietUntil: string | null
  /** What the check after enabling writes found; null before it. */
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

/** The coordinator term and the commit attempt that a report belongs to. */
export interface Worked {
  term: number
  attempt: number
}

/** Reports of the coordinator about the work of its term, named in the past tense. */
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
  /** `aborts`: how many commits had been aborted when the undoing began. */
  | { type: 'commit.undone'; aborts: number }
  /**
   * The coordinator starts the commit again and is about to apply changes: the options that the attempt restored are
   * deferred.
   */
  | { type: 'commit.renewed' }
  | { type: 'commit.failed'; failure: Failure }
  | { type: 'reversal.begun' }
  | { type: 'reversal.adapted' }
  | { type: 'reversal.noted' }
  | { type: 'verification.hashed' }
  | { type: 'verification.restarted' }
  | { type: 'lateWrites.found'; lateWrites: LateWrites }
  /** Sent when `mayBeOpen`: the coordinator found that users can write on the destination. */
  | { type: 'commit.foundOpen' }

/** Events of the sync as a whole. */
export type SyncEvent =
  | (CoordinatorReport & Worked)
  /** A coordinator's term begins. */
  | { type: 'coordinator.elected'; term: number }
  /**
   * Sent by any instance. `abortsBefore`: how many aborted commits it knows of. `replaces`: the time of a stored
   * request that no instance follows any more, or null.
   */
  | { type: 'commit.requested'; request: StoredRequest; replaces: number | null; abortsBefore: number }
  /** Sent by any instance: aborts the commit that `abortsBefore` aborted commits preceded. */
  | { type: 'commit.aborted'; abortsBefore: number; reason: string | null; rehearsal: Rehearsal | null }
