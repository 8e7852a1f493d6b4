import { fromCallback, initialTransition, type SnapshotFrom, transition } from 'xstate'
import { instanceMachine } from '../../machines/instance.ts'
import { type InstanceContext, storable } from '../../machines/instance-context.ts'
import type { SyncCommand, WorkerReport } from '../../machines/protocol.ts'
import { pathOf, type SyncView } from '../../machines/sync-view.ts'
import type { StartConfiguration } from '../../src/domain/start-request.ts'

export type InstanceSnapshot = SnapshotFrom<typeof instanceMachine>

/** The event that XState sends to a machine when an invoked actor settles. */
export type Settlement =
  | { type: `xstate.done.actor.${string}`; output: unknown }
  | { type: `xstate.error.actor.${string}`; error: unknown }
/** The event that XState sends to a machine when a delay has passed in a state. */
export type Elapsed = { type: `xstate.after.${string}` }
export type AnyEvent = SyncCommand | WorkerReport | Settlement | Elapsed

export const configuration: StartConfiguration = {
  source: 'cluster0',
  destination: 'cluster1',
  buildIndexes: 'beforeDataCopy',
  enableUserWriteBlocking: 'none',
  writeBlockingGiven: false,
  includeNamespaces: null,
  excludeNamespaces: null,
  reversible: false,
  sharding: null,
  verification: { enabled: false, initialCompareMethod: 'binary' },
  existingData: 'refuse',
  timeseries: 'refuse',
  copyInNaturalOrder: null,
  detectRandomId: true,
  namespaceRemap: null,
}

export const promises = ['metadataMove', 'hold', 'leave'] as const
export const workers = ['collectionCopy', 'eventApplication', 'verification', 'syncFollower', 'commitDeadline'] as const

export const verifying: StartConfiguration = {
  ...configuration,
  verification: { enabled: true, initialCompareMethod: 'binary' },
}

export const failure = { error: 'OplogWindowLost', errorDescription: 'gone' } as const

export const takenOver = { error: 'LeaseLost', errorDescription: 'taken over' } as const

export const commit = { type: 'sync.commit', abortsBefore: 0, commitUntil: null, dryRun: false } as const

const replicating: SyncView = {
  revision: 1,
  state: 'replicating',
  initialised: true,
  convergences: 0,
  attempt: 0,
  aborts: 0,
  underWay: false,
  commitTimestamp: null,
  dryRun: false,
  decided: false,
  canWrite: false,
  committed: false,
  failures: 0,
  failure: null,
}
const decided = { ...replicating, attempt: 1, decided: true }

/** One view of the whole sync for each case that an instance handles differently. */
export const views = {
  initialising: { ...replicating, initialised: false },
  replicating,
  gathering: { ...replicating, attempt: 1 },
  applying: { ...replicating, attempt: 1, underWay: true, commitTimestamp: '7' },
  preparing: { ...replicating, attempt: 1, underWay: true },
  applyingAgain: { ...replicating, attempt: 2, underWay: true, commitTimestamp: '9' },
  aborted: { ...replicating, attempt: 1, aborts: 1 },
  replanning: { ...replicating, state: 'replanning', initialised: false, convergences: 1 },
  converging: { ...replicating, convergences: 1 },
  opening: decided,
  converting: { ...decided, canWrite: true },
  committed: { ...decided, canWrite: true, committed: true },
} satisfies Record<string, SyncView>

export const syncObserved = (name: keyof typeof views): WorkerReport => ({ type: 'sync.observed', sync: views[name] })

export const commands: SyncCommand[] = [
  { type: 'sync.start', configuration },
  { type: 'sync.start', configuration: verifying },
  { type: 'sync.pause' },
  { type: 'sync.resume' },
  commit,
  { type: 'sync.abort' },
  { type: 'sync.reverse' },
]

export const reports: WorkerReport[] = [
  { type: 'copy.completed' },
  { type: 'copy.drained' },
  { type: 'events.drained' },
  { type: 'verification.initiallyVerified' },
  { type: 'verification.restarted' },
  { type: 'events.reached' },
  { type: 'lease.evicted' },
  ...(Object.keys(views) as (keyof typeof views)[]).map(syncObserved),
  { type: 'worker.failed', failure },
  { type: 'worker.failed', failure: takenOver },
]

const unexpectedError = new Error('it failed')

export const settlements: Settlement[] = [
  ...promises.map((id) => ({
    type: `xstate.done.actor.${id}` as const,
    output: undefined,
  })),
  ...[...promises, ...workers].map((id) => ({
    type: `xstate.error.actor.${id}` as const,
    // All events share one error, so that states do not differ only in the text of an error.
    error: unexpectedError,
  })),
]

export const elapsed: Elapsed[] = (['paused', 'failed'] as const).map((rest) => ({
  type: `xstate.after.holdAgain.instance.${rest}.waiting` as const,
}))

/** Replaces the machines of the workers, which have tests of their own. */
const stub = fromCallback(() => {})
const alone = instanceMachine.provide({
  actors: { collectionCopy: stub, eventApplication: stub, verification: stub },
} as never)

export function begin(context: InstanceContext | null = null): InstanceSnapshot {
  return initialTransition(alone, context)[0]
}

/** Performs only the transition: no worker is started, and the machine's actions are dropped. */
export function next(snapshot: InstanceSnapshot, event: AnyEvent): InstanceSnapshot {
  return transition(alone, snapshot, event as SyncCommand)[0]
}

export const stateOf = (snapshot: InstanceSnapshot): string => pathOf(snapshot)

export function running(snapshot: InstanceSnapshot): string[] {
  return Object.keys(snapshot.children).filter((id) => (snapshot.children as Record<string, unknown>)[id] !== undefined)
}

/** Returns the stored context, which survives a crash. */
export function stored(snapshot: InstanceSnapshot): InstanceContext {
  return JSON.parse(JSON.stringify(storable(snapshot.context))) as InstanceContext
}
