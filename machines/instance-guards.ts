import type { InstanceContext } from './instance-context.ts'
import type { SyncCommand, WorkerReport } from './protocol.ts'

/** The input of a guard of the instance machine. */
interface GuardInput {
  context: InstanceContext
  event: SyncCommand | WorkerReport
}

/**
 * The conditions of the instance machine's transitions. A name with `Sync` is a condition on the state of the sync as a
 * whole, as this instance last read it, or compares that state with what this instance knows (`own`). The other guards
 * read only what this instance knows.
 */
export const instanceGuards = {
  hasNoConfiguration: ({ context }: GuardInput) => context.configuration === null,
  hasFailed: ({ context }: GuardInput) => context.failure !== null,
  /** `commitRequested` becomes false when the sync is committed. */
  isCommitted: ({ context }: GuardInput) => context.canWrite && !context.commitRequested,
  isDecided: ({ context }: GuardInput) => context.decided,
  /** False after the failure LeaseLost, because this instance no longer works on the sync. */
  isAbortable: ({ context }: GuardInput) =>
    context.commitRequested && !context.decided && !context.canWrite && context.failure?.error !== 'LeaseLost',
  isNotInitialised: ({ context }: GuardInput) => !context.initialised,
  hasReachedCommitTimestamp: ({ context }: GuardInput) => context.reached,
  isPauseRequested: ({ context }: GuardInput) => context.pauseRequested,
  isPauseNotRequested: ({ context }: GuardInput) => !context.pauseRequested,
  isCommitRequested: ({ context }: GuardInput) => context.commitRequested,
  isReversing: ({ context }: GuardInput) => Boolean(context.reversing),
  isMetadataMoved: ({ context }: GuardInput) => context.reversing === 'preparingDestination',
  isInAttempt: ({ context }: GuardInput) => context.attempt > 0,
  isCopyCompleted: ({ context }: GuardInput) => context.copyCompleted,
  isReadyToCommit: ({ context }: GuardInput) =>
    context.copyCompleted && (context.initiallyVerified || context.configuration?.verification.enabled === false),
  /** Another process with the same id has taken over, or another instance has reversed the sync. */
  isLeaseLostFailure: ({ event }: GuardInput) => event.type === 'worker.failed' && event.failure.error === 'LeaseLost',
  areBothDrained: ({ context }: GuardInput) => context.copyDrained && context.eventsDrained,
  isSyncInitialised: ({ context: { sync } }: GuardInput) => sync?.initialised === true,
  /**
   * The new destination of a reversal is prepared. This includes `replanning`, in which all collections are to be
   * converged on it.
   */
  isDestinationPrepared: ({ context: { sync } }: GuardInput): boolean =>
    sync?.initialised === true || sync?.state === 'replanning',
  isDestinationPreparedByConverging: ({ context, event }: GuardInput) =>
    instanceGuards.isDestinationPrepared({ context, event }) && instanceGuards.isSyncConverging({ context, event }),
  isSyncCommitted: ({ context: { sync } }: GuardInput) => sync?.committed === true,
  /** The commit is decided, or users can write on the destination, and this instance does not know it yet. */
  isSyncAhead: ({ context: { sync, decided, canWrite } }: GuardInput) =>
    sync !== null && ((sync.decided && !decided) || (sync.canWrite && !canWrite)),
  /** The commit in which this instance takes part was aborted. */
  isSyncAborted: ({ context: { sync, ...own } }: GuardInput) =>
    sync !== null && sync.aborts > own.abortsBefore && own.commitRequested && !own.decided && !own.canWrite,
  /**
   * A convergence was requested for which this instance has not discarded its progress. The convergence may already be
   * planned, for instance because this instance was not running.
   */
  isSyncConverging: ({ context: { sync, ...own } }: GuardInput): boolean =>
    sync !== null && sync.convergences > own.convergences && !own.decided && !own.canWrite,
  isSyncAtAnotherAttempt: ({ context: { sync, ...own } }: GuardInput) =>
    sync !== null && own.attempt > 0 && sync.attempt !== own.attempt && !own.decided && !own.canWrite,
  isSyncCommitting: ({ context: { sync } }: GuardInput) => sync?.underWay === true,
  /**
   * The commit timestamp is taken, and this instance has not joined an attempt of this commit yet. Equal numbers of
   * aborts mean that the stored commit is the one that this instance takes part in.
   */
  hasNewCommitTimestamp: ({ context: { sync, ...own } }: GuardInput) =>
    sync !== null &&
    sync.commitTimestamp !== null &&
    sync.attempt > 0 &&
    own.attempt === 0 &&
    sync.aborts === own.abortsBefore,
}
