import {
  MongoError,
  MongoNetworkError,
  MongoOperationTimeoutError,
  MongoServerError,
  MongoServerSelectionError,
  MongoTopologyClosedError,
  MongoWriteConcernError,
} from 'mongodb'
import { circumstancesOf } from '../domain/circumstances.ts'
import { errorText } from '../domain/error-text.ts'
import { FatalError, StoppedError } from '../domain/errors.ts'
import { notLost } from '../domain/not-lost.ts'

/** The server's error codes by name (src/mongo/base/error_codes.yml in its source). */
export const code = {
  badValue: 2,
  hostUnreachable: 6,
  failedToParse: 9,
  unauthorized: 13,
  authenticationFailed: 18,
  illegalOperation: 20,
  namespaceNotFound: 26,
  indexNotFound: 27,
  cursorNotFound: 43,
  namespaceExists: 48,
  maxTimeMSExpired: 50,
  dollarPrefixedFieldName: 52,
  invalidDBRefId: 53,
  invalidDBRefDatabase: 54,
  invalidDBRef: 55,
  immutableField: 66,
  invalidOptions: 72,
  indexOptionsConflict: 85,
  indexKeySpecsConflict: 86,
  operationFailed: 96,
  writeConflict: 112,
  conflictingOperationInProgress: 117,
  shardKeyNotFound: 61,
  cappedPositionLost: 136,
  cannotIndexParallelArrays: 171,
  queryPlanKilled: 175,
  keyNotFound: 211,
  transactionTooOld: 225,
  invalidResumeToken: 260,
  changeStreamFatalError: 280,
  changeStreamHistoryLost: 286,
  collectionUUIDMismatch: 361,
  transactionTooLargeForCache: 388,
  cannotConvertIndexToUnique: 359,
  cannotChangeCappedSize: 10003,
  objectTooLarge: 10334,
  duplicateKey: 11000,
  databaseDifferCase: 13297,
  unknownField: 40415,
  outOfDiskSpace: 14031,
} as const

/**
 * Codes after which the same command may be sent again: elections, shutdowns, lock and time limits, killed cursors,
 * conflicts, a full disk. The list contains the retryable codes of the driver specification and further codes that a
 * long-running sync encounters.
 */
const transient = new Set<number>([
  6, // HostUnreachable
  7, // HostNotFound
  24, // LockTimeout
  43, // CursorNotFound
  46, // LockBusy
  50, // MaxTimeMSExpired
  63, // StaleShardVersion, from old servers
  64, // WriteConcernFailed
  79, // UnknownReplWriteConcern, while members restart
  89, // NetworkTimeout
  90, // CallbackCanceled
  91, // ShutdownInProgress
  94, // NotYetInitialized
  107, // LockFailed: appendOplogNote does not wait for the global lock
  112, // WriteConflict
  117, // ConflictingOperationInProgress
  133, // FailedToSatisfyReadPreference
  134, // ReadConcernMajorityNotAvailableYet
  145, // PooledConnectionsDropped
  175, // QueryPlanKilled
  150, // StaleEpoch
  189, // PrimarySteppedDown
  202, // NetworkInterfaceExceededTimeLimit
  234, // RetryChangeStream
  237, // CursorKilled
  244, // TransactionAborted
  246, // SnapshotUnavailable
  249, // StaleDbVersion
  250, // StaleChunkHistory
  251, // NoSuchTransaction
  262, // ExceededTimeLimit
  276, // IndexBuildAborted
  279, // ClientDisconnect
  281, // TransactionCoordinatorSteppingDown
  306, // ReadThroughCacheLookupCanceled
  317, // ConnectionPoolExpired
  319, // MovePrimaryInProgress
  333, // ServiceExecutorInShutdown
  355, // InterruptedDueToStorageChange
  358, // InternalTransactionNotSupported, while stepping up
  360, // ShardVersionRefreshCanceled
  365, // TemporarilyUnavailable: cache pressure
  379, // DatabaseMetadataRefreshCanceled
  384, // ConnectionError
  462, // IngressRequestRateLimitExceeded (8.2 and later): refused before it was run
  9001, // SocketException
  10058, // LegacyNotPrimary
  10107, // NotWritablePrimary
  11600, // InterruptedAtShutdown
  11601, // Interrupted
  11602, // InterruptedDueToReplStateChange
  13388, // StaleConfig
  13435, // NotPrimaryNoSecondaryOk
  13436, // NotPrimaryOrSecondary
  14031, // OutOfDiskSpace
  46841, // ClientMarkedKilled
])

export function codeOf(error: unknown): number | undefined {
  return error instanceof MongoServerError && typeof error.code === 'number' ? error.code : undefined
}

/**
 * The command or the work must be repeated. Either a reply does not confirm the command, because the write concern was not
 * met or a statement failed with a transient error, or tandem has found a state that is expected to change soon.
 */
export class TransientReplyError extends Error {
  /** The code of the failed statement, if a statement has failed. */
  readonly code: number | undefined
  constructor(message: string, code?: number) {
    super(message)
    this.name = 'TransientReplyError'
    this.code = code
  }
}

/**
 * True if the server's time limit ended the command or one of its statements. A command with fewer statements may
 * succeed.
 */
export function ranOutOfTime(error: unknown): boolean {
  return (error instanceof TransientReplyError ? error.code : codeOf(error)) === code.maxTimeMSExpired
}

/** True if the time limit of this process ended the command. The driver passes the error on. */
export function isOwnTimeLimit(error: unknown): boolean {
  return error instanceof DOMException && error.name === 'TimeoutError'
}

/**
 * True if the command was sent to a server, and the time limit of this process ended the wait for the answer. The
 * driver (7.8, `Connection.readMany`) replaces the reason of the signal with this error.
 */
export function isUnanswered(error: unknown): boolean {
  return error instanceof MongoOperationTimeoutError
}

export function isTransientCode(value: number): boolean {
  return transient.has(value)
}

/**
 * Codes that a server returns when it lost the connection to another server that runs the command, or no longer waits
 * for that server. A router returns them for a whole command or for single statements while the shard may continue with
 * the write.
 */
const lostAnotherServer = new Set<number>([
  code.hostUnreachable,
  89, // NetworkTimeout
  90, // CallbackCanceled
  91, // ShutdownInProgress
  145, // PooledConnectionsDropped
  189, // PrimarySteppedDown
  202, // NetworkInterfaceExceededTimeLimit
  317, // ConnectionPoolExpired
  333, // ServiceExecutorInShutdown
  384, // ConnectionError
  9001, // SocketException
  11600, // InterruptedAtShutdown
  11602, // InterruptedDueToReplStateChange
])

/**
 * True if a write that failed with this code may still be in progress.
 * @param sharded true if a router answered. If it reports a time limit or an interruption, that may have ended only the
 * router's own work, and the shards may continue.
 */
export function mayStillRun(value: number, sharded: boolean): boolean {
  return isTransientCode(value) && (sharded || lostAnotherServer.has(value))
}

/**
 * True if a write that ended with this error may still be in progress. Then no server answered, or the server that
 * answered may no longer know what happens to the write (`mayStillRun`).
 */
export function mayBeUnderWay(error: unknown, sharded: boolean): boolean {
  const answered = codeOf(error)
  if (answered === undefined) return isTransient(error)
  const statements = error instanceof MongoWriteConcernError ? (error.result['writeErrors'] ?? []) : []
  const codes = [answered, ...(statements as { code: number }[]).map((statement) => statement.code)]
  return codes.some((value) => mayStillRun(value, sharded))
}

/**
 * True if the server answered a command of a transaction with an error that aborts the transaction. An unmet write
 * concern does not abort it.
 */
export function hasAborted(error: unknown, sharded: boolean): boolean {
  if (error instanceof TransientReplyError) return error.code !== undefined && error.code !== code.transactionTooOld
  return codeOf(error) !== undefined && !(error instanceof MongoWriteConcernError) && !mayBeUnderWay(error, sharded)
}

/**
 * Errors of a commit that prove that the transaction has not taken effect. After any other error it may have taken effect.
 */
const commitRefusals = new Set<number>([
  24, // LockTimeout
  code.writeConflict,
  244, // TransactionAborted
  246, // SnapshotUnavailable
  251, // NoSuchTransaction
])

/** True if the server answered a commit with an error that proves that the transaction was aborted. */
export function hasNotCommitted(error: unknown): boolean {
  return !(error instanceof MongoWriteConcernError) && commitRefusals.has(codeOf(error) ?? 0)
}

/** True when sending the same idempotent command again may succeed without an operator's action. */
export function isTransient(error: unknown): boolean {
  if (error instanceof TransientReplyError || error instanceof MongoWriteConcernError) return true
  if (error instanceof MongoTopologyClosedError) return true // until the next connect()
  if (error instanceof MongoServerSelectionError || error instanceof MongoOperationTimeoutError) return true
  if (error instanceof MongoNetworkError || isSocketError(error)) return true
  if (isOwnTimeLimit(error)) return true
  if (error instanceof MongoError && poolErrors.has(error.name)) return true
  if (error instanceof MongoError && retryableLabels.some((label) => error.hasErrorLabel(label))) return true
  const value = codeOf(error)
  return value !== undefined && (transient.has(value) || isAheadOfServer(error, value))
}

/**
 * True if a server refused a read because it has not observed the read's `afterClusterTime` yet. The server learns the
 * time from other servers and from `$clusterTime` of later commands (src/mongo/db/read_concern_mongod.cpp in the
 * server's source).
 */
function isAheadOfServer(error: unknown, value: number): boolean {
  return value === code.invalidOptions && /must not be greater than the current clusterTime/.test(String(error))
}

/**
 * The driver passes some errors of Node's sockets on unchanged, such as a write to a connection that the peer has
 * closed.
 */
function isSocketError(error: unknown): boolean {
  const name = error instanceof Error ? (error as NodeJS.ErrnoException).code : undefined
  return typeof name === 'string' && socketErrors.has(name)
}

/** A server of release 8.2 or later adds `RetryableError` when it rejects a command because it is overloaded. */
const retryableLabels = ['RetryableWriteError', 'RetryableError']

/** The driver does not export these classes: no connection was free in time, or the pool or the server was closed. */
const poolErrors = new Set(['MongoWaitQueueTimeoutError', 'MongoPoolClosedError', 'MongoServerClosedError'])

const socketErrors = new Set([
  'EPIPE',
  'ECONNRESET',
  'ECONNREFUSED',
  'ECONNABORTED',
  'ETIMEDOUT',
  'EHOSTUNREACH',
  'EHOSTDOWN',
  'ENETUNREACH',
  'ENETDOWN',
  'ENOTFOUND',
  'EAI_AGAIN',
  'ERR_STREAM_DESTROYED',
  'ERR_SOCKET_CLOSED',
])

/**
 * Turns an error that cannot be retried into the named failure that the operator sees. Returns other errors unchanged.
 */
export function toFatal(what: string, error: unknown): unknown {
  if (error instanceof FatalError || error instanceof StoppedError) return error
  switch (codeOf(error)) {
    case code.unauthorized:
      return new FatalError(
        'MissingPrivileges',
        `${what}: tandem's user lacks a privilege (${errorText(error)}). Grant it and send resume. ${notLost.progress}`,
        { cause: error },
      )
    case code.authenticationFailed:
      return new FatalError(
        'AuthenticationFailed',
        `${what}: the cluster refuses the user name or password of its connection string (${errorText(error)}). ` +
          `Fix the string, or the user on the cluster, start this process again, and send resume if the state is FAILED. ${notLost.progress}`,
        { cause: error },
      )
    case code.changeStreamHistoryLost:
    case code.invalidResumeToken:
    case code.changeStreamFatalError:
      return historyLost(error)
    default:
      return error
  }
}

/** The oplog is a capped collection. A reader cannot continue when the entry at its position was removed. */
export function historyLost(error: unknown): FatalError {
  const { cluster } = circumstancesOf(error)
  const oplog = cluster === undefined ? 'the oplog' : `the oplog of ${cluster}`
  return new FatalError(
    'OplogWindowLost',
    `reading the change stream: ${oplog} no longer reaches back to the stored position (${errorText(error)}), so the changes since then ` +
      'cannot be read. Enlarge ' +
      `the oplog of the source, then send resume: tandem compares all collections with the source again and writes what differs. ${notLost.source}`,
    { cause: error },
  )
}
