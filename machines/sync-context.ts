import type { CommitRequest, LateWrites, Rehearsal } from '../src/domain/commit-request.ts'
import type { Failure } from '../src/domain/errors.ts'
import type { FilterChange } from '../src/domain/filter-request.ts'
import type { NamespaceFilters } from '../src/domain/namespace-filter.ts'

/**
 * A requested commit. `at`: when it was requested, ms by the clock of the instance that received the request.
 * `atClusterTime`: the destination's cluster time at that moment, as decimal digits, which all instances can compare. An
 * earlier release stores no cluster time.
 */
export type StoredRequest = CommitRequest & { at: number; atClusterTime?: string }

/** What is stored about the sync as a whole, in addition to its state. */
export interface SyncContext {
  /**
   * The latest coordinator term that was stored; 0 before the first. Reports of earlier terms have no effect, except
   * `commit.foundOpen`.
   */
  term: number
  /** The verifier has compared everything once. */
  initiallyVerified: boolean
  /** Number of the current commit attempt; 0 before the first attempt. */
  attempt: number
  /** Commit timestamp of the current attempt, as decimal digits; null before it is taken. */
  commitTimestamp: string | null
  /** The request of the latest commit, completed or not; null before the first, and after an abort until the next. */
  request: StoredRequest | null
  /** How many commits have been aborted, rehearsals included. */
  aborts: number
  /**
   * Why the last commit was aborted, for the operator. Null when the operator aborted it, when it was a rehearsal that
   * succeeded, when no commit was aborted, and once another commit is requested.
   */
  abortReason: string | null
  lastRehearsal: Rehearsal | null
  /** How many failures of a commit were stored so far, those after its decision included. */
  failures: number
  /** The failure of the current attempt, or of a step after the decision; null while neither has failed. */
  failure: Failure | null
  /**
   * Users may be able to write on the destination although no decision is stored. An earlier release enabled writes
   * before it stored the decision, and may have enabled them in this attempt.
   */
  mayBeOpen: boolean
  /**
   * Becomes true with the first report that a start position of the reversal is about to be stored, and false with the
   * decision. While it is true, users have not written on the destination after that position, so a new position may
   * replace it.
   */
  writesHeld: boolean
  /**
   * Cluster time of the source, as decimal digits, up to which the last check before the decision found no writes
   * there.
   */
  quietUntil: string | null
  /** Late writes on the source, which are searched for once users can write on the destination; null before that. */
  lateWrites: LateWrites | null
  /**
   * The number of convergences that were requested since the sync began. A convergence compares collections with the
   * source and writes only what differs. What an instance knows about the copy and the verification is valid for one
   * value of this number.
   */
  convergences: number
  /**
   * The collections of the last convergence, including those of requests that were planned together with it; null
   * before the first.
   */
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
  initiallyVerified: false,
  attempt: 0,
  commitTimestamp: null,
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

/** A replacement of the filters. `before`: the filters that it replaces, as the sender last read them. */
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
  /** The coordinator is about to change the catalog and the destination for new filters. */
  | { type: 'convergence.planBegun' }
  /**
   * The collections of the convergence are stored as `copying`. Until the copy of a collection ends, its events are
   * applied as during the initial copy.
   */
  | { type: 'convergence.planned'; startTime: string }
  | { type: 'commit.gathered' }
  | { type: 'commit.timestampTaken'; commitTimestamp: string }
  | { type: 'commit.applied' }
  | { type: 'commit.prepared' }
  | { type: 'commit.verified' }
  | { type: 'commit.decided'; quietUntil: string }
  | { type: 'commit.opened' }
  | { type: 'commit.converted' }
  /** `aborts`: how many commits had been aborted when the undoing began. */
  | { type: 'commit.undone'; aborts: number }
  /**
   * The coordinator starts the commit again. Before changes are applied, the options that the attempt restored are
   * deferred again.
   */
  | { type: 'commit.renewed' }
  | { type: 'commit.failed'; failure: Failure }
  | { type: 'reversal.started' }
  /**
   * `converges` is true when all collections must be converged, because the change streams do not provide all changes
   * since the commit. An earlier release does not send this field.
   */
  | { type: 'reversal.prepared'; converges?: boolean }
  | { type: 'reversal.announced' }
  | { type: 'verification.initiallyVerified' }
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
   * Sent by any instance. `abortsBefore`: how many aborted commits that instance knows of. `replaces`: the time
   * (`at`) of a stored request that this request may replace because no instance carries it out, or null.
   */
  | {
      type: 'commit.requested'
      request: StoredRequest
      replaces: number | null
      abortsBefore: number
      /**
       * The number of requested convergences (`SyncContext.convergences`) when the instance observed that everything is
       * copied. Earlier releases do not send it.
       */
      convergences?: number
    }
  /**
   * Sent by any instance. Converges collections again. `convergencesBefore` is the number of convergences that the
   * instance knows of, so that several requests for the same reason count once. With `filter` the event also replaces
   * the filters: what they newly include is converged, and what they newly exclude leaves the sync.
   */
  | { type: 'convergence.requested'; scope: ConvergenceScope; convergencesBefore: number; filter?: NewFilter }
  /** Sent by any instance. Aborts the commit that was preceded by `abortsBefore` aborted commits. */
  | { type: 'commit.aborted'; abortsBefore: number; reason: string | null; rehearsal: Rehearsal | null }
