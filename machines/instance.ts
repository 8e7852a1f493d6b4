import { assign, fromCallback, fromPromise, sendTo, setup } from 'xstate'
import { turnConfiguration } from '../src/domain/direction.ts'
import { assert, type Failure, toFailure } from '../src/domain/errors.ts'
import type { PublicState } from '../src/domain/progress.ts'
import type { StartConfiguration } from '../src/domain/start-request.ts'
import type { SyncCommand, WorkerOrder, WorkerReport } from './protocol.ts'

/**
 * One sync instance.
 *
 * idle          Connected, nothing stored. `sync.start` (validated before it is sent) begins.
 * initialising  Start position taken, destination blocked, collections created. May be repeated from its beginning.
 * replicating   Collection copy and event application run beside each other for as long as this state lasts, so that
 *               nothing below it stops them by accident:
 *   copying       segments are being copied, events applied meanwhile
 *   applying      every document has been copied once; a commit would succeed
 *   draining      a pause: both workers finish what is under way, store their position and say so. Leaving
 *                 `replicating` before that would abandon them half-way (an invoked actor that is stopped is not awaited)
 *   committing    source blocked if asked for, commit point taken; events are applied up to it. A commit that failed or
 *                 died before `canWrite` takes a new point: the source may have been written meanwhile
 * finishing     Nothing runs beside it: traits restored, destination unblocked, then (`canWrite`) unique indexes.
 * paused        Until `sync.resume`. Survives restarts.
 * committed     The end of this direction.
 * reversing     Source and destination change places:
 *   moving        what is stored moves to the new destination; the old one counts until that is acknowledged
 *   adapting      the new destination is made fit for it: blocked, traits held back, definitions followed
 * failed        Needs the operator. Metadata is kept; `sync.resume` goes back to where it was.
 *
 * What survives a crash is the context: `booting` and the `choosing` states find from it where to go on, and every
 * step there can be repeated.
 */
export interface InstanceContext {
  configuration: StartConfiguration | null
  initialised: boolean
  copyCompleted: boolean
  commitRequested: boolean
  /** Every event up to the commit point is applied. */
  reached: boolean
  canWrite: boolean
  failure: Failure | null
  copyDrained: boolean
  eventsDrained: boolean
  pauseRequested: boolean
  /** Which step of a reversal is under way. */
  reversing: 'moving' | 'adapting' | null
}

const freshContext: InstanceContext = {
  configuration: null,
  initialised: false,
  copyCompleted: false,
  commitRequested: false,
  reached: false,
  canWrite: false,
  failure: null,
  copyDrained: false,
  eventsDrained: false,
  pauseRequested: false,
  reversing: null,
}

type WithConfiguration = { configuration: StartConfiguration }
type ReplicationInput = WithConfiguration & { commitBegun: boolean }

/** Work that machines only name: compose.ts provides the real thing. */
const placeholder = (name: string) => (): never => {
  throw new Error(`actor ${name} is not provided`)
}

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
    commitPoint: fromPromise<string, WithConfiguration>(placeholder('commitPoint')),
    preparation: fromPromise<void, WithConfiguration>(placeholder('preparation')),
    indexConversion: fromPromise<void, WithConfiguration>(placeholder('indexConversion')),
    metadataMove: fromPromise<void, WithConfiguration>(placeholder('metadataMove')),
    adaptation: fromPromise<void, WithConfiguration>(placeholder('adaptation')),
  },
  guards: {
    wasIdle: ({ context }) => context.configuration === null,
    notInitialised: ({ context }) => !context.initialised,
    isReached: ({ context }) => context.reached,
    isPauseRequested: ({ context }) => context.pauseRequested,
    isCommitRequested: ({ context }) => context.commitRequested,
    isReversing: ({ context }) => Boolean(context.reversing),
    isCopyCompleted: ({ context }) => context.copyCompleted,
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
  context: ({ input }) => (input ? commitAnew(input) : freshContext),
  initial: 'booting',
  states: {
    booting: {
      always: [
        { guard: 'wasIdle', target: 'idle' },
        { guard: ({ context }) => context.failure !== null, target: 'failed' },
        { guard: 'isPauseRequested', target: 'paused' },
        { guard: 'isReversing', target: 'reversing' },
        { guard: ({ context }) => context.canWrite && !context.commitRequested, target: 'committed' },
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
      on: { 'worker.failed': { target: 'failed', actions: 'rememberFailure' } },
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
          on: { 'sync.pause': { actions: 'requestPause' } },
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
              input: ({ context }) => ({ ...withConfiguration(context), commitBegun: context.commitRequested }),
              onError: { target: '#instance.failed', actions: 'rememberFailure' },
            },
            {
              id: 'eventApplication',
              src: 'eventApplication',
              input: ({ context }) => ({ ...withConfiguration(context), commitBegun: context.commitRequested }),
              onError: { target: '#instance.failed', actions: 'rememberFailure' },
            },
          ],
          initial: 'choosing',
          states: {
            choosing: {
              always: [
                { guard: 'isCommitRequested', target: 'committing' },
                { guard: 'isCopyCompleted', target: 'applying' },
                { target: 'copying' },
              ],
            },
            copying: {
              tags: 'RUNNING',
              on: {
                'copy.completed': { target: 'applying', actions: assign({ copyCompleted: true }) },
                'sync.pause': 'draining',
              },
            },
            applying: {
              tags: ['RUNNING', 'canCommit'],
              on: {
                'sync.pause': 'draining',
                'sync.commit': { target: 'committing', actions: assign({ commitRequested: true }) },
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
              invoke: {
                id: 'commitPoint',
                src: 'commitPoint',
                input: ({ context }) => withConfiguration(context),
                onDone: {
                  actions: sendTo('eventApplication', ({ event }) => ({
                    type: 'worker.drainTo' as const,
                    commitPoint: event.output,
                  })),
                },
                onError: { target: '#instance.failed', actions: 'rememberFailure' },
              },
              on: {
                'events.reached': { target: '#instance.syncing.finishing', actions: assign({ reached: true }) },
              },
            },
          },
        },
        finishing: {
          tags: 'COMMITTING',
          initial: 'choosing',
          states: {
            choosing: {
              // Once writes are allowed on the destination, nothing there may be made equal to the source again.
              always: [{ guard: ({ context }) => context.canWrite, target: 'converting' }, { target: 'preparing' }],
            },
            preparing: {
              invoke: {
                id: 'preparation',
                src: 'preparation',
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
      on: { 'sync.resume': { target: 'syncing', actions: 'clearPause' } },
    },
    committed: {
      tags: 'COMMITTED',
      on: { 'sync.reverse': { target: 'reversing', actions: assign({ reversing: 'moving' }) } },
    },
    reversing: {
      tags: 'REVERSING',
      initial: 'choosing',
      on: { 'worker.failed': { target: 'failed', actions: 'rememberFailure' } },
      states: {
        choosing: {
          always: [
            { guard: ({ context }) => context.reversing === 'adapting', target: 'adapting' },
            { target: 'moving' },
          ],
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
      on: {
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

/** What a commit had reached counts no more, unless writes are allowed on the destination already. */
function commitAnew(context: InstanceContext): InstanceContext {
  return context.canWrite ? context : { ...context, reached: false }
}

/** What is stored of a committed sync, the other way round: everything is copied, nothing is committed. */
export function turnedContext(context: InstanceContext): InstanceContext {
  const { configuration } = withConfiguration(context)
  return {
    ...freshContext,
    configuration: turnConfiguration(configuration),
    initialised: true,
    copyCompleted: true,
    reversing: 'adapting',
  }
}

function withConfiguration(context: InstanceContext): WithConfiguration {
  assert(context.configuration, 'a sync without configuration')
  return { configuration: context.configuration }
}
