import { assign, setup } from 'xstate'
import { freshSync, type SyncContext, type SyncEvent } from './sync-context.ts'

/** What the coordinator does in a state, until the machine leaves it; each may be repeated from its beginning. */
export type SyncStep =
  | 'initialise'
  | 'gather'
  | 'takePoint'
  | 'applyAll'
  | 'prepare'
  | 'verify'
  | 'decide'
  | 'open'
  | 'convert'
  | 'undo'
  | 'adapt'

/**
 * One sync, whichever instances take part in it. Its snapshot is stored on the destination; each event is one conditional write of
 * it, so of events that compete exactly one takes effect. The coordinator does what the state names (`meta.step`) and reports;
 * every instance follows the state.
 *
 * initialising  The coordinator blocks the destination, creates the collections and stores the first positions.
 * replicating   All instances copy and apply changes.
 * committing    A commit is under way that can still fail or be aborted:
 *   gathering     until every instance has got the commit; changes are applied
 *   takingPoint   the source is blocked if asked for, the commit point taken; changes are applied
 *   applying      until every instance has applied all changes up to the commit point and gives back its partitions
 *   preparing     deferred options are restored on the destination
 *   verifying     both clusters are proved equal
 *   deciding      the source is checked once more; the next event is the decision. In another coordinator's term the verdict
 *                 counts no more
 * undoing       The commit was aborted: the source is unblocked, and what was prepared is deferred again.
 * restoring     The coordinator begins anew, or the commit that failed is tried again: the same, but the source stays blocked.
 * failed        The commit has failed before it was decided; nothing is done until it is tried again or aborted.
 * decided       Only forward from here on, in whichever term:
 *   opening       users' writes are allowed on the destination
 *   converting    users write there; the indexes are given their final form
 * committed     The end of this direction.
 * reversing     Source and destination change places. `moving` is stored on the former destination, `adapting` on the new one.
 *
 * Tags: `applicable` where changes may be applied, `decided` from the decision on, `canWrite` where users can write on the destination.
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
    isTerms: ({ context, event }) => 'attempt' in event && event.term === context.term,
    isAttempts: ({ context, event }) =>
      'attempt' in event && event.term === context.term && event.attempt === context.attempt,
    isDecision: ({ context, event }) =>
      event.type === 'commit.decided' &&
      event.term === context.term &&
      event.attempt === context.attempt &&
      context.request?.dryRun !== true,
    isThisCommit: ({ context, event }) => event.type === 'commit.aborted' && event.abortsBefore === context.aborts,
    /** A commit may be asked for while the last one is undone. */
    isNotAsked: ({ context, event }) =>
      event.type === 'commit.requested' && event.abortsBefore === context.aborts && context.request === null,
    isAsked: ({ context, event }) => event.type === 'commit.requested' && event.abortsBefore === context.aborts,
    /** What was undone for an attempt that failed is not all that an abort wants undone. */
    isUndone: ({ context, event }) =>
      event.type === 'commit.undone' &&
      event.term === context.term &&
      event.attempt === context.attempt &&
      event.aborts === context.aborts,
    isUndoneAndAskedAgain: ({ context, event }) =>
      event.type === 'commit.undone' &&
      event.term === context.term &&
      event.attempt === context.attempt &&
      event.aborts === context.aborts &&
      context.request !== null,
    isNextCommit: ({ context, event }) =>
      event.type === 'commit.aborted' && event.abortsBefore === context.aborts && context.request !== null,
    isReplaced: ({ context, event }) =>
      event.type === 'commit.requested' &&
      event.abortsBefore === context.aborts &&
      // A release that stored no request had begun the commit.
      (context.request === null || event.replaces === context.request.at),
    mayBeOpen: ({ context }) => context.mayBeOpen,
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
      commitPoint: null,
      failure: null,
      mayBeOpen: false,
    })),
    takePoint: assign(({ event }) => (event.type === 'commit.pointTaken' ? { commitPoint: event.commitPoint } : {})),
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
    clearFailure: assign({ failure: null, mayBeOpen: false }),
    takeLateWrites: assign(({ event }) => (event.type === 'lateWrites.found' ? { lateWrites: event.lateWrites } : {})),
  },
}).createMachine({
  id: 'sync',
  context: ({ input }) => ({ ...freshSync, ...input }),
  initial: 'initialising',
  on: {
    'coordinator.elected': { guard: 'isNewTerm', actions: 'takeTerm' },
    'verification.hashed': { guard: 'isTerms', actions: assign({ hashed: true }) },
    'verification.restarted': { guard: 'isTerms', actions: assign({ hashed: false }) },
  },
  states: {
    initialising: {
      meta: { step: 'initialise' },
      on: { initialised: { guard: 'isTerms', target: 'replicating' } },
    },
    replicating: {
      tags: 'applicable',
      on: { 'commit.requested': { guard: 'isAsked', target: 'committing', actions: ['takeRequest', 'beginAttempt'] } },
    },
    committing: {
      initial: 'gathering',
      on: {
        'commit.aborted': { guard: 'isThisCommit', target: 'undoing', actions: 'abort' },
        'commit.renewed': { guard: 'isAttempts', target: 'restoring' },
        'commit.failed': { guard: 'isAttempts', target: 'failed', actions: 'fail' },
        'reversal.noted': { guard: 'isTerms', actions: assign({ writesHeld: true }) },
      },
      states: {
        gathering: {
          tags: 'applicable',
          meta: { step: 'gather' },
          on: {
            'commit.requested': { guard: 'isReplaced', actions: 'takeRequest' },
            'commit.gathered': { guard: 'isAttempts', target: 'takingPoint' },
            // Nothing of it is begun.
            'commit.renewed': {},
          },
        },
        takingPoint: {
          tags: 'applicable',
          meta: { step: 'takePoint' },
          on: { 'commit.pointTaken': { guard: 'isAttempts', target: 'applying', actions: 'takePoint' } },
        },
        applying: {
          tags: 'applicable',
          meta: { step: 'applyAll' },
          on: { 'commit.applied': { guard: 'isAttempts', target: 'preparing' } },
        },
        preparing: {
          meta: { step: 'prepare' },
          on: { 'commit.prepared': { guard: 'isAttempts', target: 'verifying' } },
        },
        verifying: {
          meta: { step: 'verify' },
          on: {
            'commit.verified': { guard: 'isAttempts', target: 'deciding' },
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
          { guard: 'isUndoneAndAskedAgain', target: 'committing', actions: 'beginAttempt' },
          { guard: 'isUndone', target: 'replicating' },
        ],
        'commit.requested': { guard: 'isNotAsked', actions: 'takeRequest' },
        'commit.aborted': { guard: 'isNextCommit', actions: 'abort' },
      },
    },
    restoring: {
      meta: { step: 'undo' },
      on: {
        'commit.undone': { guard: 'isUndone', target: 'committing', actions: 'beginAttempt' },
        'commit.aborted': { guard: 'isThisCommit', target: 'undoing', actions: 'abort' },
        'commit.failed': { guard: 'isAttempts', target: 'failed', actions: 'fail' },
      },
    },
    failed: {
      on: {
        'commit.renewed': { guard: 'isTerms', target: 'restoring', actions: 'clearFailure' },
        'commit.aborted': { guard: 'isThisCommit', target: 'undoing', actions: 'abort' },
      },
    },
    decided: {
      tags: 'decided',
      initial: 'opening',
      on: {
        'commit.failed': { guard: 'isAttempts', actions: 'fail' },
        'lateWrites.found': { guard: 'isTerms', actions: 'takeLateWrites' },
      },
      states: {
        opening: {
          meta: { step: 'open' },
          on: { 'commit.opened': { guard: 'isTerms', target: 'converting', actions: 'clearFailure' } },
        },
        converting: {
          tags: 'canWrite',
          meta: { step: 'convert' },
          on: { 'commit.converted': { guard: 'isTerms', target: '#sync.committed', actions: 'clearFailure' } },
        },
      },
    },
    committed: {
      tags: ['decided', 'canWrite'],
      on: { 'reversal.begun': { guard: 'isTerms', target: 'reversing' } },
    },
    reversing: {
      initial: 'moving',
      states: {
        moving: { tags: ['decided', 'canWrite'] },
        adapting: {
          meta: { step: 'adapt' },
          on: { 'reversal.adapted': { guard: 'isTerms', target: '#sync.replicating' } },
        },
      },
    },
  },
})
