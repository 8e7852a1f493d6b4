import { assign, fromCallback, fromPromise, sendTo, setup } from 'xstate'
import { toFailure } from '../src/domain/errors.ts'
import type { PublicState } from '../src/domain/progress.ts'
import {
  commitAborted,
  commitAnew,
  commitDecided,
  commitJoined,
  completed,
  type DeadlineInput,
  type FollowInput,
  freshContext,
  type InstanceContext,
  turnedContext,
  type WithConfiguration,
  withConfiguration,
} from './instance-context.ts'
import type { SyncCommand, WorkerOrder, WorkerReport } from './protocol.ts'

/** Work that machines only name: compose.ts provides the real thing. */
const placeholder = (name: string) => (): never => {
  throw new Error(`actor ${name} is not provided`)
}

/**
 * An attempt to take the lease is itself made of many, longer and longer apart, for 30 minutes; it ends at once only by an error that
 * does not pass by itself. As long as a lease lasts.
 */
const holdAgainMS = 10_000

const failing = { target: '#instance.failed', actions: 'rememberFailure' } as const

/** Beside every part of a commit that can still be aborted: aborts it for all when its time is over. */
const commitDeadline = {
  id: 'commitDeadline',
  src: 'commitDeadline',
  input: ({ context }: { context: InstanceContext }) => context,
  onError: failing,
} as const

/** Reports the state of the sync as a whole and does the coordinator's part in it. */
const syncFollower = {
  id: 'syncFollower',
  src: 'syncFollower',
  input: ({ context }: { context: InstanceContext }) => ({ ...withConfiguration(context), watching: false }),
  onError: failing,
} as const

/** Users wait for the source until an aborted commit is undone, also where all instances rest. */
const undo = {
  id: 'undo',
  src: 'undo',
  input: ({ context }: { context: InstanceContext }) => withConfiguration(context),
} as const

/**
 * One instance, and its part in the sync (machines/sync.ts), which it follows (`sync.seen`).
 *
 * idle          Connected, nothing stored. `sync.start` (validated before it is sent) begins.
 * syncing       The follower of the sync and the verification run for as long as this lasts:
 *   joining       until the coordinator has initialised the sync
 *   replicating   collection copy and event application run beside each other for as long as this state lasts, so that
 *                 nothing below it stops them by accident:
 *     copying       segments are being copied, events applied meanwhile
 *     hashing       every document has been copied once; a commit would have to wait for the verifier's first pass
 *     applying      a commit would succeed, and soon. A commit that the others are at is joined
 *     draining      a pause: both workers finish what is under way, store their position and say so. Leaving
 *                   `replicating` before that would abandon them half-way (an invoked actor that is stopped is not awaited)
 *     committing    this instance has got the commit. Once there is a commit point, events are applied up to it
 *   finishing     every event up to the commit point is applied here, and the partitions are given back: the coordinator does
 *                 the rest (`awaiting`); once the commit is decided it only goes forward (`handedOver`)
 * paused        Until `sync.resume`. Survives restarts. Nothing is under way that could fail but the undoing of an aborted commit,
 *               which is tried again; another process with the same id may take the lease: then nothing can be resumed here
 * committed     The end of this direction: what the instance has come to is stored, then its lease is given back.
 * reversing     Source and destination change places:
 *   moving        what is stored moves to the new destination; the old one counts until that is acknowledged
 *   adapting      until the coordinator has made the new destination fit for it
 * failed        Needs the operator. Metadata is kept; `sync.resume` goes back to where it was. A commit that failed before it was
 *               decided may be aborted (`watching`), by any instance, and leads back to RUNNING then
 *
 * An instance whose lease was buried (`lease.buried`) begins anew from what is stored, and so does one whose attempt to commit is
 * over while the sync is at another. Where nothing is under way it only makes itself known again (`holding`), and tries until it has its
 * lease (`waiting` lies between two attempts): it may be the only one that is left to undo an aborted commit. A pause that was asked for
 * outlasts both.
 *
 * What survives a crash is the context: `booting` and the `choosing` states find from it where to go on, and every
 * step there can be repeated.
 */
export const instanceMachine = setup({
  types: {
    context: {} as InstanceContext,
    events: {} as SyncCommand | WorkerReport,
    input: {} as InstanceContext | null,
    tags: {} as PublicState | 'canCommit',
  },
  actors: {
    collectionCopy: fromCallback<WorkerOrder, WithConfiguration>(placeholder('collectionCopy')),
    eventApplication: fromCallback<WorkerOrder, WithConfiguration>(placeholder('eventApplication')),
    verification: fromCallback<WorkerOrder, WithConfiguration>(placeholder('verification')),
    syncFollower: fromCallback<WorkerOrder, FollowInput>(placeholder('syncFollower')),
    commitDeadline: fromCallback<WorkerOrder, DeadlineInput>(placeholder('commitDeadline')),
    metadataMove: fromPromise<void, WithConfiguration>(placeholder('metadataMove')),
    /** Undoes an aborted commit where no instance is at work. */
    undo: fromCallback<WorkerOrder, WithConfiguration>(placeholder('undo')),
    /** Takes the lease again where nothing else would. */
    hold: fromPromise<void, WithConfiguration>(placeholder('hold')),
    /** Gives the lease back once the end is stored. */
    leave: fromPromise<void, WithConfiguration>(placeholder('leave')),
  },
  delays: { holdAgain: holdAgainMS },
  guards: {
    wasIdle: ({ context }) => context.configuration === null,
    hasFailed: ({ context }) => context.failure !== null,
    isCommitted: ({ context }) => context.canWrite && !context.commitRequested,
    isDecided: ({ context }) => context.decided,
    isAbortable: ({ context }) =>
      context.commitRequested && !context.decided && !context.canWrite && context.failure?.error !== 'LeaseLost',
    notInitialised: ({ context }) => !context.initialised,
    isReached: ({ context }) => context.reached,
    isPauseRequested: ({ context }) => context.pauseRequested,
    isPauseNew: ({ context }) => !context.pauseRequested,
    isCommitRequested: ({ context }) => context.commitRequested,
    isReversing: ({ context }) => Boolean(context.reversing),
    isMoved: ({ context }) => context.reversing === 'adapting',
    isAtPoint: ({ context }) => context.attempt > 0,
    isCopyCompleted: ({ context }) => context.copyCompleted,
    isReadyToCommit: ({ context }) =>
      context.copyCompleted && (context.hashed || context.configuration?.verification.enabled === false),
    isTakenOver: ({ event }) => event.type === 'worker.failed' && event.failure.error === 'LeaseLost',
    bothDrained: ({ context }) => context.copyDrained && context.eventsDrained,
    isSyncInitialised: ({ context: { sync } }) => sync?.initialised === true,
    isSyncCommitted: ({ context: { sync } }) => sync?.committed === true,
    isSyncAhead: ({ context: { sync, decided, canWrite } }) =>
      sync !== null && ((sync.decided && !decided) || (sync.canWrite && !canWrite)),
    isSyncAborted: ({ context: { sync, ...own } }) =>
      sync !== null && sync.aborts > own.abortsBefore && own.commitRequested && !own.decided && !own.canWrite,
    isSyncAtAnother: ({ context: { sync, ...own } }) =>
      sync !== null && own.attempt > 0 && sync.attempt !== own.attempt && !own.decided && !own.canWrite,
    isSyncCommitting: ({ context: { sync } }) => sync?.underWay === true,
    hasNewPoint: ({ context: { sync, ...own } }) =>
      sync !== null &&
      sync.commitPoint !== null &&
      sync.attempt > 0 &&
      own.attempt === 0 &&
      sync.aborts === own.abortsBefore,
  },
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
    drainToPoint: sendTo('eventApplication', ({ context }) => ({
      type: 'worker.drainTo',
      commitPoint: context.commitPoint ?? '',
    })),
    /** What was read earlier may arrive later. */
    see: assign({
      sync: ({ context: { sync }, event }) =>
        event.type === 'sync.seen' && event.sync.revision >= (sync?.revision ?? 0) ? event.sync : sync,
    }),
    /** It is not followed where nothing is under way. */
    forgetSync: assign({ sync: null }),
    beginAnew: assign(({ context }) => commitAnew(context)),
    giveUpCommit: assign(({ context }) => commitAborted(context)),
    goForward: assign(({ context }) => commitDecided(context)),
    joinCommit: assign(({ context }) => commitJoined(context)),
    takePoint: assign(({ context: { sync } }) => ({
      attempt: sync?.attempt ?? 0,
      commitPoint: sync?.commitPoint ?? null,
    })),
  },
}).createMachine({
  id: 'instance',
  context: ({ input }) => (input ? commitAnew(completed(input)) : freshContext),
  initial: 'booting',
  // In every state: it changes how fast the workers are, not what they do.
  on: { 'sync.limit': { actions: assign({ limits: ({ event }) => event.limits }) } },
  states: {
    booting: {
      always: [
        { guard: 'wasIdle', target: 'idle' },
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
          input: ({ context }) => withConfiguration(context),
          onError: failing,
        },
      ],
      on: {
        'worker.failed': failing,
        'sync.seen': { actions: 'see' },
        // Of an instance that joins later than the first pass ended, or was cut off, others may have told before its own copy ends.
        'verification.hashed': { actions: assign({ hashed: true }) },
        'verification.restarted': { actions: assign({ hashed: false }) },
        'lease.buried': { target: 'syncing', reenter: true, actions: 'beginAnew' },
      },
      always: [
        {
          guard: 'isSyncCommitted',
          target: 'committed',
          actions: ['goForward', assign({ commitRequested: false })],
        },
        { guard: 'isSyncAhead', target: '.finishing', actions: 'goForward' },
        { guard: 'isSyncAborted', target: 'syncing', reenter: true, actions: 'giveUpCommit' },
        { guard: 'isSyncAtAnother', target: 'syncing', reenter: true, actions: 'beginAnew' },
      ],
      states: {
        choosing: {
          always: [
            { guard: 'notInitialised', target: 'joining' },
            { guard: 'isReached', target: 'finishing' },
            { target: 'replicating' },
          ],
        },
        joining: {
          tags: 'RUNNING',
          on: { 'sync.pause': { guard: 'isPauseNew', actions: 'requestPause' } },
          always: { guard: 'isSyncInitialised', target: 'joined', actions: assign({ initialised: true }) },
        },
        joined: {
          tags: 'RUNNING',
          always: [{ guard: 'isPauseRequested', target: '#instance.paused' }, { target: 'choosing' }],
        },
        replicating: {
          invoke: [
            {
              id: 'collectionCopy',
              src: 'collectionCopy',
              input: ({ context }) => withConfiguration(context),
              onError: failing,
            },
            {
              id: 'eventApplication',
              src: 'eventApplication',
              input: ({ context }) => withConfiguration(context),
              onError: failing,
            },
          ],
          initial: 'choosing',
          states: {
            choosing: {
              always: [
                // Of an instance that begins anew while it drains: both workers are others now.
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
                'verification.hashed': { target: 'applying', actions: assign({ hashed: true }) },
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
                'verification.restarted': { target: 'choosing', actions: assign({ hashed: false }) },
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
              always: { guard: 'bothDrained', target: '#instance.paused' },
            },
            committing: {
              tags: 'COMMITTING',
              invoke: commitDeadline,
              always: { guard: 'hasNewPoint', actions: ['takePoint', 'drainToPoint'] },
              on: {
                'sync.abort': { guard: 'isAbortable', actions: assign({}) },
                'events.reached': {
                  guard: 'isAtPoint',
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
      entry: 'forgetSync',
      initial: 'resting',
      on: {
        'sync.resume': { target: 'syncing', actions: 'clearPause' },
        'worker.failed': { guard: 'isTakenOver', target: 'failed', actions: 'rememberFailure' },
        'lease.buried': '.holding',
      },
      states: {
        resting: { invoke: undo },
        holding: {
          invoke: {
            id: 'hold',
            src: 'hold',
            input: ({ context }) => withConfiguration(context),
            onDone: 'resting',
            onError: 'waiting',
          },
        },
        waiting: { after: { holdAgain: 'holding' } },
      },
    },
    committed: {
      tags: 'COMMITTED',
      entry: 'forgetSync',
      initial: 'leaving',
      on: { 'sync.reverse': { target: 'reversing', actions: assign({ reversing: 'moving' }) } },
      states: {
        leaving: {
          invoke: {
            id: 'leave',
            src: 'leave',
            input: ({ context }) => withConfiguration(context),
            onDone: 'left',
            onError: 'left',
          },
          on: { 'lease.buried': 'holding' },
        },
        // It may have to store yet what it has come to.
        holding: {
          invoke: {
            id: 'hold',
            src: 'hold',
            input: ({ context }) => withConfiguration(context),
            onDone: 'leaving',
            onError: 'leaving',
          },
          on: { 'lease.buried': { target: 'holding', reenter: true } },
        },
        left: {},
      },
    },
    reversing: {
      tags: 'REVERSING',
      initial: 'choosing',
      on: {
        'worker.failed': failing,
        'sync.seen': { actions: 'see' },
        'lease.buried': { target: 'reversing', reenter: true, actions: 'forgetSync' },
      },
      states: {
        choosing: {
          always: [{ guard: 'isMoved', target: 'adapting' }, { target: 'moving' }],
        },
        moving: {
          invoke: {
            id: 'metadataMove',
            src: 'metadataMove',
            input: ({ context }) => withConfiguration(context),
            onDone: { target: 'adapting', actions: assign(({ context }) => turnedContext(context)) },
            onError: failing,
          },
        },
        adapting: {
          invoke: syncFollower,
          always: { guard: 'isSyncInitialised', target: '#instance.syncing', actions: assign({ reversing: null }) },
        },
      },
    },
    failed: {
      tags: 'FAILED',
      entry: 'forgetSync',
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
          on: { 'sync.seen': { actions: 'see' }, 'sync.abort': { guard: 'isAbortable', actions: assign({}) } },
          always: {
            guard: 'isSyncAborted',
            target: '#instance.syncing',
            actions: ['giveUpCommit', 'clearFailure', 'clearPause'],
          },
        },
        holding: {
          invoke: {
            id: 'hold',
            src: 'hold',
            input: ({ context }) => withConfiguration(context),
            onDone: 'choosing',
            onError: 'waiting',
          },
          on: { 'sync.abort': { guard: 'isAbortable', actions: assign({}) } },
        },
        waiting: {
          after: { holdAgain: 'holding' },
          on: { 'sync.abort': { guard: 'isAbortable', actions: assign({}) } },
        },
      },
      on: {
        // Whatever it failed with before: that is the other process's to mend.
        'worker.failed': { guard: 'isTakenOver', target: '.resting', actions: 'rememberFailure' },
        'lease.buried': '.holding',
        'sync.resume': [
          {
            guard: 'isReversing',
            target: 'reversing',
            actions: ['clearFailure', 'clearPause'],
          },
          { target: 'syncing', actions: ['beginAnew', 'clearFailure', 'clearPause'] },
        ],
      },
    },
  },
})
