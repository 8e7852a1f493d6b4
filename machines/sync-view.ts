import type { AnyMachineSnapshot, SnapshotFrom } from 'xstate'
import type { Failure } from '../src/domain/errors.ts'
import type { SyncStep, syncMachine } from './sync.ts'

export type SyncSnapshot = SnapshotFrom<typeof syncMachine>

/** The parts of the sync's state that instances act on. */
export interface SyncView {
  /** Revision of the stored snapshot. It increases with every stored event. */
  revision: number
  /** The innermost state as a path, such as `committing.verifying`. */
  state: string
  /**
   * False until the coordinator has created the collections, prepared them for a new convergence, or prepared the
   * destination of a reversal.
   */
  initialised: boolean
  /** The number of convergences that were requested since the sync began. */
  convergences: number
  attempt: number
  aborts: number
  /** A commit is under way, and every instance has received it. */
  underWay: boolean
  /**
   * The commit timestamp. Every instance applies changes up to it, including an instance that joins late. Null before
   * it is taken, and in every state other than `committing`.
   */
  commitTimestamp: string | null
  dryRun: boolean
  decided: boolean
  canWrite: boolean
  committed: boolean
  failures: number
  failure: Failure | null
}

export function viewOf(sync: SyncSnapshot, revision: number): SyncView {
  const { attempt, aborts, commitTimestamp, request, failures, failure, convergences } = sync.context
  const isInitialised =
    !sync.matches('initialising') && !sync.matches('replanning') && !sync.matches({ reversing: 'preparingDestination' })
  return {
    revision,
    state: pathOf(sync),
    initialised: isInitialised,
    convergences,
    attempt,
    aborts,
    underWay: sync.matches('committing') && !sync.matches({ committing: 'gathering' }),
    commitTimestamp: sync.matches('committing') ? commitTimestamp : null,
    dryRun: request?.dryRun ?? false,
    decided: sync.hasTag('decided'),
    canWrite: sync.hasTag('canWrite'),
    committed: sync.matches('committed') || sync.matches({ reversing: 'moving' }),
    failures,
    failure,
  }
}

/**
 * True while the stored commit can be aborted: from its request until its decision, and also after it has failed. It
 * makes no difference which instances have received the commit.
 */
export function canBeAborted(sync: SyncSnapshot): boolean {
  return sync.can({ type: 'commit.aborted', abortsBefore: sync.context.aborts, reason: null, rehearsal: null })
}

/** The coordinator's step in this state; null when the coordinator has nothing to do. */
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
