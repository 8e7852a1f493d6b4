import { circumstancesOf } from './circumstances.ts'
import { errorText } from './error-text.ts'

/**
 * Errors, grouped by the reaction that they need. Every error that an operator can see has a stable name and a
 * description. The name is the `error` field of the HTTP API and of `progress.failure`. The description says which field
 * or object is concerned and what to do.
 */

/** Names of the refusals, each with its HTTP status. */
export const refusalStatus = {
  InvalidRequest: 400,
  Unauthorized: 401,
  Forbidden: 403,
  WrongState: 409,
  CannotCommit: 409,
  FormerSourceChanged: 409,
  RequestTooLarge: 413,
  TooManyRequests: 429,
  UnsupportedTopology: 422,
  UnsupportedVersion: 422,
  UnsupportedCollection: 422,
  ShardingRequired: 422,
  ShardingNotAllowed: 422,
  ReversibleNotSupported: 422,
  OplogWindowLost: 422,
  WriteBlockingNotSupported: 422,
  VerificationNotSupported: 422,
  InsufficientMemory: 422,
  DestinationNotEmpty: 422,
  AuthenticationFailed: 422,
  MissingPrivileges: 422,
  ConfigurationMismatch: 422,
  SyncsOverlap: 422,
  ClusterIdentityChanged: 422,
  StoredStateConflict: 422,
  MetadataVersion: 422,
  ClusterUnreachable: 503,
  NoAnswer: 503,
  InternalError: 500,
} as const

export type RefusalName = keyof typeof refusalStatus

export const refusalNames = Object.keys(refusalStatus) as RefusalName[]

/**
 * A command is refused. It has changed nothing and can be sent again after the cause is fixed. With `NoAnswer`,
 * `ClusterUnreachable` and `InternalError`, the command may have taken effect (docs/troubleshooting.md). A refused
 * `repair` may have aborted the commit; its description then says so.
 */
export class RefusedError extends Error {
  readonly refusal: RefusalName
  constructor(refusal: RefusalName, description: string, options?: ErrorOptions) {
    super(description, options)
    this.name = 'RefusedError'
    this.refusal = refusal
  }
  get status(): (typeof refusalStatus)[RefusalName] {
    return refusalStatus[this.refusal]
  }
}

/**
 * Names of the errors that put an instance into FAILED. The metadata is kept. After the cause is fixed, `resume` continues
 * the sync.
 */
export const failureNames = [
  'OplogWindowLost',
  'UnsupportedCollection',
  'UnsupportedChange',
  'DestinationConflict',
  'DuplicateKey',
  'DuplicateDocumentId',
  'IndexBuildFailed',
  'ShardingFailed',
  'AuthenticationFailed',
  'MissingPrivileges',
  'ClusterIdentityChanged',
  'StoredStateConflict',
  'SyncsOverlap',
  'InstanceMismatch',
  'ClusterUnreachable',
  'ChangeStreamStalled',
  'MetadataVersion',
  'LeaseLost',
  'DocumentRefused',
  'VerificationFailed',
  'VerificationNotSupported',
  'SourceWritten',
  'WritesBlockedByAnother',
  'InternalError',
] as const

export type FailureName = (typeof failureNames)[number]

/**
 * True if a command can be refused with this name. If the startup has failed and the name of that failure is the name of
 * a refusal, commands are refused with it, because it tells the operator more than `WrongState`.
 */
export function isRefusalName(name: string): name is RefusalName {
  return Object.hasOwn(refusalStatus, name)
}

/** An error that the operator must resolve. The instance enters FAILED and reports it. */
export class FatalError extends Error {
  readonly failure: FailureName
  constructor(failure: FailureName, description: string, options?: ErrorOptions) {
    super(description, options)
    this.name = 'FatalError'
    this.failure = failure
  }
}

/** Work was stopped on request; this is not an error. */
export class StoppedError extends Error {
  constructor(reason = 'stopped') {
    super(reason)
    this.name = 'StoppedError'
  }
}

/**
 * The change stream has no events for some documents of these collections, or a rename would move them to another database
 * of the destination, so they must be converged. The operation that found this has changed nothing.
 */
export class UnfollowedError extends Error {
  /** The namespace of each collection on the source, by the collection's UUID on the source. */
  readonly collections: ReadonlyMap<string, string>
  constructor(collections: ReadonlyMap<string, string>) {
    super(`these collections must be copied again: ${[...collections.values()].join(', ')}`)
    this.name = 'UnfollowedError'
    this.collections = collections
  }
}

/** True if work ended because it was stopped on request. */
export function isStop(error: unknown): boolean {
  return error instanceof StoppedError || (error instanceof Error && error.name === 'AbortError')
}

/** A bug in tandem: an invariant does not hold. */
export class AssertionError extends Error {
  constructor(message: string) {
    super(message)
    this.name = 'AssertionError'
  }
}

export function assert(condition: unknown, message: string): asserts condition {
  if (!condition) throw new AssertionError(message)
}

export type Failure = { error: FailureName; errorDescription: string }

/** The original error of each failure. Its stack is only for the log. */
const causes = new WeakMap<Failure, unknown>()

/**
 * Converts an error that ended the sync into `progress.failure`.
 * @param step the step that was in progress; the step recorded with the error itself takes precedence
 */
export function toFailure(error: unknown, step?: string): Failure {
  const failure = describeFailure(error, step)
  causes.set(failure, error)
  return failure
}

/** The error that `toFailure` converted; undefined for a failure that was read from storage or had no error. */
export function causeOfFailure(failure: Failure): unknown {
  return causes.get(failure)
}

function describeFailure(error: unknown, step?: string): Failure {
  if (error instanceof FatalError) return { error: error.failure, errorDescription: error.message }
  const during = circumstancesOf(error).step ?? step
  const errorDescription = `${during === undefined ? '' : `${during}: `}${errorText(error)}`
  return { error: 'InternalError', errorDescription }
}
