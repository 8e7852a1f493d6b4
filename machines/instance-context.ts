import { turnConfiguration } from '../src/domain/direction.ts'
import { assert, type Failure } from '../src/domain/errors.ts'
import { type Limits, noLimits } from '../src/domain/limits.ts'
import type { StartConfiguration } from '../src/domain/start-request.ts'

/** What is stored of an instance, and so survives a crash: how far its sync has come. */
export interface InstanceContext {
  configuration: StartConfiguration | null
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
  /** A commit was aborted: before anything is applied, what it had changed is undone. */
  commitAborted: boolean
  /** Cluster time of the source, as decimal digits: what is written there later has no place in this migration. */
  commitPoint: string | null
  /** Every event up to the commit point is applied. */
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
}

export type WithConfiguration = { configuration: StartConfiguration }
export type ReplicationInput = WithConfiguration & { commitBegun: boolean }
export type CommitInput = WithConfiguration & { abortsBefore: number; dryRun: boolean }
export type CommitWatchInput = CommitInput & { commitUntil: number | null; failure: Failure | null }
export type VerdictInput = CommitInput & { commitPoint: string }

/** Contexts that an earlier version has stored lack what was added since. */
export function completed(context: Partial<InstanceContext>): InstanceContext {
  return { ...freshContext, ...context }
}

/** What a commit had reached counts no more, unless it is decided. */
export function commitAnew(context: InstanceContext): InstanceContext {
  return context.decided || context.canWrite ? context : { ...context, reached: false, commitPoint: null }
}

/** The commit is given up: changes are applied again, once what the commit had changed is undone. */
export function commitAborted(context: InstanceContext): InstanceContext {
  const given = { commitRequested: false, commitUntil: null, dryRun: false, commitPoint: null, reached: false }
  return { ...context, ...given, commitAborted: true }
}

/** What an instance has when the commit was decided without it: users' writes are allowed, and the rest of the commit is done. */
export function commitPassed(context: InstanceContext): InstanceContext {
  const done = { initialised: true, copyCompleted: true, hashed: true, reached: true, decided: true }
  return { ...context, ...done, commitRequested: true, pauseRequested: false }
}

/** What is stored of a committed sync, the other way round: everything is copied, nothing is committed. */
export function turnedContext(context: InstanceContext): InstanceContext {
  const { configuration } = withConfiguration(context)
  return {
    ...freshContext,
    configuration: turnConfiguration(configuration),
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

export function withCommit(context: InstanceContext): CommitWatchInput {
  const { abortsBefore, commitUntil, dryRun, failure } = context
  return { ...withConfiguration(context), abortsBefore, commitUntil, dryRun, failure }
}

export function withCommitPoint(context: InstanceContext): VerdictInput {
  assert(context.commitPoint, 'a commit without commit point')
  const { abortsBefore, dryRun, commitPoint } = context
  return { ...withConfiguration(context), abortsBefore, dryRun, commitPoint }
}
