import { assign, fromCallback, fromPromise, sendParent, setup } from 'xstate'
import type { Failure } from '../src/domain/errors.ts'
import { closing, failureReport, firstError, hasFailed } from './closing.ts'
import { placeholder, type ReplicationReport, type WorkerOrder } from './protocol.ts'

export interface EventsContext {
  /** How many partitions this instance applies. */
  owned: number
  /** The commit timestamp up to which events are applied, as decimal digits; null for no end. */
  commitTimestamp: string | null
  /** The error that ended event application; null until then. */
  error: unknown
}

export type EventsEvent =
  | WorkerOrder
  | ReplicationReport
  /**
   * The source has opened the change stream at the stored positions of the owned partitions and has returned a batch. On
   * a sharded source, empty batches from before any shard has read its oplog do not count.
   */
  | { type: 'partitions.answered' }
  /**
   * The owned partitions have changed or have passed the commit timestamp. All events that were read are applied.
   */
  | { type: 'partitions.left' }
  | { type: 'partitions.failed'; error: unknown }

const stopWithError = { target: '#eventApplication.stopping', actions: 'rememberError' } as const

/**
 * Applies the events of the partitions that this instance owns. It runs as long as the instance replicates. The
 * partitions share one change stream, so one child applies all of them. The child is started again when the set of
 * owned partitions changes.
 *
 * opening     The machine waits until this instance's previous replication has ended and the preparation of a commit is
 *             undone. A pause waits for neither.
 * applying    Partitions are claimed and applied. If this instance coordinates, it also does the work at each barrier
 *             (src/coordination/barriers.ts).
 *   claiming    Partitions that other instances are to own are released. The others are claimed with their stored
 *               positions.
 *   owning      Events of the claimed partitions are applied.
 *     starting    The change stream is opened at the earliest position of the partitions.
 *     following   Events are applied as they happen.
 *   passing     This instance applies no events. It checks whether all partitions of all instances have passed the
 *               commit timestamp.
 *   waiting     This instance owns no partition, and waits until ownership changes or a poll interval has passed.
 * draining    All events that were read are applied, and the positions are stored. Stopping the machine instead would
 *             abandon those events.
 * drained     Nothing is under way.
 * stopping    Event application has failed, or was stopped. Work under way ends.
 * stopped     Event application was stopped. The instance is about to leave the state in which it replicates.
 * failed      The failure is reported.
 */
export const eventApplicationMachine = setup({
  types: {
    context: {} as EventsContext,
    events: {} as EventsEvent,
  },
  actors: {
    /**
     * Opens the replication that event application and the copy share, and keeps it open as long as the machine runs.
     * Stopping this actor stops all work.
     */
    replication: fromCallback<EventsEvent>(placeholder('replication')),
    /** Does the coordinator's work at barriers while this instance coordinates. */
    barriers: fromPromise<void>(placeholder('barriers')),
    /** Resolves with the number of partitions that are to be applied. */
    claim: fromPromise<number>(placeholder('claim')),
    /** Applies events until the partitions change, or all events up to the commit timestamp are applied. */
    apply: fromCallback<EventsEvent>(placeholder('apply')),
    /** Resolves with true when all partitions of all instances have passed the commit timestamp. */
    pass: fromPromise<boolean>(placeholder('pass')),
    change: fromPromise<void>(placeholder('change')),
    /**
     * Stops reading and waits until work under way has ended. Resolves with null when all events that were read are
     * applied or the work was only stopped, and with the failure to report when the work has failed.
     */
    close: fromPromise<Failure | null, { error: unknown }>(placeholder('close')),
  },
  guards: {
    isOwner: ({ context }) => context.owned > 0,
    hasPassed: ({ event }) => (event as unknown as { output: boolean }).output,
    hasCommitTimestamp: ({ context }) => context.commitTimestamp !== null,
    hasFailed,
  },
  actions: {
    takeCommitTimestamp: assign(({ event }) =>
      event.type === 'worker.drainTo' ? { commitTimestamp: event.commitTimestamp } : {},
    ),
    /** Makes the work in progress apply events only up to the commit timestamp. */
    limitToCommitTimestamp: placeholder('limitToCommitTimestamp'),
    rememberError: assign({ error: firstError }),
    reportDrained: sendParent(({ context }) => ({
      type: context.commitTimestamp === null ? 'events.drained' : 'events.reached',
    })),
    reportFailed: sendParent(failureReport),
  },
}).createMachine({
  id: 'eventApplication',
  context: { owned: 0, commitTimestamp: null, error: null },
  initial: 'opening',
  invoke: { id: 'replication', src: 'replication' },
  states: {
    opening: {
      on: {
        'replication.opened': 'applying',
        'replication.failed': stopWithError,
        'worker.drainTo': { actions: 'takeCommitTimestamp' },
        // A failed commit may prevent event application for a long time, and a pause must not wait for that.
        'worker.drain': 'drained',
      },
    },
    applying: {
      initial: 'choosing',
      invoke: { id: 'barriers', src: 'barriers', onError: stopWithError },
      on: {
        'worker.drain': 'draining',
        'worker.drainTo': { actions: ['takeCommitTimestamp', 'limitToCommitTimestamp'] },
      },
      states: {
        choosing: {
          always: [
            { guard: 'hasCommitTimestamp', target: 'claiming', actions: 'limitToCommitTimestamp' },
            { target: 'claiming' },
          ],
        },
        claiming: {
          invoke: {
            id: 'claim',
            src: 'claim',
            onDone: { target: 'claimed', actions: assign({ owned: ({ event }) => event.output }) },
            onError: stopWithError,
          },
        },
        claimed: { always: [{ guard: 'isOwner', target: 'owning' }, { target: 'passing' }] },
        owning: {
          initial: 'starting',
          invoke: { id: 'apply', src: 'apply' },
          on: { 'partitions.left': 'passing', 'partitions.failed': stopWithError },
          states: {
            starting: { on: { 'partitions.answered': 'following' } },
            following: {},
          },
        },
        passing: {
          invoke: {
            id: 'pass',
            src: 'pass',
            onDone: [
              { guard: 'hasPassed', target: '#eventApplication.draining' },
              { guard: 'isOwner', target: 'claiming' },
              { target: 'waiting' },
            ],
            onError: stopWithError,
          },
        },
        waiting: { invoke: { id: 'change', src: 'change', onDone: 'claiming', onError: stopWithError } },
      },
    },
    draining: {
      invoke: closing('drained', 'failed'),
    },
    drained: { entry: 'reportDrained' },
    stopping: {
      invoke: closing('stopped', 'failed'),
      on: { 'worker.drain': 'draining' },
    },
    stopped: {},
    failed: {},
  },
})
