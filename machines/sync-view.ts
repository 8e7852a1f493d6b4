import type { AnyMachineSnapshot, SnapshotFrom } from 'xstate'
import type { Failure } from '../src/domain/errors.ts'
import type { SyncStep, syncMachine } from './sync.ts'

export type SyncSnapshot = SnapshotFrom<typeof syncMachine>

/** What an instance goes by of the sync's state. */
export interface SyncView {
  /** Of the stored snapshot: what was read later has a higher one. */
  revision: number
  /** The innermost state as a path, such as `committing.verifying`. */
  state: string
  /** Collections are created, after a reversal: adapted. */
  initialised: boolean
  attempt: number
  aborts: number
  /** A commit is past the moment until which it waits for instances to get it. */
  underWay: boolean
  /** Up to where every instance applies changes, also one that comes late; null where there is no such point. */
  commitPoint: string | null
  dryRun: boolean
  decided: boolean
  canWrite: boolean
  committed: boolean
  failures: number
  failure: Failure | null
}

export function viewOf(sync: SyncSnapshot, revision: number): SyncView {
  const { attempt, aborts, commitPoint, request, failures, failure } = sync.context
  return {
    revision,
    state: pathOf(sync),
    initialised: !sync.matches('initialising') && !sync.matches({ reversing: 'adapting' }),
    attempt,
    aborts,
    underWay: sync.matches('committing') && !sync.matches({ committing: 'gathering' }),
    commitPoint: sync.matches('committing') ? commitPoint : null,
    dryRun: request?.dryRun ?? false,
    decided: sync.hasTag('decided'),
    canWrite: sync.hasTag('canWrite'),
    committed: sync.matches('committed') || sync.matches({ reversing: 'moving' }),
    failures,
    failure,
  }
}

/** What the coordinator does in this state; null where it has nothing to do. */
export function stepOf(sync: SyncSnapshot): SyncStep | null {
  for (const meta of Object.values(sync.getMeta())) if (meta) return meta.step
  return null
}

/** The innermost state as a path. */
export function pathOf(snapshot: Pick<AnyMachineSnapshot, 'value'>): string {
  const parts: string[] = []
  for (let value: unknown = snapshot.value; value !== undefined; ) {
    if (typeof value === 'string') return [...parts, value].join('.')
    const [[name, inner]] = Object.entries(value as Record<string, unknown>) as [[string, unknown]]
    parts.push(name)
    value = inner
  }
  return parts.join('.')
}
