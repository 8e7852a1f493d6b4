/**
 * Names of the error codes of single statements of a write. Such an error has a code and a text but, unlike the reply
 * to a failed command, no `codeName`. The names are from src/mongo/base/error_codes.yml in the server's source.
 */
const names = new Map<number, string>([
  [2, 'BadValue'],
  [9, 'FailedToParse'],
  [13, 'Unauthorized'],
  [14, 'TypeMismatch'],
  [17, 'ProtocolError'],
  [20, 'IllegalOperation'],
  [22, 'InvalidBSON'],
  [26, 'NamespaceNotFound'],
  [28, 'PathNotViable'],
  [50, 'MaxTimeMSExpired'],
  [52, 'DollarPrefixedFieldName'],
  [53, 'InvalidIdField'],
  [54, 'NotSingleValueField'],
  [55, 'InvalidDBRef'],
  [57, 'DottedFieldName'],
  [61, 'ShardKeyNotFound'],
  [66, 'ImmutableField'],
  [67, 'CannotCreateIndex'],
  [72, 'InvalidOptions'],
  [73, 'InvalidNamespace'],
  [96, 'OperationFailed'],
  [112, 'WriteConflict'],
  [121, 'DocumentValidationFailure'],
  [146, 'ExceededMemoryLimit'],
  [166, 'CommandNotSupportedOnView'],
  [167, 'OptionNotSupportedOnView'],
  [171, 'CannotIndexParallelArrays'],
  [201, 'CannotBuildIndexKeys'],
  [361, 'CollectionUUIDMismatch'],
  [388, 'TransactionTooLargeForCache'],
  [10003, 'CannotGrowDocumentInCappedNamespace'],
  [10334, 'BSONObjectTooLarge'],
  [11000, 'DuplicateKey'],
  [14031, 'OutOfDiskSpace'],
])

/**
 * Error codes that are not in the server's list are larger than this. The server names such a code `Location<code>`.
 */
const unlistedMin = 10_000

/**
 * Formats a code for messages: `DuplicateKey (11000)`.
 * @param name the `codeName` of the reply; undefined if it has none
 */
export function serverCode(code: number, name: unknown): string {
  const known = codeNameOf(code, name)
  return known === undefined ? `server error ${code}` : `${known} (${code})`
}

/** Returns the name of a code: the `codeName` of the reply, or the known name; undefined if there is none. */
export function codeNameOf(code: number, name: unknown): string | undefined {
  if (typeof name === 'string' && name !== '') return name
  return names.get(code) ?? (code > unlistedMin ? `Location${code}` : undefined)
}
