import { assign, fromCallback, fromPromise, sendTo, setup } from 'xstate'
import { toFailure } from '../src/domain/errors.ts'
import type { PublicState } from '../src/domain/progress.ts'
import { collectionCopyMachine } from './collection-copy.ts'
import { eventApplicationMachine } from './event-application.ts'
import {
  commitAborted,
  commitDecided,
  commitJoined,
  commitReset,
  commitTimestampTaken,
  completed,
  convergenceStarted,
  type DeadlineInput,
  type FollowInput,
  freshContext,
  type InstanceContext,
  reversedContext,
  syncObserved,
  type WithConfiguration,
  withConfiguration,
} from './instance-context.ts'
import { instanceGuards } from './instance-guards.ts'
import { commitDeadline, configured, failing, hold, holdAgainMS, syncFollower, undo } from './instance-work.ts'
import { placeholder, type SyncCommand, type WorkerOrder, type WorkerReport } from './protocol.ts'
import { verificationMachine } from './verification.ts'

/**
 * One instance. It follows the state of the sync as a whole (machines/sync.ts), which `sync.observed` reports.
 *
 * idle          The clusters are connected and nothing is stored. `sync.start` (validated before it is sent) begins a
 *               sync.
 * syncing       The sync follower and the verification run as long as this state lasts.
 *   joining       The instance waits until the coordinator has initialised the sync, or has prepared collections to be
 *                 converged again.
 *   replicating   Collection copy and event application run in parallel as long as this state lasts, so that no
 *                 transition between its substates can stop them:
 *     copying       Segments are copied, and events are applied in parallel.
 *     hashing       Every document has been copied once. A commit would have to wait for the verifier's first pass.
 *     applying      A commit would succeed soon. The instance joins a commit that the other instances carry out.
 *     draining      A pause was requested. Both workers finish the work under way, store their positions and report
 *                   that. Leaving `replicating` earlier would abandon their work, because XState does not await an
 *                   invoked actor that it stops.
 *     committing    This instance takes part in the commit, and applies events up to the commit timestamp.
 *   finishing     This instance has applied every event up to the commit timestamp and gives its partitions back. The
 *                 coordinator completes the remaining steps (`awaiting`). Once the commit is decided, it can only be
 *                 completed (`handedOver`).
 * paused        Lasts until `sync.resume`, also across restarts. The instance runs only the actor `undo`, or `hold` when
 *               it may have lost its lease. The instance fails if another process with its id takes the lease.
 * committed     The sync in this direction is complete. The instance stores its final state, then gives its lease back.
 * reversing     Source and destination swap roles.
 *   moving        The metadata moves to the new destination. The old metadata is valid until the move is acknowledged.
 *   preparingDestination
 *                 The coordinator prepares the new destination. If the change streams do not provide all changes since
 *                 the commit, all collections are converged. The instance then waits in `joining` until the coordinator
 *                 has prepared that.
 * failed        The operator must act. Metadata is kept, and `sync.resume` continues the sync or its reversal. If a
 *               commit failed before it was decided, any instance may abort it (`watching`), and RUNNING follows.
 *
 * When collections are to be converged again, the instance leaves `replicating`, so that nothing is copied, applied or
 * verified while the coordinator prepares the convergence. It joins again afterwards. An instance that was paused or
 * did not run during the preparation joins again when it continues.
 *
 * If an instance is evicted (`lease.evicted`) in `syncing` or `reversing`, it enters that state again, and new workers
 * start from the stored progress. An instance whose commit attempt is no longer the current attempt of the sync also
 * enters `syncing` again. A requested pause survives both. In `paused`, `committed` and `failed`, an evicted instance
 * only takes a lease again (`holding`). In `paused` and `failed`, it retries until it has a lease (`waiting` is the pause
 * between two attempts), because it may be the only instance left that can undo an aborted commit.
 *
 * The context survives a crash. `booting` and the `choosing` states derive from it where to continue, and every step
 * after them can be repeated.
 */
export const instanceMachine = setup({
  types: {
    context: {} as InstanceContext,
    events: {} as SyncCommand | WorkerReport,
    input: {} as InstanceContext | null,
    tags: {} as PublicState | 'canCommit',
  },
  actors: {
    collectionCopy: collectionCopyMachine,
    eventApplication: eventApplicationMachine,
    verification: verificationMachine,
    syncFollower: fromCallback<WorkerOrder, FollowInput>(placeholder('syncFollower')),
    commitDeadline: fromCallback<WorkerOrder, DeadlineInput>(placeholder('commitDeadline')),
    metadataMove: fromPromise<void, WithConfiguration>(placeholder('metadataMove')),
    /** See `undo` in instance-work.ts. */
    undo: fromCallback<WorkerOrder, WithConfiguration>(placeholder('undo')),
    /** Takes the lease again in states in which nothing else does. */
    hold: fromPromise<void, WithConfiguration>(placeholder('hold')),
    /** Gives the lease back once the final state is stored. */
    leave: fromPromise<void, WithConfiguration>(placeholder('leave')),
  },
  delays: { holdAgain: holdAgainMS },
  guards: instanceGuards,
  actions: {
    rememberFailure: assign({
      failure: ({ event }) => {
        if (event.type === 'worker.failed') return event.failure
        return toFailure((event as unknown as { error: unknown }).error, event.type.split('.').at(-1))
      },
    }),
    clearFailure: assign({ failure: null }),
    requestPause: assign({ pauseRequested: true, copyDrained: false, eventsDrained: false }),
    clearPause: assign({ pauseRequested: false }),
    drainCopy: sendTo('collectionCopy', { type: 'worker.drain' }),
    drainEvents: sendTo('eventApplication', { type: 'worker.drain' }),
    drainToCommitTimestamp: sendTo('eventApplication', ({ context }) => ({
      type: 'worker.drainTo',
      commitTimestamp: context.commitTimestamp ?? '',
    })),
    observe: assign(({ context, event }) => (event.type === 'sync.observed' ? syncObserved(context, event.sync) : {})),
    /** Called when the instance stops following the sync, because the last view would be out of date. */
    clearSync: assign({ sync: null }),
    resetCommit: assign(({ context }) => commitReset(context)),
    abortCommit: assign(({ context }) => commitAborted(context)),
    applyDecision: assign(({ context }) => commitDecided(context)),
    beginConvergence: assign(({ context }) => convergenceStarted(context)),
    endReversal: assign({ reversing: null }),
    joinCommit: assign(({ context }) => commitJoined(context)),
    takeCommitTimestamp: assign(({ context }) => commitTimestampTaken(context)),
  },
}).createMachine({
  id: 'instance',
  context: ({ input }) => (input ? commitReset(completed(input)) : freshContext),
  initial: 'booting',
  // `sync.limit` is accepted in every state, because limits change how fast the workers run and not what they do.
  on: { 'sync.limit': { actions: assign({ limits: ({ event }) => event.limits }) } },
  states: {
    booting: {
      always: [
        { guard: 'hasNoConfiguration', target: 'idle' },
        { guard: 'hasFailed', target: 'failed' },
        { guard: 'isPauseRequested', target: 'paused' },
        { guard: 'isReversing', target: 'reversing' },
        { guard: 'isCommitted', target: 'committed' },
        { target: 'syncing' },
      ],
    },
    idle: {
      tags: 'IDLE',
      on: {
        'sync.start': {
          target: 'syncing',
          actions: assign({ configuration: ({ event }) => event.configuration }),
        },
      },
    },
    syncing: {
      initial: 'choosing',
      invoke: [
        syncFollower,
        {
          id: 'verification',
          src: 'verification',
          input: ({ context }) => withConfiguration(context).configuration.verification,
          onError: failing,
        },
      ],
      on: {
        'worker.failed': failing,
        'sync.observed': { actions: 'observe' },
        // This report may arrive before this instance's own copy ends, if the instance joined after the verifier's
        // first pass or had lost its connection.
        'verification.initiallyVerified': { actions: assign({ initiallyVerified: true }) },
        'verification.restarted': { actions: assign({ initiallyVerified: false }) },
        'lease.evicted': { target: 'syncing', reenter: true, actions: 'resetCommit' },
      },
      always: [
        {
          guard: 'isSyncCommitted',
          target: 'committed',
          actions: ['applyDecision', assign({ commitRequested: false })],
        },
        { guard: 'isSyncAhead', target: '.finishing', actions: 'applyDecision' },
        { guard: 'isSyncAborted', target: 'syncing', reenter: true, actions: 'abortCommit' },
        { guard: 'isSyncConverging', target: 'syncing', reenter: true, actions: 'beginConvergence' },
        { guard: 'isSyncAtAnotherAttempt', target: 'syncing', reenter: true, actions: 'resetCommit' },
      ],
      states: {
        choosing: {
          always: [
            { guard: 'isNotInitialised', target: 'joining' },
            { guard: 'hasReachedCommitTimestamp', target: 'finishing' },
            { target: 'replicating' },
          ],
        },
        joining: {
          tags: 'RUNNING',
          on: { 'sync.pause': { guard: 'isPauseNotRequested', actions: 'requestPause' } },
          always: { guard: 'isSyncInitialised', target: 'joined', actions: assign({ initialised: true }) },
        },
        joined: {
          tags: 'RUNNING',
          always: [{ guard: 'isPauseRequested', target: '#instance.paused' }, { target: 'choosing' }],
        },
        replicating: {
          invoke: [
            { id: 'collectionCopy', src: 'collectionCopy', onError: failing },
            { id: 'eventApplication', src: 'eventApplication', onError: failing },
          ],
          initial: 'choosing',
          states: {
            choosing: {
              always: [
                // An instance that starts again while it drains has two new workers, which must drain too.
                { guard: 'isPauseRequested', target: 'draining' },
                { guard: 'isCommitRequested', target: 'committing' },
                { guard: 'isReadyToCommit', target: 'applying' },
                { guard: 'isCopyCompleted', target: 'hashing' },
                { target: 'copying' },
              ],
            },
            copying: {
              tags: 'RUNNING',
              on: {
                'copy.completed': { target: 'choosing', actions: assign({ copyCompleted: true }) },
                'sync.pause': 'draining',
              },
            },
            hashing: {
              tags: 'RUNNING',
              on: {
                'verification.initiallyVerified': { target: 'applying', actions: assign({ initiallyVerified: true }) },
                'sync.pause': 'draining',
              },
            },
            applying: {
              tags: ['RUNNING', 'canCommit'],
              always: { guard: 'isSyncCommitting', target: 'committing', actions: 'joinCommit' },
              on: {
                'sync.pause': 'draining',
                'sync.commit': {
                  target: 'committing',
                  actions: assign({
                    commitRequested: true,
                    commitAborted: false,
                    abortsBefore: ({ event }) => event.abortsBefore,
                    commitUntil: ({ event }) => event.commitUntil,
                    dryRun: ({ event }) => event.dryRun,
                  }),
                },
                'verification.restarted': { target: 'choosing', actions: assign({ initiallyVerified: false }) },
              },
            },
            draining: {
              tags: 'RUNNING',
              entry: ['requestPause', 'drainCopy', 'drainEvents'],
              on: {
                'copy.completed': { actions: assign({ copyCompleted: true, copyDrained: true }) },
                'copy.drained': { actions: assign({ copyDrained: true }) },
                'events.drained': { actions: assign({ eventsDrained: true }) },
              },
              // Goes to `holding`, because this instance may have lost its lease. Opening the replication would take
              // the lease again, but a pause does not wait until the replication is open.
              always: { guard: 'areBothDrained', target: '#instance.paused.holding' },
            },
            committing: {
              tags: 'COMMITTING',
              invoke: commitDeadline,
              always: { guard: 'hasNewCommitTimestamp', actions: ['takeCommitTimestamp', 'drainToCommitTimestamp'] },
              on: {
                'sync.abort': { guard: 'isAbortable', actions: assign({}) },
                'events.reached': {
                  guard: 'isInAttempt',
                  target: '#instance.syncing.finishing',
                  actions: assign({ reached: true }),
                },
              },
            },
          },
        },
        finishing: {
          tags: 'COMMITTING',
          initial: 'choosing',
          states: {
            choosing: { always: [{ guard: 'isDecided', target: 'handedOver' }, { target: 'awaiting' }] },
            awaiting: {
              invoke: commitDeadline,
              on: { 'sync.abort': { guard: 'isAbortable', actions: assign({}) } },
            },
            handedOver: {},
          },
        },
      },
    },
    paused: {
      tags: 'PAUSED',
      entry: 'clearSync',
      initial: 'resting',
      on: {
        'sync.resume': { target: 'syncing', actions: 'clearPause' },
        'worker.failed': { guard: 'isLeaseLostFailure', target: 'failed', actions: 'rememberFailure' },
        'lease.evicted': '.holding',
      },
      states: {
        resting: { invoke: undo },
        holding: {
          invoke: { ...hold, onDone: 'resting', onError: 'waiting' },
        },
        waiting: { after: { holdAgain: 'holding' } },
      },
    },
    committed: {
      tags: 'COMMITTED',
      entry: 'clearSync',
      initial: 'leaving',
      on: { 'sync.reverse': { target: 'reversing', actions: assign({ reversing: 'moving' }) } },
      states: {
        leaving: {
          invoke: { id: 'leave', src: 'leave', input: configured, onDone: 'left', onError: 'left' },
          on: { 'lease.evicted': 'holding' },
        },
        // The lease is taken again, because the instance may still have to store its final state.
        holding: {
          invoke: { ...hold, onDone: 'leaving', onError: 'leaving' },
          on: { 'lease.evicted': { target: 'holding', reenter: true } },
        },
        left: {},
      },
    },
    reversing: {
      tags: 'REVERSING',
      initial: 'choosing',
      on: {
        'worker.failed': failing,
        'sync.observed': { actions: 'observe' },
        'lease.evicted': { target: 'reversing', reenter: true, actions: 'clearSync' },
      },
      states: {
        choosing: {
          always: [{ guard: 'isMetadataMoved', target: 'preparingDestination' }, { target: 'moving' }],
        },
        moving: {
          invoke: {
            id: 'metadataMove',
            src: 'metadataMove',
            input: configured,
            onDone: { target: 'preparingDestination', actions: assign(({ context }) => reversedContext(context)) },
            onError: failing,
          },
        },
        preparingDestination: {
          invoke: syncFollower,
          always: [
            {
              guard: 'isDestinationPreparedByConverging',
              target: '#instance.syncing',
              actions: ['endReversal', 'beginConvergence'],
            },
            { guard: 'isDestinationPrepared', target: '#instance.syncing', actions: 'endReversal' },
          ],
        },
      },
    },
    failed: {
      tags: 'FAILED',
      entry: 'clearSync',
      initial: 'choosing',
      states: {
        choosing: { always: [{ guard: 'isAbortable', target: 'watching' }, { target: 'resting' }] },
        resting: { invoke: undo },
        watching: {
          invoke: [
            { ...syncFollower, input: ({ context }) => ({ ...withConfiguration(context), watching: true }) },
            commitDeadline,
            undo,
          ],
          on: { 'sync.observed': { actions: 'observe' }, 'sync.abort': { guard: 'isAbortable', actions: assign({}) } },
          always: {
            guard: 'isSyncAborted',
            target: '#instance.syncing',
            actions: ['abortCommit', 'clearFailure', 'clearPause'],
          },
        },
        holding: {
          invoke: { ...hold, onDone: 'choosing', onError: 'waiting' },
          on: { 'sync.abort': { guard: 'isAbortable', actions: assign({}) } },
        },
        waiting: {
          after: { holdAgain: 'holding' },
          on: { 'sync.abort': { guard: 'isAbortable', actions: assign({}) } },
        },
      },
      on: {
        // LeaseLost replaces an earlier failure. The process that has taken the lease handles the earlier failure.
        'worker.failed': { guard: 'isLeaseLostFailure', target: '.resting', actions: 'rememberFailure' },
        'lease.evicted': '.holding',
        'sync.resume': [
          {
            guard: 'isReversing',
            target: 'reversing',
            actions: ['clearFailure', 'clearPause'],
          },
          { target: 'syncing', actions: ['resetCommit', 'clearFailure', 'clearPause'] },
        ],
      },
    },
  },
})
