import { assign, setup } from 'xstate'
import { freshSync, type SyncContext, type SyncEvent } from './sync-context.ts'

/**
 * The coordinator's work in a state, until the machine leaves the state. Every step may be repeated from its beginning.
 */
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
 * One sync as a whole, shared by all instances. Its snapshot is stored on the destination. Each event is one
 * conditional write of the snapshot, so exactly one of several competing events takes effect. The coordinator does the
 * step of the current state (`meta.step`) and reports; every instance follows the state.
 *
 * initialising  The coordinator blocks writes on the destination, creates the collections and stores the first
 *               positions.
 * replicating   All instances copy and apply changes.
 * committing    A commit is under way that can still fail or be aborted.
 *   gathering     The coordinator waits until every instance has received the commit. Changes are applied.
 *   takingPoint   Writes on the source are blocked if requested, and the commit timestamp is taken. Changes are
 *                 applied.
 *   applying      Every instance applies all changes up to the commit timestamp and then gives its partitions back.
 *   preparing     The coordinator restores deferred options on the destination.
 *   verifying     The coordinator verifies that both clusters are equal.
 *   deciding      The coordinator checks the source once more; its next report is the decision. A new coordinator has
 *                 to verify again, because the verdict is valid only in the term in which it was issued.
 * undoing       The commit was aborted: the source is unblocked, and the restored options are deferred again.
 * restoring     The coordinator starts the commit again, or a failed commit is retried: the options are deferred again,
 *               but the source stays blocked.
 * failed        The commit failed before it was decided. Nothing is done until it is retried or aborted.
 * decided       The commit can only be completed, in this term or a later one.
 *   opening       The coordinator enables user writes on the destination.
 *   converting    Users write on the destination, and the indexes are converted to their final form.
 * committed     The end of this direction.
 * reversing     Source and destination swap roles. `moving` is stored on the former destination, `adapting` on the new
 *               one.
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
    isTerms: ({ context, event }) => 'attempt' in event && event.term === context.term,
    isAttempts: ({ context, event }) =>
      'attempt' in event && event.term === context.term && event.attempt === context.attempt,
    isDecision: ({ context, event }) =>
      event.type === 'commit.decided' &&
      event.term === context.term &&
      event.attempt === context.attempt &&
      context.request?.dryRun !== true,
    isThisCommit: ({ context, event }) => event.type === 'commit.aborted' && event.abortsBefore === context.aborts,
    /** A commit may be requested while the last one is still being undone. */
    isNotAsked: ({ context, event }) =>
      event.type === 'commit.requested' && event.abortsBefore === context.aborts && context.request === null,
    isAsked: ({ context, event }) => event.type === 'commit.requested' && event.abortsBefore === context.aborts,
    /** Compares `aborts`, because an abort requires more to be undone than a failed attempt does. */
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
      // Without a request, a release that did not store requests began the commit.
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
            // Ignored: the attempt has not begun anything that would have to be undone.
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
