import { unreachableText } from '../domain/error-text.ts'
import { type FailureName, FatalError, type RefusalName, RefusedError, StoppedError } from '../domain/errors.ts'
import type { Finding } from '../domain/finding.ts'
import type { StartConfiguration } from '../domain/start-request.ts'
import type { Cluster } from '../mongo/cluster.ts'
import { codeOf, isTransient, toFatal } from '../mongo/errors.ts'
import type { ClusterFacts } from '../mongo/identity.ts'
import type { Selection } from '../mongo/selection.ts'

export interface CheckedClusters {
  configuration: StartConfiguration
  source: Cluster
  destination: Cluster
  facts: { source: ClusterFacts; destination: ClusterFacts }
  /** The namespaces to sync. */
  selection: Selection
}

/** Reads both clusters, changes nothing and returns its findings. A refusal that it throws counts as an error finding too. */
export type Check = (clusters: CheckedClusters) => Promise<Finding[]> | Finding[]

export function problem(name: RefusalName, message: string, remedy: string): Finding {
  return { severity: 'error', name, message, remedy }
}

export function refusalOf({ name, message, remedy }: Finding): RefusedError {
  return new RefusedError(name as RefusalName, `${message}; ${remedy}`)
}

/** The thrown refusals from which findings were made, by finding. */
const refusals = new WeakMap<Finding, RefusedError>()

/**
 * Runs a check or a part of a check. A refusal that `work` throws becomes a finding. The refusal ClusterUnreachable and
 * all other errors are thrown.
 */
export async function findingsOf(
  work: () => Promise<Finding[]> | Finding[],
  about: Pick<Finding, 'namespace'> = {},
): Promise<Finding[]> {
  try {
    return await work()
  } catch (error) {
    const refused = asRefusal(error)
    if (!(refused instanceof RefusedError) || refused.refusal === 'ClusterUnreachable') throw refused
    const { refusal: name, message } = refused
    const finding = { ...problem(name, message, remedies[name] ?? otherRemedy), ...about }
    refusals.set(finding, refused)
    return [finding]
  }
}

/** Returns the refusal with which start reports an error finding. */
export function toRefusal(finding: Finding): RefusedError {
  return refusals.get(finding) ?? refusalOf(finding)
}

const otherRemedy = 'fix the issue named above, then check again'

/** Short remedies for refusals whose message already names the remedy. */
const remedies: Partial<Record<RefusalName, string>> = {
  UnsupportedTopology: 'give two different clusters, each a replica set or a sharded cluster',
  UnsupportedVersion: 'upgrade the cluster that the message names',
  UnsupportedCollection: 'on the source, drop or change the collection that the message names',
  ReversibleNotSupported: 'set reversible to false, or fix the issue named above',
  VerificationNotSupported: 'drop the TTL index, set buildIndexes to beforeDataCopy, or switch verification off',
  InsufficientMemory: 'give tandem more memory, or switch verification off',
  DestinationNotEmpty: `drop the destination's user databases, or start with "existingData": "converge"`,
  AuthenticationFailed: 'correct the user name or password in the connection string',
  MissingPrivileges: 'grant the roles that docs/privileges.md lists',
  InvalidRequest: 'correct the field named above',
}

const refusedFailures = new Set<FailureName>([
  'UnsupportedCollection',
  'AuthenticationFailed',
  'MissingPrivileges',
  'VerificationNotSupported',
  'ClusterIdentityChanged',
  'StoredStateConflict',
  'MetadataVersion',
])

/**
 * Returns the refusal of a command that failed with `error`. An unknown error is returned unchanged, and the caller
 * reports it as InternalError.
 */
export function asRefusal(error: unknown, command = 'start'): unknown {
  const fatal = toFatal(command, error)
  if (fatal instanceof FatalError && refusedFailures.has(fatal.failure)) {
    return new RefusedError(fatal.failure as RefusalName, fatal.message, { cause: error })
  }
  if (error instanceof StoppedError) {
    const description = `the instance stopped ${command} before it was complete, because the process is ending or has lost its lease; read progress, then send ${command} again`
    return new RefusedError('ClusterUnreachable', description, { cause: error })
  }
  if (isTransient(error)) {
    const description = `${unreachableText(error)}; check that cluster and the network, then send ${command} again`
    return new RefusedError('ClusterUnreachable', description, { cause: error })
  }
  return error
}

/**
 * Returns the result of an optional query, or null if the server rejects it, for example because this user may not run
 * it or the cluster does not support it. Transient errors and errors without a server code are thrown.
 */
export async function ifAllowed<T>(query: Promise<T>): Promise<T | null> {
  return await query.catch((error) => {
    if (codeOf(error) === undefined || isTransient(error)) throw error
    return null
  })
}
