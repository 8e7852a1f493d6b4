import { initialTransition, type SnapshotFrom, transition } from 'xstate'
import { instanceMachine } from '../../machines/instance.ts'
import type { InstanceContext } from '../../machines/instance-context.ts'
import type { SyncCommand, WorkerReport } from '../../machines/protocol.ts'
import type { StartConfiguration } from '../../src/domain/start-request.ts'

export type InstanceSnapshot = SnapshotFrom<typeof instanceMachine>

/** What XState sends a machine when an invoked promise settles. */
export type Settlement =
  | { type: `xstate.done.actor.${string}`; output: unknown }
  | { type: `xstate.error.actor.${string}`; error: unknown }
export type AnyEvent = SyncCommand | WorkerReport | Settlement

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
}

export const promises = [
  'initialisation',
  'commitPoint',
  'preparation',
  'verdict',
  'decision',
  'opening',
  'indexConversion',
  'metadataMove',
  'adaptation',
] as const
export const workers = ['collectionCopy', 'eventApplication', 'verification', 'commitWatch'] as const

export const verifying: StartConfiguration = { ...configuration, verification: { enabled: true } }

export const failure = { error: 'OplogWindowLost', errorDescription: 'gone' } as const

export const takenOver = { error: 'LeaseLost', errorDescription: 'taken over' } as const

export const commit = { type: 'sync.commit', abortsBefore: 0, commitUntil: null, dryRun: false } as const
export const aborted = { type: 'commit.aborted', abortsBefore: 0 } as const

export const commands: SyncCommand[] = [
  { type: 'sync.start', configuration },
  { type: 'sync.start', configuration: verifying },
  { type: 'sync.pause' },
  { type: 'sync.resume' },
  commit,
  { type: 'sync.reverse' },
]

export const reports: WorkerReport[] = [
  { type: 'copy.completed' },
  { type: 'copy.drained' },
  { type: 'events.drained' },
  { type: 'verification.hashed' },
  { type: 'verification.restarted' },
  { type: 'events.reached' },
  { type: 'commit.passed' },
  aborted,
  { type: 'lease.buried' },
  { type: 'commit.renewed' },
  { type: 'worker.failed', failure },
  { type: 'worker.failed', failure: takenOver },
]

export const settlements: Settlement[] = [
  ...promises.map((id) => ({
    type: `xstate.done.actor.${id}` as const,
    output: id === 'commitPoint' ? '7340032' : undefined,
  })),
  ...[...promises, ...workers].map((id) => ({
    type: `xstate.error.actor.${id}` as const,
    error: new Error(`${id} failed`),
  })),
]

export function begin(context: InstanceContext | null = null): InstanceSnapshot {
  return initialTransition(instanceMachine, context)[0]
}

/** The machine alone: no worker is started, its orders go nowhere. */
export function next(snapshot: InstanceSnapshot, event: AnyEvent): InstanceSnapshot {
  return transition(instanceMachine, snapshot, event as SyncCommand)[0]
}

/** Innermost state as a path, such as `syncing.replicating.copying`. */
export function stateOf(snapshot: InstanceSnapshot): string {
  const parts: string[] = []
  for (let value: unknown = snapshot.value; value !== undefined; ) {
    if (typeof value === 'string') {
      parts.push(value)
      break
    }
    const [[name, inner]] = Object.entries(value as Record<string, unknown>) as [[string, unknown]]
    parts.push(name)
    value = inner
  }
  return parts.join('.')
}

export function running(snapshot: InstanceSnapshot): string[] {
  return Object.keys(snapshot.children).filter((id) => (snapshot.children as Record<string, unknown>)[id] !== undefined)
}

/** What a crash leaves: the context, as it is stored. */
export function stored(snapshot: InstanceSnapshot): InstanceContext {
  return JSON.parse(JSON.stringify(snapshot.context)) as InstanceContext
}
