import { assign, fromCallback, fromPromise, sendParent, setup } from 'xstate'
import type { Failure } from '../src/domain/errors.ts'
import { closing, failureReport, firstError, hasFailed } from './closing.ts'
import { placeholder, type ReplicationReport, type WorkerOrder } from './protocol.ts'

/** A segment that this instance has claimed. */
export interface ClaimedSegment {
  /** Unique among all segments of a run. */
  id: string
  /** UUID of the collection on the source. */
  collection: string
}

export interface CopyContext {
  /** How many segments may be copied at a time. */
  segmentsAtOnce: number
  /** Claimed segments whose copy has not begun. */
  claimed: ClaimedSegment[]
  /** Identifiers of the segments that are being copied. Each is also the id of the child that copies it. */
  underWay: string[]
  /** At least one segment was copied since the machine last entered `copying`. */
  copiedSome: boolean
  /** The error that ended the copy; null until then. A copy that is stopped ends with a StoppedError. */
  error: unknown
}

export type SegmentReport =
  /**
   * A batch was acknowledged, or a segment was taken over with the bytes that its former owner had copied. `bytes` is
   * negative when the copy of a segment begins again.
   */
  | { type: 'segment.progressed'; collection: string; bytes: number }
  | { type: 'segment.copied'; id: string }
  /** The collection of the segment no longer exists on the source. */
  | { type: 'segment.dropped'; id: string }
  | { type: 'segment.failed'; id: string; error: unknown }

export type CopyEvent = WorkerOrder | ReplicationReport | SegmentReport | { type: 'limits.changed'; atOnce: number }

/** Delay between two surveys while other instances copy the remaining segments, ms. */
const pollMS = 200

const stopWithError = { target: '#collectionCopy.stopping', actions: 'rememberError' } as const

const copySetup = setup({
  types: {
    context: {} as CopyContext,
    events: {} as CopyEvent,
  },
  actors: {
    /**
     * Opens the replication, the components that the copy and event application share (src/session/replication.ts), and
     * keeps it open as long as the machine runs. Reports the limits when the replication is open and whenever they
     * change. Stopping this actor stops all work.
     */
    replication: fromCallback<WorkerOrder>(placeholder('replication')),
    begin: fromPromise<void>(placeholder('begin')),
    /** Resolves with true when nothing is left to copy. */
    survey: fromPromise<boolean>(placeholder('survey')),
    plan: fromPromise<void>(placeholder('plan')),
    claim: fromPromise<ClaimedSegment[]>(placeholder('claim')),
    /** Copies one segment. */
    segment: fromCallback<WorkerOrder, ClaimedSegment>(placeholder('segment')),
    endCopies: fromPromise<void>(placeholder('endCopies')),
    finish: fromPromise<void>(placeholder('finish')),
    /**
     * Stops all work. Resolves when the work has ended and its progress is stored: with the failure to report, or with
     * null when the work was only stopped.
     */
    close: fromPromise<Failure | null, { error: unknown }>(placeholder('close')),
  },
  guards: {
    isSurveyedComplete: ({ event }) => (event as unknown as { output: boolean }).output,
    isClaimed: ({ event }) => (event as unknown as { output: ClaimedSegment[] }).output.length > 0,
    isNoneUnderWay: ({ context }) => context.underWay.length === 0,
    isOutOfSegments: ({ context }) => context.claimed.length === 0 && context.underWay.length < context.segmentsAtOnce,
    isSomeCopied: ({ context }) => context.copiedSome,
    hasFailed,
  },
  actions: {
    /** Adds the bytes to the progress of the collection. */
    recordProgress: placeholder('recordProgress'),
    rememberError: assign({ error: firstError }),
    takeLimits: assign(({ event }) => (event.type === 'limits.changed' ? { segmentsAtOnce: event.atOnce } : {})),
    reportCompleted: sendParent({ type: 'copy.completed' }),
    reportDrained: sendParent({ type: 'copy.drained' }),
    reportFailed: sendParent(failureReport),
  },
  delays: { poll: pollMS },
})

/** Starts copying as many claimed segments as the limits allow. */
const startSegments = copySetup.enqueueActions(({ context, enqueue }) => {
  const free = Math.max(0, context.segmentsAtOnce - context.underWay.length)
  const starting = context.claimed.slice(0, free)
  for (const segment of starting) enqueue.spawnChild('segment', { id: segment.id, input: segment })
  enqueue.assign({
    claimed: context.claimed.slice(free),
    underWay: [...context.underWay, ...starting.map(({ id }) => id)],
  })
})

const endSegment = copySetup.enqueueActions(({ context, event, enqueue }) => {
  if (event.type !== 'segment.copied' && event.type !== 'segment.dropped') return
  enqueue.stopChild(event.id)
  enqueue.assign({ underWay: context.underWay.filter((id) => id !== event.id) })
})

const segmentCopied = [endSegment, copySetup.assign({ copiedSome: true })]

/**
 * This instance's share of the collection copy. It runs as long as the instance replicates. A child actor copies each
 * segment and reports each acknowledged batch. The machine is drained only when all children have ended.
 *
 * opening     The machine waits until this instance's previous replication has ended and changes may be applied. If a
 *             failed or restarted commit has restored deferred options, such as `prepareUnique`, they are deferred
 *             again first. A pause does not wait for any of this.
 * beginning   Segments that this instance claimed before a pause, in the same lease term, are released.
 * surveying   The machine reads from the stored state whether any collection is not copied yet.
 * planning    If this instance coordinates, it splits collections into segments.
 * copying     Segments are claimed and copied.
 *   claiming    A few segments are claimed. Segments under way continue.
 *   busy        As many segments are under way as the limits allow.
 *   emptying    Nothing is left to claim. The segments under way are copied to the end.
 * ending      The instance ends the copy of each collection whose segments are all copied, no matter which instances
 *             copied them.
 * waiting     Other instances copy the remaining segments.
 * finishing   Everything is copied. The last progress is stored.
 * completed   Nothing is left to do.
 * draining    A pause was requested. Work under way ends, and its progress is stored. Stopping the machine instead
 *             would abandon that work.
 * drained     Nothing is under way.
 * stopping    The copy has failed, or was stopped. Work under way ends.
 * stopped     The copy was stopped. The instance is about to leave the state in which it copies.
 * failed      The failure is reported.
 */
export const collectionCopyMachine = copySetup.createMachine({
  id: 'collectionCopy',
  context: { segmentsAtOnce: 0, claimed: [], underWay: [], copiedSome: false, error: null },
  initial: 'opening',
  invoke: { id: 'replication', src: 'replication' },
  on: {
    'segment.progressed': { actions: 'recordProgress' },
    'limits.changed': { actions: 'takeLimits' },
  },
  states: {
    opening: {
      on: {
        'replication.opened': 'beginning',
        'replication.failed': stopWithError,
        // A failed commit may keep the replication closed for a long time, and a pause must not wait for that.
        'worker.drain': 'drained',
      },
    },
    beginning: {
      invoke: { id: 'begin', src: 'begin', onDone: 'surveying', onError: stopWithError },
      on: { 'worker.drain': 'draining' },
    },
    surveying: {
      invoke: {
        id: 'survey',
        src: 'survey',
        onDone: [{ guard: 'isSurveyedComplete', target: 'finishing' }, { target: 'planning' }],
        onError: stopWithError,
      },
      on: { 'worker.drain': 'draining' },
    },
    planning: {
      invoke: { id: 'plan', src: 'plan', onDone: 'copying', onError: stopWithError },
      on: { 'worker.drain': 'draining' },
    },
    copying: {
      initial: 'claiming',
      entry: assign({ copiedSome: false }),
      on: {
        'segment.copied': { actions: segmentCopied },
        'segment.dropped': { actions: endSegment },
        'segment.failed': stopWithError,
        'worker.drain': 'draining',
      },
      states: {
        claiming: {
          invoke: {
            id: 'claim',
            src: 'claim',
            onDone: [
              { guard: 'isClaimed', target: 'busy', actions: assign({ claimed: ({ event }) => event.output }) },
              { target: 'emptying' },
            ],
            onError: stopWithError,
          },
        },
        busy: {
          entry: startSegments,
          on: {
            'segment.copied': { actions: [...segmentCopied, startSegments] },
            'segment.dropped': { actions: [endSegment, startSegments] },
            'limits.changed': { actions: ['takeLimits', startSegments] },
          },
          always: { guard: 'isOutOfSegments', target: 'claiming' },
        },
        emptying: { always: { guard: 'isNoneUnderWay', target: '#collectionCopy.ending' } },
      },
    },
    ending: {
      invoke: {
        id: 'endCopies',
        src: 'endCopies',
        onDone: [{ guard: 'isSomeCopied', target: 'surveying' }, { target: 'waiting' }],
        onError: stopWithError,
      },
      on: { 'worker.drain': 'draining' },
    },
    waiting: { after: { poll: 'surveying' }, on: { 'worker.drain': 'draining' } },
    finishing: {
      invoke: { id: 'finish', src: 'finish', onDone: 'completed', onError: stopWithError },
    },
    completed: {
      entry: 'reportCompleted',
      on: { 'worker.drain': { actions: 'reportDrained' } },
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
