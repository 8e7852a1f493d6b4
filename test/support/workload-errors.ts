import { MongoAPIError, MongoError, MongoServerError } from 'mongodb'

/**
 * Server errors that a random sequence is expected to cause, by code. An error that is neither one of these, nor
 * transient, nor caused by a write block is a bug of the workload and stops it, because ignoring unknown errors would
 * silently reduce the coverage.
 */
const naturalCodes: Record<number, string> = {
  2: 'BadValue',
  5: 'GraphContainsCycle',
  14: 'TypeMismatch',
  20: 'IllegalOperation',
  26: 'NamespaceNotFound',
  27: 'IndexNotFound',
  28: 'PathNotViable',
  40: 'ConflictingUpdateOperators',
  48: 'NamespaceExists',
  52: 'DollarPrefixedFieldName',
  56: 'EmptyFieldName',
  66: 'ImmutableField',
  67: 'CannotCreateIndex',
  68: 'IndexAlreadyExists',
  72: 'InvalidOptions',
  85: 'IndexOptionsConflict',
  86: 'IndexKeySpecsConflict',
  96: 'OperationFailed',
  121: 'DocumentValidationFailure',
  166: 'CommandNotSupportedOnView',
  167: 'OptionNotSupportedOnView',
  171: 'CannotIndexParallelArrays',
  201: 'CannotBuildIndexKeys',
  263: 'OperationNotSupportedInTransaction',
  359: 'CannotConvertIndexToUnique',
  11000: 'DuplicateKey',
  17152: 'CappedAsOut',
  16755: 'CannotExtractGeoKeys',
  16766: 'HashedIndexOnArray',
  6011800: 'ChangeOfClusteredIndex',
  7693400: 'DuplicateField',
  5979800: 'DropOfClusteredIndex',
}

export type Outcome = { readonly kind: 'natural' | 'transient' | 'blocked' | 'unexpected'; readonly name: string }

const userWritesBlocked = 371

/**
 * Codes of errors that elections, shutdowns, lost cursors and locks cause. The driver does not retry all of them, in
 * particular not those of commands.
 */
const transientCodes = new Set([
  6, 7, 24, 43, 50, 64, 89, 91, 107, 112, 117, 133, 175, 189, 202, 225, 237, 246, 249, 251, 262, 276, 317, 9001, 10058,
  10107, 11600, 11602, 13388, 13435, 13436,
])

export function classify(error: unknown): Outcome {
  // Writes of raw documents fail with an ordinary Error that has a code.
  const code = codeOf(error)
  if (code === userWritesBlocked) return { kind: 'blocked', name: 'UserWritesBlocked' }
  const natural = code === undefined ? undefined : naturalCodes[code]
  if (natural) return { kind: 'natural', name: `${code} ${natural}` }
  if (code !== undefined && transientCodes.has(code)) return { kind: 'transient', name: String(code) }
  if (error instanceof MongoError) {
    const isLabelled = error.hasErrorLabel('RetryableWriteError') || error.hasErrorLabel('TransientTransactionError')
    const isConnectionError = !(error instanceof MongoServerError) && !(error instanceof MongoAPIError)
    if (isLabelled || isConnectionError) return { kind: 'transient', name: error.name }
  }
  return { kind: 'unexpected', name: error instanceof Error ? `${code} ${error.message}` : String(error) }
}

function codeOf(error: unknown): number | undefined {
  // When a retryable write fails with code 20, the driver throws an error about unsupported deployments instead, which
  // contains the original error.
  const { code, originalError } = (error ?? {}) as { code?: unknown; originalError?: { code?: number } }
  return originalError?.code ?? (typeof code === 'number' ? code : undefined)
}
