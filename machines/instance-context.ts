import { swapConfiguration } from '../src/domain/direction.ts'
import { assert, type Failure } from '../src/domain/errors.ts'
import { type Limits, noLimits } from '../src/domain/limits.ts'
import type { StartConfiguration } from '../src/domain/start-request.ts'
import type { SyncView } from './sync-view.ts'

/** The state of an instance. It is stored and survives a crash, except for `sync`. */
export interface InstanceContext {
  configuration: StartConfiguration | null
  /** This instance has observed that the collections are created. */
  initialised: boolean
  copyCompleted: boolean
  /** The verifier has compared everything once, or is switched off. From then on it compares only what changes. */
  hashed: boolean
  commitRequested: boolean
  /** How many commits of this sync had been aborted when the current commit was requested. */
  abortsBefore: number
  /**
   * The time by this host's wall clock, in milliseconds, at which the current commit is aborted unless it is decided;
   * null for no limit.
   */
  commitUntil: number | null
  /** The current commit is a rehearsal: it is never decided. */
  dryRun: boolean
  /** The last commit was aborted, and none was requested since. */
  commitAborted: boolean
  /** Number of the commit attempt that this instance takes part in; 0 before it knows of one. */
  attempt: number
  /**
   * The commit timestamp: a cluster time of the source, as decimal digits. Later writes on the source are not migrated.
   */
  commitPoint: string | null
  /** This instance has applied every event of its partitions up to the commit timestamp. */
  reached: boolean
  /** The decision of the commit is stored: from then on the commit can only be completed. */
  decided: boolean
  canWrite: boolean
  failure: Failure | null
  copyDrained: boolean
  eventsDrained: boolean
  pauseRequested: boolean
  /** The step of a reversal that is under way. */
  reversing: 'moving' | 'adapting' | null
  /** The limits that the operator has set for this instance. */
  limits: Limits
  /** The state of the sync as a whole, as this process last read it; null before the first read. */
  sync: SyncView | null
}

export const freshContext: InstanceContext = {
  configuration: null,
  initialised: false,
  copyCompleted: false,
  hashed: false,
  commitRequested: false,
  abortsBefore: 0,
  commitUntil: null,
  dryRun: false,
  commitAborted: false,
  attempt: 0,
  commitPoint: null,
  reached: false,
  decided: false,
  canWrite: false,
  failure: null,
  copyDrained: false,
  eventsDrained: false,
  pauseRequested: false,
  reversing: null,
  limits: noLimits,
  sync: null,
}

export type WithConfiguration = { configuration: StartConfiguration }
/** `watching`: the instance has failed and follows the sync only to learn of an abort. */
export type FollowInput = WithConfiguration & { watching: boolean }
export type DeadlineInput = { abortsBefore: number; commitUntil: number | null; failure: Failure | null }

/** Adds the fields that a context stored by an earlier release lacks. The state of the sync is read again. */
export function completed(context: Partial<InstanceContext>): InstanceContext {
  return { ...freshContext, ...context, sync: null }
}

/** The fields of a context that are stored. */
export function storable({ sync: _sync, ...context }: InstanceContext): Omit<InstanceContext, 'sync'> {
  return context
}

/** Resets the progress of a commit attempt, unless the commit is decided. */
export function commitReset(context: InstanceContext): InstanceContext {
  const reset = context.decided || context.canWrite ? {} : { attempt: 0, commitPoint: null, reached: false }
  return { ...context, ...reset, sync: null }
}

/** The commit is aborted: changes are applied again. */
export function commitAborted(context: InstanceContext): InstanceContext {
  const aborted = { commitRequested: false, commitUntil: null, dryRun: false, commitAborted: true }
  return { ...context, ...aborted, attempt: 0, commitPoint: null, reached: false }
}

/** The instance joins the commit that the other instances carry out. */
export function commitJoined(context: InstanceContext): Partial<InstanceContext> {
  const { aborts = 0, dryRun = false } = context.sync ?? {}
  return { commitRequested: true, commitAborted: false, abortsBefore: aborts, commitUntil: null, dryRun }
}

/** The commit is decided, by this instance as the coordinator or by another one. */
export function commitDecided(context: InstanceContext): InstanceContext {
  const done = { initialised: true, copyCompleted: true, hashed: true, reached: true, decided: true }
  const canWrite = context.canWrite || (context.sync?.canWrite ?? false)
  return { ...context, ...done, canWrite, commitRequested: true, pauseRequested: false }
}

/** The context of a committed sync after its direction was swapped: everything is copied, nothing is committed. */
export function reversedContext(context: InstanceContext): InstanceContext {
  const { configuration } = withConfiguration(context)
  return {
    ...freshContext,
    configuration: swapConfiguration(configuration),
    initialised: true,
    copyCompleted: true,
    reversing: 'adapting',
    limits: context.limits,
  }
}

export function withConfiguration(context: InstanceContext): WithConfiguration {
  assert(context.configuration, 'a sync without configuration')
  return { configuration: context.configuration }
}
