import type { InstanceContext } from './instance-context.ts'
import type { SyncCommand, WorkerReport } from './protocol.ts'

/** The input of a guard of the instance machine. */
interface GuardInput {
  context: InstanceContext
  event: SyncCommand | WorkerReport
}

/** The conditions of the instance machine's transitions. */
export const instanceGuards = {
  wasIdle: ({ context }: GuardInput) => context.configuration === null,
  hasFailed: ({ context }: GuardInput) => context.failure !== null,
  isCommitted: ({ context }: GuardInput) => context.canWrite && !context.commitRequested,
  isDecided: ({ context }: GuardInput) => context.decided,
  isAbortable: ({ context }: GuardInput) =>
    context.commitRequested && !context.decided && !context.canWrite && context.failure?.error !== 'LeaseLost',
  notInitialised: ({ context }: GuardInput) => !context.initialised,
  hasReachedCommitTimestamp: ({ context }: GuardInput) => context.reached,
  isPauseRequested: ({ context }: GuardInput) => context.pauseRequested,
  isPauseNew: ({ context }: GuardInput) => !context.pauseRequested,
  isCommitRequested: ({ context }: GuardInput) => context.commitRequested,
  isReversing: ({ context }: GuardInput) => Boolean(context.reversing),
  isMetadataMoved: ({ context }: GuardInput) => context.reversing === 'preparingDestination',
  isInAttempt: ({ context }: GuardInput) => context.attempt > 0,
  isCopyCompleted: ({ context }: GuardInput) => context.copyCompleted,
  isReadyToCommit: ({ context }: GuardInput) =>
    context.copyCompleted && (context.initiallyVerified || context.configuration?.verification.enabled === false),
  isTakenOver: ({ event }: GuardInput) => event.type === 'worker.failed' && event.failure.error === 'LeaseLost',
  bothDrained: ({ context }: GuardInput) => context.copyDrained && context.eventsDrained,
  isSyncInitialised: ({ context: { sync } }: GuardInput) => sync?.initialised === true,
  isDestinationPrepared: ({ context: { sync } }: GuardInput): boolean =>
    sync?.initialised === true || sync?.state === 'replanning',
  isDestinationPreparedByConverging: ({ context, event }: GuardInput) =>
    instanceGuards.isDestinationPrepared({ context, event }) && instanceGuards.isSyncConverging({ context, event }),
  isSyncCommitted: ({ context: { sync } }: GuardInput) => sync?.committed === true,
  isSyncAhead: ({ context: { sync, decided, canWrite } }: GuardInput) =>
    sync !== null && ((sync.decided && !decided) || (sync.canWrite && !canWrite)),
  isSyncAborted: ({ context: { sync, ...own } }: GuardInput) =>
    sync !== null && sync.aborts > own.abortsBefore && own.commitRequested && !own.decided && !own.canWrite,
  /** Also true for an instance that missed the planning of the convergence, for instance because it was not running. */
  isSyncConverging: ({ context: { sync, ...own } }: GuardInput): boolean =>
    sync !== null && sync.convergences > own.convergences && !own.decided && !own.canWrite,
  isSyncAtAnotherAttempt: ({ context: { sync, ...own } }: GuardInput) =>
    sync !== null && own.attempt > 0 && sync.attempt !== own.attempt && !own.decided && !own.canWrite,
  isSyncCommitting: ({ context: { sync } }: GuardInput) => sync?.underWay === true,
  hasNewCommitTimestamp: ({ context: { sync, ...own } }: GuardInput) =>
    sync !== null &&
    sync.commitTimestamp !== null &&
    sync.attempt > 0 &&
    own.attempt === 0 &&
    sync.aborts === own.abortsBefore,
}
