import type { CommitRequest, LateWrites, Rehearsal } from '../src/domain/commit-request.ts'
import type { Failure } from '../src/domain/errors.ts'
import type { FilterChange } from '../src/domain/filter-request.ts'
import type { NamespaceFilters } from '../src/domain/namespace-filter.ts'

/** A requested commit. `at`: when it was requested, ms by the clock of the instance that received the request. */
export type StoredRequest = CommitRequest & { at: number }

/** What is stored about the sync as a whole, in addition to its state. */
export interface SyncContext {
  /** The coordinator's term in which the current step began; 0 before the first term. */
  term: number
  /** The verifier has compared everything once. */
  hashed: boolean
  /** Number of the current commit attempt; 0 before the first attempt. */
  attempt: number
  /** Commit timestamp of the current attempt, as decimal digits; null before it is taken. */
  commitPoint: string | null
  /** The request of the commit that is under way; null while no commit is. */
  request: StoredRequest | null
  /** How many commits have been aborted, rehearsals included. */
  aborts: number
  /** Why the last commit was aborted, for the operator; null when the operator aborted it, or no commit was aborted. */
  abortReason: string | null
  lastRehearsal: Rehearsal | null
  /** How many attempts have failed so far. */
  failures: number
  /** The failure of the current attempt; null while it has not failed. */
  failure: Failure | null
  /**
   * Users may be able to write on the destination although no decision is stored. An earlier release enabled writes
   * before it stored the decision, and may have enabled them in this attempt.
   */
  mayBeOpen: boolean
  /** No attempt has been decided since the starting position of a reversal was first stored. */
  writesHeld: boolean
  /**
   * Cluster time of the source, as decimal digits, up to which the last check before the decision found no writes
   * there.
   */
  quietUntil: string | null
  /** The writes that the check after enabling writes on the destination found; null before the check. */
  lateWrites: LateWrites | null
  /**
   * The number of convergences that were requested since the sync began. What an instance knows about the copy and the
   * verification is valid for one value of this number.
   */
  convergences: number
  /** What the last of these requests concerns; null before the first. */
  scope: ConvergenceScope | null
  /**
   * Cluster time of the source, as decimal digits, at or after which collections are read for the last convergence;
   * null before the first one is planned. Until then, the start time of the sync applies.
   */
  startTime: string | null
  /** The filters that apply; null while those of the start apply. */
  filters: NamespaceFilters | null
  /** The change of the filters that is still to be planned; null when there is none. */
  filterChange: FilterChange | null
}

/** The collections that are converged again: all, or those with these UUIDs on the source (hexadecimal digits). */
export type ConvergenceScope = 'all' | string[]

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
  convergences: 0,
  scope: null,
  startTime: null,
  filters: null,
  filterChange: null,
}

/** The filters that replace others. `before`: the filters that the sender has read, which are replaced. */
export interface NewFilter {
  filters: NamespaceFilters
  before: NamespaceFilters
  dropExcluded: boolean
}

/** The coordinator term and the commit attempt that a report belongs to. */
export interface Worked {
  term: number
  attempt: number
  /** How many convergences had been requested when the work began. An earlier release does not send it. */
  convergences?: number
}

/** Reports of the coordinator about the work of its term, named in the past tense. */
export type CoordinatorReport =
  | { type: 'initialised' }
  /** Every collection concerned is to be converged, and its events are applied under the rules of a copy. */
  | { type: 'convergence.planned'; startTime: string }
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
  /** `converges`: an oplog no longer contains all changes since the commit. An earlier release does not send it. */
  | { type: 'reversal.adapted'; converges?: boolean }
  | { type: 'reversal.noted' }
  | { type: 'verification.hashed' }
  | { type: 'verification.restarted' }
  | { type: 'lateWrites.found'; lateWrites: LateWrites }
  /** Sent when `mayBeOpen` is true and the coordinator finds that users can write on the destination. */
  | { type: 'commit.foundOpen' }

/** Events of the sync as a whole. */
export type SyncEvent =
  | (CoordinatorReport & Worked)
  /** A coordinator's term begins. */
  | { type: 'coordinator.elected'; term: number }
  /**
   * Sent by any instance. `abortsBefore`: how many aborted commits that instance knows of. `replaces`: the time of a
   * stored request that no instance follows any more, or null.
   */
  | {
      type: 'commit.requested'
      request: StoredRequest
      replaces: number | null
      abortsBefore: number
      /** The convergence after which the instance observed that everything is copied. Earlier releases send none. */
      convergences?: number
    }
  /**
   * Sent by any instance. Converges collections again. `convergencesBefore` is the number of convergences that it knows
   * of, so that several requests for the same reason count once. With `filter` it also replaces the filters: what they
   * newly include is converged, and what they newly exclude leaves the sync.
   */
  | { type: 'convergence.requested'; scope: ConvergenceScope; convergencesBefore: number; filter?: NewFilter }
  /** Sent by any instance. Aborts the commit that was preceded by `abortsBefore` aborted commits. */
  | { type: 'commit.aborted'; abortsBefore: number; reason: string | null; rehearsal: Rehearsal | null }
