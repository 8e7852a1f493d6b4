import { assign, setup } from 'xstate'
import type { FilterChange } from '../src/domain/filter-request.ts'
import { type ConvergenceScope, freshSync, type NewFilter, type SyncContext, type SyncEvent } from './sync-context.ts'

/**
 * The coordinator's work in a state. The coordinator stops this work when the machine leaves the state. Every step may
 * be repeated from its beginning.
 */
export type SyncStep =
  | 'initialise'
  | 'replan'
  | 'gather'
  | 'takeCommitTimestamp'
  | 'applyAll'
  | 'prepare'
  | 'verify'
  | 'decide'
  | 'open'
  | 'convert'
  | 'undo'
  | 'prepareDestination'

/**
 * One sync as a whole, shared by all instances. Its snapshot is stored on the destination. Each event is one write,
 * which takes effect only if nothing was stored since the snapshot was read. Otherwise the event is applied to the newer
 * snapshot, which may not accept it. The coordinator performs the step of the current state (`meta.step`) and reports the
 * result. Every instance follows the state.
 *
 * initialising  The coordinator blocks user writes on the destination if requested, creates the collections and stores
 *               the first positions.
 * replicating   All instances copy and apply changes.
 * replanning    Collections are to be converged again, or the filters were replaced. No instance copies, applies or
 *               verifies. The coordinator waits until all instances have stopped, and then resets the stored progress of
 *               these collections. The filters may be replaced again in this state, because the coordinator may be
 *               unable to plan with the new ones. Before the coordinator changes anything for new filters, it reports
 *               `convergence.planBegun`.
 * committing    A commit is under way. It can still fail or be aborted.
 *   gathering     The coordinator waits until every instance has received the commit. Changes are applied.
 *   takingTimestamp
 *                 Writes on the source are blocked if requested, and the commit timestamp is taken. Changes are
 *                 applied.
 *   applying      Every instance applies all changes up to the commit timestamp and then gives its partitions back.
 *   preparing     The coordinator makes all definitions equal once more, restores the size and the order of capped
 *                 collections, and sets `prepareUnique` on unique indexes.
 *   verifying     The coordinator verifies that both clusters are equal, unless verification is switched off. It may
 *                 find instead that users can already write on the destination, because an earlier release enabled
 *                 these writes before it stored the decision (`mayBeOpen`). Then the commit counts as decided.
 *   deciding      The coordinator restores the expiry of TTL indexes and checks the source once more. Its next report is
 *                 the decision. A rehearsal does not restore the expiry, and ends here by an abort. A new coordinator
 *                 has to verify again, because the verdict is valid only in the term in which it was issued.
 * undoing       The commit was aborted. The coordinator allows user writes on the source again, and defers the restored
 *               options again.
 * restoring     The coordinator starts the commit again, or a failed commit is retried. The coordinator defers the
 *               restored options again, but the source stays blocked.
 * failed        The commit failed before it was decided. Nothing happens until it is retried or aborted.
 * decided       The commit can only be completed, in this term or a later one.
 *   opening       The coordinator enables user writes on the destination.
 *   converting    Users write on the destination, and the coordinator restores `unique` and `hidden` of indexes.
 * committed     The sync in this direction is complete.
 * reversing     Source and destination swap roles.
 *   moving        The coordinator moves the stored state to the new destination. Until the move is done, the former
 *                 destination stores this state.
 *   preparingDestination
 *                 The new destination stores this state, and the coordinator prepares that cluster as the destination.
 *                 If the change streams do not provide all changes since the commit, all collections are converged.
 *
 * Tags: `applicable` when changes may be applied, `decided` from the decision on, `canWrite` when users can write on
 * the destination.
 */
export const syncMachine = setup({
  types: {
    context: {} as SyncContext,
    events: {} as SyncEvent,
    input: {} as Partial<SyncContext>,
    tags: {} as 'applicable' | 'decided' | 'canWrite',
    meta: {} as { step: SyncStep },
  },
  guards: {
    isNewTerm: ({ context, event }) => event.type === 'coordinator.elected' && event.term > context.term,
    /** Only the reports of a coordinator contain an attempt. */
    isOfThisTerm: ({ context, event }) => 'attempt' in event && event.term === context.term,
    isOfThisAttempt: ({ context, event }) =>
      'attempt' in event && event.term === context.term && event.attempt === context.attempt,
    /** A rehearsal is never decided. */
    isDecision: ({ context, event }) =>
      event.type === 'commit.decided' &&
      event.term === context.term &&
      event.attempt === context.attempt &&
      context.request?.dryRun !== true,
    /** An abort identifies its commit by the number of commits that were aborted before it. */
    abortsThisCommit: ({ context, event }) => event.type === 'commit.aborted' && event.abortsBefore === context.aborts,
    /** While an aborted commit is undone, one new commit may be requested. */
    isFirstRequest: ({ context, event }) => isCurrentRequest(context, event) && context.request === null,
    isCurrentRequest: ({ context, event }) => isCurrentRequest(context, event),
    /**
     * Compares `aborts`, because the commit may be aborted while the coordinator works in `restoring`. The report about
     * that work then has no effect, because after an abort the source must be unblocked too.
     */
    isUndone: ({ context, event }) =>
      event.type === 'commit.undone' &&
      event.term === context.term &&
      event.attempt === context.attempt &&
      event.aborts === context.aborts,
    isUndoneAndRequestedAgain: ({ context, event }) =>
      event.type === 'commit.undone' &&
      event.term === context.term &&
      event.attempt === context.attempt &&
      event.aborts === context.aborts &&
      context.request !== null,
    /** A commit that was requested while the last one is undone can be aborted before it begins. */
    abortsNextCommit: ({ context, event }) =>
      event.type === 'commit.aborted' && event.abortsBefore === context.aborts && context.request !== null,
    /** `replaces` names the stored request by its time. */
    replacesRequest: ({ context, event }) =>
      event.type === 'commit.requested' &&
      isCurrentRequest(context, event) &&
      // A commit without a request was begun by a release that did not store requests.
      (context.request === null || event.replaces === context.request.at),
    /** See `SyncContext.mayBeOpen`. The finding is valid in every term, because users may already write. */
    mayBeOpen: ({ context }) => context.mayBeOpen,
    /** Several instances may request a convergence for the same reason; only the first request counts. */
    isNewConvergence: ({ context, event }) =>
      event.type === 'convergence.requested' && event.convergencesBefore === context.convergences,
    isNewFilter: ({ context, event }) =>
      event.type === 'convergence.requested' &&
      event.filter !== undefined &&
      event.convergencesBefore === context.convergences,
    isPlanned: ({ context, event }) =>
      event.type === 'convergence.planned' &&
      event.term === context.term &&
      event.convergences === context.convergences,
    isPlanBegun: ({ context, event }) =>
      event.type === 'convergence.planBegun' &&
      event.term === context.term &&
      event.convergences === context.convergences,
    /** The new destination is prepared, and all collections must be converged (see `reversing`). */
    isPreparedByConverging: ({ context, event }) =>
      event.type === 'reversal.prepared' && event.term === context.term && event.converges === true,
    /** A comparison that began before the last convergence was requested does not count. */
    isInitiallyVerified: ({ context, event }) =>
      event.type === 'verification.initiallyVerified' &&
      event.term === context.term &&
      (event.convergences ?? context.convergences) === context.convergences,
  },
  actions: {
    takeTerm: assign(({ context, event }) =>
      event.type === 'coordinator.elected' ? { term: event.term } : { term: context.term },
    ),
    takeRequest: assign(({ event }) =>
      event.type === 'commit.requested' ? { request: event.request, abortReason: null } : {},
    ),
    beginAttempt: assign(({ context }) => ({
      attempt: context.attempt + 1,
      commitTimestamp: null,
      failure: null,
      mayBeOpen: false,
    })),
    takeCommitTimestamp: assign(({ event }) =>
      event.type === 'commit.timestampTaken' ? { commitTimestamp: event.commitTimestamp } : {},
    ),
    decide: assign(({ event }) =>
      event.type === 'commit.decided' ? { quietUntil: event.quietUntil, lateWrites: null, writesHeld: false } : {},
    ),
    abort: assign(({ context, event }) => {
      if (event.type !== 'commit.aborted') return {}
      const lastRehearsal = event.rehearsal ?? context.lastRehearsal
      return { aborts: context.aborts + 1, abortReason: event.reason, lastRehearsal, request: null, failure: null }
    }),
    fail: assign(({ context, event }) =>
      event.type === 'commit.failed' ? { failures: context.failures + 1, failure: event.failure } : {},
    ),
    /** Once a failed commit is retried or a step after the decision has ended, `mayBeOpen` no longer applies. */
    clearFailure: assign({ failure: null, mayBeOpen: false }),
    beginConvergence: assign(({ context, event }) => {
      const requested = event.type === 'convergence.requested' ? event : null
      const started = {
        convergences: context.convergences + 1,
        scope: requested?.scope ?? 'all',
        initiallyVerified: false,
      }
      return { ...started, ...filtersOf(requested, null) }
    }),
    /** The last convergence is not planned yet, so both are planned together. */
    extendConvergence: assign(({ context, event }) =>
      event.type === 'convergence.requested'
        ? {
            convergences: context.convergences + 1,
            scope: bothScopes(context.scope ?? 'all', event.scope),
            ...filtersOf(event, context.filterChange),
          }
        : {},
    ),
    beginPlan: assign(({ context }) =>
      context.filterChange ? { filterChange: { ...context.filterChange, begun: true } } : {},
    ),
    completePlan: assign(({ event }) =>
      event.type === 'convergence.planned' ? { startTime: event.startTime, filterChange: null } : {},
    ),
    takeLateWrites: assign(({ event }) => (event.type === 'lateWrites.found' ? { lateWrites: event.lateWrites } : {})),
  },
}).createMachine({
  id: 'sync',
  context: ({ input }) => ({ ...freshSync, ...input }),
  initial: 'initialising',
  on: {
    'coordinator.elected': { guard: 'isNewTerm', actions: 'takeTerm' },
    'verification.initiallyVerified': { guard: 'isInitiallyVerified', actions: assign({ initiallyVerified: true }) },
    'verification.restarted': { guard: 'isOfThisTerm', actions: assign({ initiallyVerified: false }) },
  },
  states: {
    initialising: {
      meta: { step: 'initialise' },
      on: { initialised: { guard: 'isOfThisTerm', target: 'replicating' } },
    },
    replicating: {
      tags: 'applicable',
      on: {
        'commit.requested': {
          guard: 'isCurrentRequest',
          target: 'committing',
          actions: ['takeRequest', 'beginAttempt'],
        },
        'convergence.requested': { guard: 'isNewConvergence', target: 'replanning', actions: 'beginConvergence' },
      },
    },
    replanning: {
      meta: { step: 'replan' },
      on: {
        'convergence.planBegun': { guard: 'isPlanBegun', actions: 'beginPlan' },
        'convergence.planned': { guard: 'isPlanned', target: 'replicating', actions: 'completePlan' },
        'convergence.requested': { guard: 'isNewFilter', actions: 'extendConvergence' },
        // Ignored: nothing is verified in this state, so the report is about an earlier verification.
        'verification.initiallyVerified': {},
      },
    },
    committing: {
      initial: 'gathering',
      on: {
        'commit.aborted': { guard: 'abortsThisCommit', target: 'undoing', actions: 'abort' },
        'commit.renewed': { guard: 'isOfThisAttempt', target: 'restoring' },
        'commit.failed': { guard: 'isOfThisAttempt', target: 'failed', actions: 'fail' },
        'reversal.announced': { guard: 'isOfThisTerm', actions: assign({ writesHeld: true }) },
      },
      states: {
        gathering: {
          tags: 'applicable',
          meta: { step: 'gather' },
          on: {
            'commit.requested': { guard: 'replacesRequest', actions: 'takeRequest' },
            'commit.gathered': { guard: 'isOfThisAttempt', target: 'takingTimestamp' },
            // Ignored: the attempt has not begun anything that would have to be undone.
            'commit.renewed': {},
          },
        },
        takingTimestamp: {
          tags: 'applicable',
          meta: { step: 'takeCommitTimestamp' },
          on: {
            'commit.timestampTaken': { guard: 'isOfThisAttempt', target: 'applying', actions: 'takeCommitTimestamp' },
          },
        },
        applying: {
          tags: 'applicable',
          meta: { step: 'applyAll' },
          on: { 'commit.applied': { guard: 'isOfThisAttempt', target: 'preparing' } },
        },
        preparing: {
          meta: { step: 'prepare' },
          on: { 'commit.prepared': { guard: 'isOfThisAttempt', target: 'verifying' } },
        },
        verifying: {
          meta: { step: 'verify' },
          on: {
            'commit.verified': { guard: 'isOfThisAttempt', target: 'deciding' },
            'commit.foundOpen': { guard: 'mayBeOpen', target: '#sync.decided' },
          },
        },
        deciding: {
          meta: { step: 'decide' },
          on: {
            'commit.decided': { guard: 'isDecision', target: '#sync.decided', actions: 'decide' },
            'coordinator.elected': { guard: 'isNewTerm', target: 'verifying', actions: 'takeTerm' },
          },
        },
      },
    },
    undoing: {
      meta: { step: 'undo' },
      on: {
        'commit.undone': [
          { guard: 'isUndoneAndRequestedAgain', target: 'committing', actions: 'beginAttempt' },
          { guard: 'isUndone', target: 'replicating' },
        ],
        'commit.requested': { guard: 'isFirstRequest', actions: 'takeRequest' },
        'commit.aborted': { guard: 'abortsNextCommit', actions: 'abort' },
      },
    },
    restoring: {
      meta: { step: 'undo' },
      on: {
        'commit.undone': { guard: 'isUndone', target: 'committing', actions: 'beginAttempt' },
        'commit.aborted': { guard: 'abortsThisCommit', target: 'undoing', actions: 'abort' },
        'commit.failed': { guard: 'isOfThisAttempt', target: 'failed', actions: 'fail' },
      },
    },
    failed: {
      on: {
        'commit.renewed': { guard: 'isOfThisTerm', target: 'restoring', actions: 'clearFailure' },
        'commit.aborted': { guard: 'abortsThisCommit', target: 'undoing', actions: 'abort' },
      },
    },
    decided: {
      tags: 'decided',
      initial: 'opening',
      on: {
        'commit.failed': { guard: 'isOfThisAttempt', actions: 'fail' },
        'lateWrites.found': { guard: 'isOfThisTerm', actions: 'takeLateWrites' },
      },
      states: {
        opening: {
          meta: { step: 'open' },
          on: { 'commit.opened': { guard: 'isOfThisTerm', target: 'converting', actions: 'clearFailure' } },
        },
        converting: {
          tags: 'canWrite',
          meta: { step: 'convert' },
          on: { 'commit.converted': { guard: 'isOfThisTerm', target: '#sync.committed', actions: 'clearFailure' } },
        },
      },
    },
    committed: {
      tags: ['decided', 'canWrite'],
      on: { 'reversal.started': { guard: 'isOfThisTerm', target: 'reversing' } },
    },
    reversing: {
      initial: 'moving',
      states: {
        moving: { tags: ['decided', 'canWrite'] },
        preparingDestination: {
          meta: { step: 'prepareDestination' },
          on: {
            'reversal.prepared': [
              { guard: 'isPreparedByConverging', target: '#sync.replanning', actions: 'beginConvergence' },
              { guard: 'isOfThisTerm', target: '#sync.replicating' },
            ],
          },
        },
      },
    },
  },
})

/**
 * True if the request is up to date: the instance that sent it knew of every aborted commit and of every requested
 * convergence. An instance that does not know of the last convergence still regards its copy as complete.
 */
function isCurrentRequest(context: SyncContext, event: SyncEvent): boolean {
  return (
    event.type === 'commit.requested' &&
    event.abortsBefore === context.aborts &&
    (event.convergences ?? context.convergences) === context.convergences
  )
}

/** Returns the fields of the context that a request with a filter changes; none if the request has no filter. */
function filtersOf(
  requested: { filter?: NewFilter } | null,
  pending: FilterChange | null,
): Pick<SyncContext, 'filters' | 'filterChange'> | Record<never, never> {
  if (!requested?.filter) return {}
  const { filters, before, dropExcluded } = requested.filter
  // The filters that this request replaces become former filters, unless they are pending and their plan has not begun:
  // nothing was changed for them then.
  const former = pending?.begun === false ? pending.before : [...(pending?.before ?? []), before]
  return { filters, filterChange: { before: former, dropExcluded, begun: false } }
}

function bothScopes(one: ConvergenceScope, other: ConvergenceScope): ConvergenceScope {
  return one === 'all' || other === 'all' ? 'all' : [...new Set([...one, ...other])].sort()
}
