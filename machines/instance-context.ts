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
  /** Number of the last convergence for which this instance has discarded its progress; 0 before the first one. */
  convergences: number
  /**
   * The verifier has compared everything once, and from then on compares only what changes. Also true once the commit
   * is decided. If verification is switched off, this stays false until the commit is decided, and the commit does not
   * wait for it.
   */
  initiallyVerified: boolean
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
  /** The last commit was aborted, and no other has been requested since. */
  commitAborted: boolean
  /** Number of the commit attempt that this instance takes part in; 0 before it knows of one. */
  attempt: number
  /**
   * The commit timestamp: a cluster time of the source, as decimal digits. Later writes on the source are not migrated.
   */
  commitTimestamp: string | null
  /** This instance has applied all events of its partitions up to the commit timestamp. */
  reached: boolean
  /** The decision of the commit is stored: from then on the commit can only be completed. */
  decided: boolean
  canWrite: boolean
  failure: Failure | null
  copyDrained: boolean
  eventsDrained: boolean
  pauseRequested: boolean
  /** The step of a reversal that is under way. */
  reversing: 'moving' | 'preparingDestination' | null
  /** The limits that the operator has set for this instance. */
  limits: Limits
  /** The state of the sync as a whole, as this process last read it; null before the first read. */
  sync: SyncView | null
}

export const freshContext: InstanceContext = {
  configuration: null,
  initialised: false,
  copyCompleted: false,
  convergences: 0,
  initiallyVerified: false,
  commitRequested: false,
  abortsBefore: 0,
  commitUntil: null,
  dryRun: false,
  commitAborted: false,
  attempt: 0,
  commitTimestamp: null,
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
/** `watching`: the instance has failed and follows the sync only to notice an abort. */
export type FollowInput = WithConfiguration & { watching: boolean }
export type DeadlineInput = { abortsBefore: number; commitUntil: number | null; failure: Failure | null }

/** Fields and values of a stored context under the names that an earlier release gave them. */
interface FormerNames {
  hashed?: boolean
  commitPoint?: string | null
  reversing?: 'moving' | 'adapting' | null
}

/**
 * Completes a stored context. In a context that an earlier release stored, some fields and values have other names, and
 * some fields are missing. `sync` is never stored, so it is null until the state of the sync is read again.
 */
export function completed(stored: Partial<InstanceContext> | FormerNames): InstanceContext {
  const { hashed, commitPoint, reversing, ...others } = stored as FormerNames
  return {
    ...freshContext,
    ...(hashed === undefined ? {} : { initiallyVerified: hashed }),
    ...(commitPoint === undefined ? {} : { commitTimestamp: commitPoint }),
    ...others,
    reversing: (reversing === 'adapting' ? 'preparingDestination' : reversing) ?? null,
    sync: null,
  }
}

/** The fields of a context that are stored. */
export function storable({ sync: _sync, ...context }: InstanceContext): Omit<InstanceContext, 'sync'> {
  return context
}

/** Resets the progress of a commit attempt, unless the commit is decided. */
export function commitReset(context: InstanceContext): InstanceContext {
  const reset = context.decided || context.canWrite ? {} : { attempt: 0, commitTimestamp: null, reached: false }
  return { ...context, ...reset, sync: null }
}

/** The context after the commit was aborted: the instance applies changes again. */
export function commitAborted(context: InstanceContext): InstanceContext {
  const aborted = { commitRequested: false, commitUntil: null, dryRun: false, commitAborted: true }
  return { ...context, ...aborted, attempt: 0, commitTimestamp: null, reached: false }
}

/**
 * The context after a convergence began: collections are converged again, so the instance discards its progress in the
 * copy and in the verification. It also discards its own commit request. A convergence begins only when no commit is
 * under way, so the stored state of the sync does not contain that request.
 */
export function convergenceStarted(context: InstanceContext): InstanceContext {
  const { convergences = 0 } = context.sync ?? {}
  const again = { convergences, initialised: false, copyCompleted: false, initiallyVerified: false }
  const none = { commitRequested: false, commitUntil: null, dryRun: false }
  return { ...context, ...again, ...none, attempt: 0, commitTimestamp: null, reached: false }
}

/** The fields that change when the instance joins the commit that the other instances carry out. */
export function commitJoined(context: InstanceContext): Partial<InstanceContext> {
  const { aborts = 0, dryRun = false } = context.sync ?? {}
  return { commitRequested: true, commitAborted: false, abortsBefore: aborts, commitUntil: null, dryRun }
}

/** The fields that change when the commit timestamp of an attempt is known. */
export function commitTimestampTaken({ sync }: InstanceContext): Partial<InstanceContext> {
  return { attempt: sync?.attempt ?? 0, commitTimestamp: sync?.commitTimestamp ?? null }
}

/**
 * The fields that change when the state of the sync was read. Replies to reads may arrive out of order, so a view never
 * replaces one with a higher revision.
 */
export function syncObserved({ sync }: InstanceContext, observed: SyncView): Partial<InstanceContext> {
  return observed.revision >= (sync?.revision ?? 0) ? { sync: observed } : {}
}

/** The context after the coordinator, which may be another instance, has decided the commit. */
export function commitDecided(context: InstanceContext): InstanceContext {
  const done = { initialised: true, copyCompleted: true, initiallyVerified: true, reached: true, decided: true }
  const canWrite = context.canWrite || (context.sync?.canWrite ?? false)
  return { ...context, ...done, canWrite, commitRequested: true, pauseRequested: false }
}

/** The context after the direction of a committed sync was swapped: everything is copied, nothing is committed. */
export function reversedContext(context: InstanceContext): InstanceContext {
  const { configuration } = withConfiguration(context)
  return {
    ...freshContext,
    configuration: swapConfiguration(configuration),
    initialised: true,
    copyCompleted: true,
    reversing: 'preparingDestination',
    limits: context.limits,
  }
}

export function withConfiguration(context: InstanceContext): WithConfiguration {
  assert(context.configuration, 'the sync has no configuration')
  return { configuration: context.configuration }
}
