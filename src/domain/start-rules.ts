import { RefusedError } from './errors.ts'
import { isFiltered } from './namespace-filter.ts'
import { seriesOf } from './release.ts'
import type { StartConfiguration } from './start-request.ts'

/**
 * Refuses a start whose options contradict each other on any clusters. `refuseIrreversible` and `src/checks` contain
 * the checks that depend on the clusters.
 */
export function refuseContradictions(configuration: StartConfiguration): void {
  refuseUnusedMethod(configuration)
  if (!configuration.reversible) {
    refuseBlockedFilter(configuration)
    return
  }
  if (configuration.buildIndexes === 'never') {
    // After a reversal, the source would be the cluster on which the indexes were never built.
    throw new RefusedError(
      'ReversibleNotSupported',
      "reversible: true is not supported with buildIndexes 'never'; set buildIndexes to 'beforeDataCopy' or reversible to false",
    )
  }
  if (configuration.namespaceRemap) {
    throw new RefusedError(
      'ReversibleNotSupported',
      'reversible: true is not supported with namespaceRemap; leave namespaceRemap out or set reversible to false',
    )
  }
  if (isFiltered(configuration)) {
    throw new RefusedError(
      'ReversibleNotSupported',
      'reversible: true is not supported with includeNamespaces or excludeNamespaces; leave the filters out or set reversible to false',
    )
  }
}

/** Refuses a method of comparison without the verifier, because the request shows that a comparison is expected. */
function refuseUnusedMethod({ verification: { enabled, initialCompareMethod } }: StartConfiguration): void {
  if (enabled || initialCompareMethod === 'binary') return
  throw new RefusedError(
    'InvalidRequest',
    `verification.initialCompareMethod: ${initialCompareMethod} needs the embedded verifier; set verification.enabled to true, or leave initialCompareMethod out`,
  )
}

/**
 * Refuses filters with write blocking on the source. It blocks the whole cluster, but applications continue to write to
 * namespaces that are not synced.
 */
function refuseBlockedFilter(configuration: StartConfiguration): void {
  if (configuration.enableUserWriteBlocking !== 'sourceAndDestination' || !isFiltered(configuration)) return
  throw new RefusedError(
    'WriteBlockingNotSupported',
    "enableUserWriteBlocking 'sourceAndDestination' is not supported with includeNamespaces or excludeNamespaces; use " +
      "'destinationOnly' or 'none', and stop writes to what is synced before commit",
  )
}

interface ComparedCluster {
  topology: 'replicaSet' | 'sharded' | 'standalone'
  version: string
  major: number
  shards: readonly string[]
}

/** Refuses a reversible sync whose opposite direction could not be started. */
export function refuseIrreversible(
  configuration: StartConfiguration,
  source: ComparedCluster,
  destination: ComparedCluster,
): void {
  if (!configuration.reversible) return
  if (source.major < 6) {
    throw new RefusedError(
      'ReversibleNotSupported',
      `reversible cannot be true for a source older than 6.0 (it is ${source.version}); set reversible to false`,
    )
  }
  if (source.topology !== destination.topology) {
    throw new RefusedError(
      'ReversibleNotSupported',
      'reversible: true is not supported between a replica set and a sharded cluster; set reversible to false',
    )
  }
  if (source.shards.length !== destination.shards.length) {
    throw new RefusedError(
      'ReversibleNotSupported',
      `reversible: true is not supported between different numbers of shards (source ${source.shards.length}, destination ` +
        `${destination.shards.length}); set reversible to false`,
    )
  }
  const different = differentVersions(source, destination)
  if (different) throw different
}

/**
 * Returns a refusal if the clusters run different release series, and null otherwise. The opposite direction would sync
 * to an older series, which `checkVersions` refuses.
 */
export function differentVersions(
  source: Pick<ComparedCluster, 'version'>,
  destination: Pick<ComparedCluster, 'version'>,
): RefusedError | null {
  if (seriesOf(source.version) === seriesOf(destination.version)) return null
  return new RefusedError(
    'ReversibleNotSupported',
    `only a sync between clusters of the same release series (major.minor) can be reversed (source ${source.version}, destination ${destination.version}); set reversible to false`,
  )
}
