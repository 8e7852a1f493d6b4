import type { InstanceContext } from './instance-context.ts'
import type { SyncCommand, WorkerReport } from './protocol.ts'

/** What a guard of the instance machine decides by. */
interface Seen {
  context: InstanceContext
  event: SyncCommand | WorkerReport
}

/** The conditions of the instance machine's transitions. */
export const instanceGuards = {
  wasIdle: ({ context }: Seen) => context.configuration === null,
  hasFailed: ({ context }: Seen) => context.failure !== null,
  isCommitted: ({ context }: Seen) => context.canWrite && !context.commitRequested,
  isDecided: ({ context }: Seen) => context.decided,
  isAbortable: ({ context }: Seen) =>
    context.commitRequested && !context.decided && !context.canWrite && context.failure?.error !== 'LeaseLost',
  notInitialised: ({ context }: Seen) => !context.initialised,
  isReached: ({ context }: Seen) => context.reached,
  isPauseRequested: ({ context }: Seen) => context.pauseRequested,
  isPauseNew: ({ context }: Seen) => !context.pauseRequested,
  isCommitRequested: ({ context }: Seen) => context.commitRequested,
  isReversing: ({ context }: Seen) => Boolean(context.reversing),
  isMoved: ({ context }: Seen) => context.reversing === 'adapting',
  isAtPoint: ({ context }: Seen) => context.attempt > 0,
  isCopyCompleted: ({ context }: Seen) => context.copyCompleted,
  isReadyToCommit: ({ context }: Seen) =>
    context.copyCompleted && (context.hashed || context.configuration?.verification.enabled === false),
  isTakenOver: ({ event }: Seen) => event.type === 'worker.failed' && event.failure.error === 'LeaseLost',
  bothDrained: ({ context }: Seen) => context.copyDrained && context.eventsDrained,
  isSyncInitialised: ({ context: { sync } }: Seen) => sync?.initialised === true,
  isSyncCommitted: ({ context: { sync } }: Seen) => sync?.committed === true,
  isSyncAhead: ({ context: { sync, decided, canWrite } }: Seen) =>
    sync !== null && ((sync.decided && !decided) || (sync.canWrite && !canWrite)),
  isSyncAborted: ({ context: { sync, ...own } }: Seen) =>
    sync !== null && sync.aborts > own.abortsBefore && own.commitRequested && !own.decided && !own.canWrite,
  isSyncAtAnother: ({ context: { sync, ...own } }: Seen) =>
    sync !== null && own.attempt > 0 && sync.attempt !== own.attempt && !own.decided && !own.canWrite,
  isSyncCommitting: ({ context: { sync } }: Seen) => sync?.underWay === true,
  hasNewPoint: ({ context: { sync, ...own } }: Seen) =>
    sync !== null &&
    sync.commitPoint !== null &&
    sync.attempt > 0 &&
    own.attempt === 0 &&
    sync.aborts === own.abortsBefore,
}
