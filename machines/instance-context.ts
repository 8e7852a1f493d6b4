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
  /** Cluster time of the source, as decimal digits: what is written there later has no place in this migration. */
  commitPoint: string | null
  /** Every event up to the commit point is applied. */
  reached: boolean
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
  commitPoint: null,
  reached: false,
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
export type VerdictInput = WithConfiguration & { commitPoint: string }

/** What a commit had reached counts no more, unless writes are allowed on the destination already. */
export function commitAnew(context: InstanceContext): InstanceContext {
  return context.canWrite ? context : { ...context, reached: false, commitPoint: null }
}

/** What an instance has when the others have committed without it: what is left to do after writes were allowed. */
export function commitPassed(context: InstanceContext): InstanceContext {
  const done = { initialised: true, copyCompleted: true, hashed: true, reached: true, canWrite: true }
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

export function withCommitPoint(context: InstanceContext): VerdictInput {
  assert(context.commitPoint, 'a commit without commit point')
  return { ...withConfiguration(context), commitPoint: context.commitPoint }
}
