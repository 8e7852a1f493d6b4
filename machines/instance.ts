import { assign, fromCallback, fromPromise, sendTo, setup } from 'xstate'
import { toFailure } from '../src/domain/errors.ts'
import type { PublicState } from '../src/domain/progress.ts'
import {
  type CommitInput,
  type CommitWatchInput,
  commitAborted,
  commitAnew,
  commitPassed,
  completed,
  freshContext,
  type InstanceContext,
  type ReplicationInput,
  turnedContext,
  type VerdictInput,
  type WithConfiguration,
  withCommit,
  withCommitPoint,
  withConfiguration,
} from './instance-context.ts'
import type { SyncCommand, WorkerOrder, WorkerReport } from './protocol.ts'

/** Work that machines only name: compose.ts provides the real thing. */
const placeholder = (name: string) => (): never => {
  throw new Error(`actor ${name} is not provided`)
}

/** Beside every step of a commit that can still be aborted: reports an abort, and aborts when the commit's time is over. */
const commitWatch = {
  id: 'commitWatch',
  src: 'commitWatch',
  input: ({ context }: { context: InstanceContext }) => withCommit(context),
  onError: { target: '#instance.failed', actions: 'rememberFailure' },
} as const

/**
 * One sync instance.
 *
 * idle          Connected, nothing stored. `sync.start` (validated before it is sent) begins.
 * initialising  Start position taken, destination blocked, collections created. May be repeated from its beginning.
 * replicating   Collection copy and event application run beside each other for as long as this state lasts, so that
 *               nothing below it stops them by accident:
 *   copying       segments are being copied, events applied meanwhile
 *   hashing       every document has been copied once; a commit would have to wait for the verifier's first pass
 *   applying      a commit would succeed, and soon
 *   draining      a pause: both workers finish what is under way, store their position and say so. Leaving
 *                 `replicating` before that would abandon them half-way (an invoked actor that is stopped is not awaited)
 *   committing    source blocked if asked for, commit point taken; events are applied up to it. A commit that failed or
 *                 died before it was decided takes a new point: the source may have been written meanwhile
 * finishing     Every event is applied: traits are restored (`preparing`), both clusters are proved equal (`verifying`), the
 *               source is checked for late writes and the decision is stored (`deciding`), the destination is unblocked
 *               (`opening`), then (`canWrite`) unique indexes are converted (`converting`). Until it is decided the commit can be
 *               aborted (`commit.aborted`), which leads back to replicating; a rehearsal is aborted in any case. From the stored
 *               decision on it only goes forward
 * paused        Until `sync.resume`. Survives restarts. Nothing is under way that could fail, but another process with the
 *               same id may take the lease: then nothing can be resumed here
 * committed     The end of this direction.
 * reversing     Source and destination change places:
 *   moving        what is stored moves to the new destination; the old one counts until that is acknowledged
 *   adapting      the new destination is made fit for it: blocked, traits held back, definitions followed
 * failed        Needs the operator. Metadata is kept; `sync.resume` goes back to where it was.
 *
 * The verification runs for as long as `syncing` lasts; it waits for the copy by itself.
 *
 * Of several instances each has its own machine; what is done once for all (initialisation, the commit's steps) is done by the
 * coordinator's, and the others' actors wait for it. An instance whose lease was buried (`lease.buried`) begins anew from what
 * is stored, and one whose coordinator has begun another attempt to commit (`commit.renewed`) joins that. A pause that was asked
 * for outlasts both.
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
    initialisation: fromPromise<void, WithConfiguration>(placeholder('initialisation')),
    collectionCopy: fromCallback<WorkerOrder, ReplicationInput>(placeholder('collectionCopy')),
    eventApplication: fromCallback<WorkerOrder, ReplicationInput>(placeholder('eventApplication')),
    verification: fromCallback<WorkerOrder, WithConfiguration>(placeholder('verification')),
    commitWatch: fromCallback<WorkerOrder, CommitWatchInput>(placeholder('commitWatch')),
    commitPoint: fromPromise<string, CommitInput>(placeholder('commitPoint')),
    preparation: fromPromise<void, CommitInput>(placeholder('preparation')),
    verdict: fromPromise<void, VerdictInput>(placeholder('verdict')),
    decision: fromPromise<void, VerdictInput>(placeholder('decision')),
    opening: fromPromise<void, WithConfiguration>(placeholder('opening')),
    indexConversion: fromPromise<void, WithConfiguration>(placeholder('indexConversion')),
    metadataMove: fromPromise<void, WithConfiguration>(placeholder('metadataMove')),
    adaptation: fromPromise<void, WithConfiguration>(placeholder('adaptation')),
  },
  guards: {
    wasIdle: ({ context }) => context.configuration === null,
    hasFailed: ({ context }) => context.failure !== null,
    isCommitted: ({ context }) => context.canWrite && !context.commitRequested,
    canWrite: ({ context }) => context.canWrite,
    isDecided: ({ context }) => context.decided,
    isUndecided: ({ context }) => !context.decided && !context.canWrite,
    isAbortOfThisCommit: ({ context, event }) =>
      event.type === 'commit.aborted' &&
      event.abortsBefore === context.abortsBefore &&
      context.commitRequested &&
      !context.decided &&
      !context.canWrite,
    isAbortable: ({ context }) =>
      context.commitRequested && !context.decided && !context.canWrite && context.failure?.error !== 'LeaseLost',
    notInitialised: ({ context }) => !context.initialised,
    isReached: ({ context }) => context.reached,
    isPauseRequested: ({ context }) => context.pauseRequested,
    isPauseNew: ({ context }) => !context.pauseRequested,
    isCommitRequested: ({ context }) => context.commitRequested,
    isReversing: ({ context }) => Boolean(context.reversing),
    isMoved: ({ context }) => context.reversing === 'adapting',
    hasCommitPoint: ({ context }) => context.commitPoint !== null,
    isCopyCompleted: ({ context }) => context.copyCompleted,
    isReadyToCommit: ({ context }) =>
      context.copyCompleted && (context.hashed || context.configuration?.verification.enabled === false),
    isTakenOver: ({ event }) => event.type === 'worker.failed' && event.failure.error === 'LeaseLost',
    bothDrained: ({ context }) => context.copyDrained && context.eventsDrained,
  },
  actions: {
    rememberFailure: assign({
      failure: ({ event }) => {
        if (event.type === 'worker.failed') return event.failure
        return toFailure((event as unknown as { error: unknown }).error)
      },
    }),
    clearFailure: assign({ failure: null }),
    requestPause: assign({ pauseRequested: true, copyDrained: false, eventsDrained: false }),
    clearPause: assign({ pauseRequested: false }),
    drainCopy: sendTo('collectionCopy', { type: 'worker.drain' }),
    drainEvents: sendTo('eventApplication', { type: 'worker.drain' }),
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
      invoke: {
        id: 'verification',
        src: 'verification',
        input: ({ context }) => withConfiguration(context),
        onError: { target: 'failed', actions: 'rememberFailure' },
      },
      on: {
        'worker.failed': { target: 'failed', actions: 'rememberFailure' },
        // Of an instance that joins later than the first pass ended, or was cut off, others may have told before its own copy ends.
        'verification.hashed': { actions: assign({ hashed: true }) },
        'verification.restarted': { actions: assign({ hashed: false }) },
        'lease.buried': { target: 'syncing', reenter: true, actions: assign(({ context }) => commitAnew(context)) },
        'commit.renewed': { target: 'syncing', reenter: true, actions: assign(({ context }) => commitAnew(context)) },
        'commit.aborted': {
          guard: 'isAbortOfThisCommit',
          target: 'syncing',
          reenter: true,
          actions: assign(({ context }) => commitAborted(context)),
        },
        'commit.passed': {
          guard: 'isUndecided',
          target: '.finishing',
          actions: assign(({ context }) => commitPassed(context)),
        },
      },
      states: {
        choosing: {
          always: [
            { guard: 'notInitialised', target: 'initialising' },
            { guard: 'isReached', target: 'finishing' },
            { target: 'replicating' },
          ],
        },
        initialising: {
          tags: 'RUNNING',
          on: { 'sync.pause': { guard: 'isPauseNew', actions: 'requestPause' } },
          invoke: {
            id: 'initialisation',
            src: 'initialisation',
            input: ({ context }) => withConfiguration(context),
            onDone: [
              { guard: 'isPauseRequested', target: '#instance.paused', actions: assign({ initialised: true }) },
              { target: 'replicating', actions: assign({ initialised: true }) },
            ],
            onError: { target: '#instance.failed', actions: 'rememberFailure' },
          },
        },
        replicating: {
          invoke: [
            {
              id: 'collectionCopy',
              src: 'collectionCopy',
              input: ({ context }) => ({
                ...withConfiguration(context),
                commitBegun: context.commitRequested || context.commitAborted,
              }),
              onError: { target: '#instance.failed', actions: 'rememberFailure' },
            },
            {
              id: 'eventApplication',
              src: 'eventApplication',
              input: ({ context }) => ({
                ...withConfiguration(context),
                commitBegun: context.commitRequested || context.commitAborted,
              }),
              onError: { target: '#instance.failed', actions: 'rememberFailure' },
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
              invoke: [
                commitWatch,
                {
                  id: 'commitPoint',
                  src: 'commitPoint',
                  input: ({ context }) => withCommit(context),
                  onDone: {
                    actions: [
                      assign({ commitPoint: ({ event }) => event.output }),
                      sendTo('eventApplication', ({ event }) => ({
                        type: 'worker.drainTo' as const,
                        commitPoint: event.output,
                      })),
                    ],
                  },
                  onError: { target: '#instance.failed', actions: 'rememberFailure' },
                },
              ],
              on: {
                'events.reached': {
                  guard: 'hasCommitPoint',
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
            choosing: {
              // Once it is decided nothing on the destination may be made equal to the source again.
              always: [
                { guard: 'canWrite', target: 'converting' },
                { guard: 'isDecided', target: 'opening' },
                { target: 'preparing' },
              ],
            },
            preparing: {
              invoke: [
                commitWatch,
                {
                  id: 'preparation',
                  src: 'preparation',
                  input: ({ context }) => withCommit(context),
                  onDone: 'verifying',
                  onError: { target: '#instance.failed', actions: 'rememberFailure' },
                },
              ],
            },
            verifying: {
              invoke: [
                commitWatch,
                {
                  id: 'verdict',
                  src: 'verdict',
                  input: ({ context }) => withCommitPoint(context),
                  onDone: 'deciding',
                  onError: { target: '#instance.failed', actions: 'rememberFailure' },
                },
              ],
            },
            deciding: {
              invoke: [
                commitWatch,
                {
                  id: 'decision',
                  src: 'decision',
                  input: ({ context }) => withCommitPoint(context),
                  onDone: { target: 'opening', actions: assign({ decided: true }) },
                  onError: { target: '#instance.failed', actions: 'rememberFailure' },
                },
              ],
            },
            opening: {
              invoke: {
                id: 'opening',
                src: 'opening',
                input: ({ context }) => withConfiguration(context),
                onDone: { target: 'converting', actions: assign({ canWrite: true }) },
                onError: { target: '#instance.failed', actions: 'rememberFailure' },
              },
            },
            converting: {
              invoke: {
                id: 'indexConversion',
                src: 'indexConversion',
                input: ({ context }) => withConfiguration(context),
                onDone: { target: '#instance.committed', actions: assign({ commitRequested: false }) },
                onError: { target: '#instance.failed', actions: 'rememberFailure' },
              },
            },
          },
        },
      },
    },
    paused: {
      tags: 'PAUSED',
      on: {
        'sync.resume': { target: 'syncing', actions: 'clearPause' },
        'worker.failed': { guard: 'isTakenOver', target: 'failed', actions: 'rememberFailure' },
      },
    },
    committed: {
      tags: 'COMMITTED',
      on: { 'sync.reverse': { target: 'reversing', actions: assign({ reversing: 'moving' }) } },
    },
    reversing: {
      tags: 'REVERSING',
      initial: 'choosing',
      on: {
        'worker.failed': { target: 'failed', actions: 'rememberFailure' },
        'lease.buried': { target: 'reversing', reenter: true },
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
            onError: { target: '#instance.failed', actions: 'rememberFailure' },
          },
        },
        adapting: {
          invoke: {
            id: 'adaptation',
            src: 'adaptation',
            input: ({ context }) => withConfiguration(context),
            onDone: { target: '#instance.syncing', actions: assign({ reversing: null }) },
            onError: { target: '#instance.failed', actions: 'rememberFailure' },
          },
        },
      },
    },
    failed: {
      tags: 'FAILED',
      initial: 'choosing',
      states: {
        choosing: { always: [{ guard: 'isAbortable', target: 'watching' }, { target: 'resting' }] },
        resting: {},
        // A commit that has failed before it was decided may be aborted, also by another instance or by its time limit, and leads
        // back to RUNNING then, where `resume` would commit again.
        watching: {
          invoke: commitWatch,
          on: {
            'commit.aborted': {
              guard: 'isAbortOfThisCommit',
              target: '#instance.syncing',
              actions: [assign(({ context }) => commitAborted(context)), 'clearFailure', 'clearPause'],
            },
          },
        },
      },
      on: {
        // Whatever it failed with before: that is the other process's to mend.
        'worker.failed': { guard: 'isTakenOver', target: '.resting', actions: 'rememberFailure' },
        'sync.resume': [
          { guard: 'isReversing', target: 'reversing', actions: ['clearFailure', 'clearPause'] },
          {
            target: 'syncing',
            actions: [assign(({ context }) => commitAnew(context)), 'clearFailure', 'clearPause'],
          },
        ],
      },
    },
  },
})
