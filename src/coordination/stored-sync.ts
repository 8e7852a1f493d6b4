import type { StateValue } from 'xstate'
import { syncMachine } from '../../machines/sync.ts'
import { freshSync, type SyncContext } from '../../machines/sync-context.ts'
import type { SyncSnapshot } from '../../machines/sync-view.ts'

/** The document in `stages` that holds the sync's state. */
export interface StoredSync {
  /** Increases with every event. */
  revision: number
  value: StateValue
  context: SyncContext
}

/**
 * Returns the snapshot of a stored document. The document has this release's form (schema version 5), that of an earlier
 * release with other names for some states and fields (2 to 4), or the flat fields of the first form (1). The form is
 * recognised by the fields and not by the schema version, because `SyncStore.catalogChanged` may store the current
 * version before an event replaces the snapshot. No document means that the sync has not begun.
 * @param generation how often the sync was reversed
 */
export function syncFrom(
  stored: object | null,
  generation: number,
): { snapshot: SyncSnapshot; revision: number | null } {
  if (stored && 'value' in stored) {
    const { value, context, revision } = stored as StoredSync
    return { snapshot: resolve(renamedState(value), renamedFields(context)), revision }
  }
  return { snapshot: fromVersion1((stored ?? {}) as Partial<SyncVersion1>, generation), revision: null }
}

/** The initial state of the sync on the new destination of a reversal. */
export function reversedSync(): StoredSync {
  return { revision: 0, value: { reversing: 'preparingDestination' }, context: freshSync }
}

function resolve(value: StateValue, context: Partial<SyncContext>): SyncSnapshot {
  return syncMachine.resolveState({ value, context: { ...freshSync, ...context } })
}

/** The names of states up to schema version 4. */
const formerStates: Readonly<Record<string, string>> = {
  takingPoint: 'takingTimestamp',
  adapting: 'preparingDestination',
}

/** The names of fields of the context up to schema version 4. */
interface FormerFields {
  hashed?: boolean
  commitPoint?: string | null
}

function renamedState(value: StateValue): StateValue {
  if (typeof value === 'string') return formerStates[value] ?? value
  const inner = Object.entries(value).map(([name, state]) => [name, state && renamedState(state)])
  return Object.fromEntries(inner)
}

function renamedFields<T extends object>(stored: T): T {
  const { hashed, commitPoint, ...others } = stored as FormerFields
  return {
    ...(hashed === undefined ? {} : { initiallyVerified: hashed }),
    ...(commitPoint === undefined ? {} : { commitTimestamp: commitPoint }),
    ...others,
  } as T
}

/** The fields that schema version 1 stored for the sync: a step and flags. */
interface SyncVersion1 extends SyncContext {
  initialised: boolean
  adapted: boolean
  step: 'none' | 'point' | 'prepared' | 'verified' | 'decided' | 'canWrite' | 'committed'
  abandoned: boolean
  heldBack: boolean
  abortsUndone: number
}

function fromVersion1(fields: Partial<SyncVersion1>, generation: number): SyncSnapshot {
  const { initialised, adapted, step, abandoned, heldBack, abortsUndone, ...others } = fields
  const rest = renamedFields(others)
  const known = Object.keys(freshSync) as (keyof SyncContext)[]
  const stored = Object.fromEntries(known.flatMap((key) => (key in rest ? [[key, rest[key]]] : [])))
  const context: SyncContext = { ...freshSync, ...stored }
  const value = stateOf(fields, generation)
  // Version 1 stored a commit attempt only with its commit timestamp. In this version, an attempt that waits for
  // instances already has a number, which the instances compare.
  if (value === gathering) {
    Object.assign(context, { attempt: context.attempt + 1, commitTimestamp: null, failure: null })
  }
  // Version 1 kept the failure of an aborted commit and of an abandoned attempt. This version does not.
  if (value !== 'failed' && !hasDecided(step)) context.failure = null
  // Releases that stored no term enabled writes on the destination before they stored the decision. Users may therefore
  // be able to write from the step `verified` on.
  context.mayBeOpen = step === 'verified' && !rest.term && !abandoned && !rest.failure
  return resolve(value, context)
}

const gathering: StateValue = { committing: 'gathering' }

function hasDecided(step: SyncVersion1['step'] = 'none'): boolean {
  return step === 'decided' || step === 'canWrite' || step === 'committed'
}

function stateOf(fields: Partial<SyncVersion1>, generation: number): StateValue {
  const { step = 'none', aborts = 0, abortsUndone = 0, abandoned = false, heldBack = false, attempt = 0 } = fields
  if (step === 'committed') return 'committed'
  if (step === 'canWrite') return { decided: 'converting' }
  if (step === 'decided') return { decided: 'opening' }
  if (!fields.initialised) return 'initialising'
  if (generation > 0 && !fields.adapted) return { reversing: 'preparingDestination' }
  if (aborts > abortsUndone) return 'undoing'
  // An abort removed the request of its commit. Releases that did not store requests could not abort a commit.
  const mayBeRequested = Boolean(fields.request) || aborts === 0
  if (fields.failure && !abandoned && mayBeRequested) return 'failed'
  const isPrepared = attempt > 0 && step !== 'none' && !(abandoned && heldBack)
  if (!isPrepared) return fields.request || (attempt > 0 && mayBeRequested) ? gathering : 'replicating'
  if (!mayBeRequested) return 'undoing'
  if (abandoned) return 'restoring'
  if (step === 'point') return { committing: 'applying' }
  return { committing: step === 'prepared' ? 'verifying' : 'deciding' }
}
