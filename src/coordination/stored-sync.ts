import type { StateValue } from 'xstate'
import { syncMachine } from '../../machines/sync.ts'
import { freshSync, type SyncContext } from '../../machines/sync-context.ts'
import type { SyncSnapshot } from '../../machines/sync-view.ts'

/** The document of the sync's state in `tandem_internal.stages`. */
export interface StoredSync {
  /** Rises with every event. */
  revision: number
  value: StateValue
  context: SyncContext
}

/**
 * The snapshot that a stored document stands for, in this release's form (schema version 2) or in the one before (1), whose
 * fields lay side by side. None is the beginning of a sync.
 * @param generation how often the sync was reversed
 */
export function syncFrom(
  stored: object | null,
  generation: number,
): { snapshot: SyncSnapshot; revision: number | null } {
  if (stored && 'value' in stored) {
    const { value, context, revision } = stored as StoredSync
    return { snapshot: resolve(value, context), revision }
  }
  return { snapshot: fromStages((stored ?? {}) as Partial<Stages>, generation), revision: null }
}

/** The sync that begins on the new destination of a reversal. */
export function turnedSync(): StoredSync {
  return { revision: 0, value: { reversing: 'adapting' }, context: freshSync }
}

function resolve(value: StateValue, context: Partial<SyncContext>): SyncSnapshot {
  return syncMachine.resolveState({ value, context: { ...freshSync, ...context } })
}

/** What schema version 1 stored of the sync: a step, and flags beside it. */
interface Stages extends SyncContext {
  initialised: boolean
  adapted: boolean
  step: 'none' | 'point' | 'prepared' | 'verified' | 'decided' | 'canWrite' | 'committed'
  abandoned: boolean
  heldBack: boolean
  abortsUndone: number
}

function fromStages(stages: Partial<Stages>, generation: number): SyncSnapshot {
  const { initialised, adapted, step, abandoned, heldBack, abortsUndone, ...rest } = stages
  const known = Object.keys(freshSync) as (keyof SyncContext)[]
  const stored = Object.fromEntries(known.flatMap((key) => (key in rest ? [[key, rest[key]]] : [])))
  const context: SyncContext = { ...freshSync, ...stored }
  const value = stateOf(stages, generation)
  // An attempt was stored with its commit point; one that waits for instances has its number before that. Instances go by it.
  if (value === gathering) {
    Object.assign(context, { attempt: context.attempt + 1, commitPoint: null, failure: null })
  }
  // An aborted commit, and an attempt that was given up, left theirs on record.
  if (value !== 'failed' && !hasDecided(step)) context.failure = null
  // Nothing was stored of a term before there was a decision; then users may write since what is stored as verified.
  context.mayBeOpen = step === 'verified' && !rest.term && !abandoned && !rest.failure
  return resolve(value, context)
}

const gathering: StateValue = { committing: 'gathering' }

function hasDecided(step: Stages['step'] = 'none'): boolean {
  return step === 'decided' || step === 'canWrite' || step === 'committed'
}

function stateOf(stages: Partial<Stages>, generation: number): StateValue {
  const { step = 'none', aborts = 0, abortsUndone = 0, abandoned = false, heldBack = false, attempt = 0 } = stages
  if (step === 'committed') return 'committed'
  if (step === 'canWrite') return { decided: 'converting' }
  if (step === 'decided') return { decided: 'opening' }
  if (!stages.initialised) return 'initialising'
  if (generation > 0 && !stages.adapted) return { reversing: 'adapting' }
  if (aborts > abortsUndone) return 'undoing'
  // An abort took the request of its commit with it; a release that stored no request had no abort.
  const mayBeAsked = Boolean(stages.request) || aborts === 0
  if (stages.failure && !abandoned && mayBeAsked) return 'failed'
  const isPrepared = attempt > 0 && step !== 'none' && !(abandoned && heldBack)
  if (!isPrepared) return stages.request || (attempt > 0 && mayBeAsked) ? gathering : 'replicating'
  if (!mayBeAsked) return 'undoing'
  if (abandoned) return 'restoring'
  if (step === 'point') return { committing: 'applying' }
  return { committing: step === 'prepared' ? 'verifying' : 'deciding' }
}
