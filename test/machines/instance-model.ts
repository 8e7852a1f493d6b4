import { fromCallback, initialTransition, type SnapshotFrom, transition } from 'xstate'
import { instanceMachine } from '../../machines/instance.ts'
import { type InstanceContext, storable } from '../../machines/instance-context.ts'
import type { SyncCommand, WorkerReport } from '../../machines/protocol.ts'
import { pathOf, type SyncView } from '../../machines/sync-view.ts'
import type { StartConfiguration } from '../../src/domain/start-request.ts'

export type InstanceSnapshot = SnapshotFrom<typeof instanceMachine>

/** What XState sends a machine when an invoked promise settles. */
export type Settlement =
  | { type: `xstate.done.actor.${string}`; output: unknown }
  | { type: `xstate.error.actor.${string}`; error: unknown }
/** What XState sends a machine when it has been in a state for so long. */
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
  verification: { enabled: false },
  existingData: 'refuse',
}

export const promises = ['metadataMove', 'hold', 'leave'] as const
export const workers = ['collectionCopy', 'eventApplication', 'verification', 'syncFollower', 'commitDeadline'] as const

export const verifying: StartConfiguration = { ...configuration, verification: { enabled: true } }

export const failure = { error: 'OplogWindowLost', errorDescription: 'gone' } as const

export const takenOver = { error: 'LeaseLost', errorDescription: 'taken over' } as const

export const commit = { type: 'sync.commit', abortsBefore: 0, commitUntil: null, dryRun: false } as const

const unseen: SyncView = {
  revision: 1,
  state: 'replicating',
  initialised: true,
  attempt: 0,
  aborts: 0,
  underWay: false,
  commitPoint: null,
  dryRun: false,
  decided: false,
  canWrite: false,
  committed: false,
  failures: 0,
  failure: null,
}
const decided = { ...unseen, attempt: 1, decided: true }

/** The sync as a whole, in every way that makes a difference to an instance. */
export const views = {
  initialising: { ...unseen, initialised: false },
  replicating: unseen,
  gathering: { ...unseen, attempt: 1 },
  applying: { ...unseen, attempt: 1, underWay: true, commitPoint: '7' },
  preparing: { ...unseen, attempt: 1, underWay: true },
  applyingAgain: { ...unseen, attempt: 2, underWay: true, commitPoint: '9' },
  aborted: { ...unseen, attempt: 1, aborts: 1 },
  opening: decided,
  converting: { ...decided, canWrite: true },
  committed: { ...decided, canWrite: true, committed: true },
} satisfies Record<string, SyncView>

export const seen = (name: keyof typeof views): WorkerReport => ({ type: 'sync.seen', sync: views[name] })

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
  { type: 'verification.hashed' },
  { type: 'verification.restarted' },
  { type: 'events.reached' },
  { type: 'lease.buried' },
  ...(Object.keys(views) as (keyof typeof views)[]).map(seen),
  { type: 'worker.failed', failure },
  { type: 'worker.failed', failure: takenOver },
]

const foreseenByNobody = new Error('it failed')

export const settlements: Settlement[] = [
  ...promises.map((id) => ({
    type: `xstate.done.actor.${id}` as const,
    output: undefined,
  })),
  ...[...promises, ...workers].map((id) => ({
    type: `xstate.error.actor.${id}` as const,
    // One for all: what differs in its text alone is the same state.
    error: foreseenByNobody,
  })),
]

export const elapsed: Elapsed[] = (['paused', 'failed'] as const).map((rest) => ({
  type: `xstate.after.holdAgain.instance.${rest}.waiting` as const,
}))

/** The instance without the machines of its workers, which have tests of their own. */
const stub = fromCallback(() => {})
const alone = instanceMachine.provide({
  actors: { collectionCopy: stub, eventApplication: stub, verification: stub },
} as never)

export function begin(context: InstanceContext | null = null): InstanceSnapshot {
  return initialTransition(alone, context)[0]
}

/** The machine alone: no worker is started, its orders go nowhere. */
export function next(snapshot: InstanceSnapshot, event: AnyEvent): InstanceSnapshot {
  return transition(alone, snapshot, event as SyncCommand)[0]
}

export const stateOf = (snapshot: InstanceSnapshot): string => pathOf(snapshot)

export function running(snapshot: InstanceSnapshot): string[] {
  return Object.keys(snapshot.children).filter((id) => (snapshot.children as Record<string, unknown>)[id] !== undefined)
}

/** What a crash leaves: the context, as it is stored. */
export function stored(snapshot: InstanceSnapshot): InstanceContext {
  return JSON.parse(JSON.stringify(storable(snapshot.context))) as InstanceContext
}
