import { swapConfiguration } from '../src/domain/direction.ts'
import { assert, type Failure } from '../src/domain/errors.ts'
import { type Limits, noLimits } from '../src/domain/limits.ts'
import type { StartConfiguration } from '../src/domain/start-request.ts'
import type { SyncView } from './sync-view.ts'

/** What is stored of an instance, and so survives a crash; `sync` excepted. */
export interface InstanceContext {
  configuration: StartConfiguration | null
  /** It has seen that the collections are created. */
  initialised: boolean
  copyCompleted: boolean
  /** The verifier has compared everything once (or is switched off); from then on it keeps up with changes. */
  hashed: boolean
  commitRequested: boolean
  /** How many commits of this sync had been aborted when the present one was asked for. */
  abortsBefore: number
  /** The wall clock of this host, in milliseconds, at which the present commit is aborted unless it is decided; null for no limit. */
  commitUntil: number | null
  /** The present commit is a rehearsal: it is never decided. */
  dryRun: boolean
  /** The last commit was aborted, and none was asked for since. */
  commitAborted: boolean
  /** The attempt to commit that this instance takes part in; 0 before it knows of one. */
  attempt: number
  /** Cluster time of the source, as decimal digits: what is written there later has no place in this migration. */
  commitPoint: string | null
  /** Every event up to the commit point is applied here. */
  reached: boolean
  /** The commit is stored as decided: from here on it only goes forward. */
  decided: boolean
  canWrite: boolean
  failure: Failure | null
  copyDrained: boolean
  eventsDrained: boolean
  pauseRequested: boolean
  /** Which step of a reversal is under way. */
  reversing: 'moving' | 'adapting' | null
  /** What the operator has set for this instance. */
  limits: Limits
  /** The sync as a whole, as this process has seen it last; null before it has. */
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
/** `watching`: only to hear of an abort, for an instance that has failed. */
export type FollowInput = WithConfiguration & { watching: boolean }
export type DeadlineInput = { abortsBefore: number; commitUntil: number | null; failure: Failure | null }

/** Contexts that an earlier version has stored lack what was added since; what was seen of the sync is seen again. */
export function completed(context: Partial<InstanceContext>): InstanceContext {
  return { ...freshContext, ...context, sync: null }
}

/** What is stored of a context. */
export function storable({ sync: _sync, ...context }: InstanceContext): Omit<InstanceContext, 'sync'> {
  return context
}

/** What a commit had reached counts no more, unless it is decided. */
export function commitAnew(context: InstanceContext): InstanceContext {
  const anew = context.decided || context.canWrite ? {} : { attempt: 0, commitPoint: null, reached: false }
  return { ...context, ...anew, sync: null }
}

/** The commit is given up: changes are applied again. */
export function commitAborted(context: InstanceContext): InstanceContext {
  const given = { commitRequested: false, commitUntil: null, dryRun: false, commitAborted: true }
  return { ...context, ...given, attempt: 0, commitPoint: null, reached: false }
}

/** The instance takes part in the commit that the others are at. */
export function commitJoined(context: InstanceContext): Partial<InstanceContext> {
  const { aborts = 0, dryRun = false } = context.sync ?? {}
  return { commitRequested: true, commitAborted: false, abortsBefore: aborts, commitUntil: null, dryRun }
}

/** What the others, or this instance as the coordinator, have come to with the commit: it is decided. */
export function commitDecided(context: InstanceContext): InstanceContext {
  const done = { initialised: true, copyCompleted: true, hashed: true, reached: true, decided: true }
  const canWrite = context.canWrite || (context.sync?.canWrite ?? false)
  return { ...context, ...done, canWrite, commitRequested: true, pauseRequested: false }
}

/** What is stored of a committed sync, the other way round: everything is copied, nothing is committed. */
export function turnedContext(context: InstanceContext): InstanceContext {
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
