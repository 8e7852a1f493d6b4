import { checkBalancing } from '../checks/balancing.ts'
import { type Check, type CheckedClusters, findingsOf, toRefusal } from '../checks/check.ts'
import { checkClocks } from '../checks/clocks.ts'
import { checkCollections } from '../checks/collections.ts'
import { checkDatabaseCase } from '../checks/database-case.ts'
import { checkDisk } from '../checks/disk.ts'
import { checkDrainingShards } from '../checks/draining-shards.ts'
import { checkDuplicateIds } from '../checks/duplicate-ids.ts'
import { checkExistingData } from '../checks/existing-data.ts'
import { checkIndexLimit } from '../checks/index-limit.ts'
import { checkNamespaceRemap, checkRemapCollisions } from '../checks/namespace-remap.ts'
import { checkOplogWindow } from '../checks/oplog-window.ts'
import { checkOptions, checkReversible } from '../checks/options.ts'
import { checkPrivileges } from '../checks/privileges.ts'
import { checkCompatibility, checkReleases } from '../checks/releases.ts'
import { checkShardIndexes } from '../checks/shard-indexes.ts'
import { checkShardLoad } from '../checks/shard-load.ts'
import { checkShardingEntries } from '../checks/sharding.ts'
import { checkTimeSeries } from '../checks/time-series.ts'
import { checkTopology } from '../checks/topology.ts'
import { checkTestedReleases } from '../checks/untested-releases.ts'
import { checkExpiry, checkHashedProof, checkHashes, checkVerifierMemory } from '../checks/verification.ts'
import { checkPatchRelease, checkVersions } from '../checks/versions.ts'
import { checkZones } from '../checks/zones.ts'
import { type ListedCollection, listCollections, listDatabases } from '../definitions/listing.ts'
import { RefusedError } from '../domain/errors.ts'
import type { CheckOptions, Finding } from '../domain/finding.ts'
import { isUserCollection, namespace } from '../domain/namespace.ts'
import { NamespaceRemap, noRemap } from '../domain/namespace-remap.ts'
import type { StartConfiguration } from '../domain/start-request.ts'
import type { Cluster } from '../mongo/cluster.ts'
import { readFacts } from '../mongo/identity.ts'
import { Selection } from '../mongo/selection.ts'

export type BothFacts = CheckedClusters['facts']

/**
 * Checks that can refuse a start and use only what `readFacts` has read. At a start, the other checks run only if these
 * pass.
 */
const refusingByFacts: Check[] = [checkOptions, checkPrivileges, checkTopology, checkVersions, checkReversible]

/** The other checks that can refuse a start. Most of them read a cluster. */
const otherRefusing: Check[] = [
  checkCompatibility,
  async ({ selection }) => {
    await selection.refuseBadPatterns()
    return []
  },
  checkNamespaceRemap,
  checkDatabaseCase,
  checkPatchRelease,
  checkCollections,
  checkShardingEntries,
  checkIndexLimit,
  checkVerifierMemory,
  checkHashes,
  checkExpiry,
  async ({ configuration, source, destination, selection }) => {
    if (configuration.existingData === 'refuse') await refuseNonEmpty(source, destination, selection)
    return []
  },
]

/**
 * All checks that can refuse a start, in the order in which their errors take precedence: start answers with the first
 * error in this order.
 */
const refusing: Check[] = [...refusingByFacts, ...otherRefusing]

/** Checks of a filter that replaces the filter of an existing sync. */
const filterChecks: Check[] = [
  async ({ selection }) => {
    await selection.refuseBadPatterns()
    return []
  },
  checkRemapCollisions,
  checkDatabaseCase,
  checkCollections,
  checkShardingEntries,
  checkIndexLimit,
  // The verifier's memory is not checked, because the start of the sync has checked it.
  checkExpiry,
]

/** Checks that only the check command runs. They inform the operator and refuse no start. */
const advising: Check[] = [
  checkTestedReleases,
  checkReleases,
  checkTimeSeries,
  checkShardIndexes,
  checkDrainingShards,
  checkZones,
  checkBalancing,
  checkDuplicateIds,
  checkDisk,
  checkOplogWindow,
  checkShardLoad,
  checkClocks,
  checkExistingData,
  checkHashedProof,
]

/** Throws RefusedError with the reason and the remedy of the first error that a check finds. Writes nothing. */
export async function checkStart(clusters: CheckedClusters): Promise<BothFacts> {
  await withNames(clusters, async (named) => {
    await refuseErrors(refusingByFacts, named)
    await refuseErrors(otherRefusing, named)
  })
  return clusters.facts
}

/**
 * Throws RefusedError when the existing sync cannot change to the filters of this configuration. Writes nothing.
 * @param configuration the configuration of the sync, with the new filters
 */
export async function checkFilter(
  configuration: StartConfiguration,
  source: Cluster,
  destination: Cluster,
): Promise<void> {
  await refuseErrors(filterChecks, await readClusters(configuration, source, destination))
}

/**
 * Runs the checks in parallel, because many read a cluster. If several find errors, throws the error of the check that
 * is first in the list.
 */
async function refuseErrors(checks: Check[], clusters: CheckedClusters): Promise<void> {
  const results = await Promise.allSettled(checks.map((check) => findingsOf(() => check(clusters))))
  for (const result of results) {
    if (result.status === 'rejected') throw result.reason
    const error = result.value.find(({ severity }) => severity === 'error')
    if (error) throw toRefusal(error)
  }
}

/**
 * Returns the findings of all checks, without `checkDisk` if `skipDiskSpaceCheck` is true. Writes nothing. Rejects when
 * a cluster does not answer.
 */
export async function findEverything(
  configuration: StartConfiguration,
  source: Cluster,
  destination: Cluster,
  { skipDiskSpaceCheck }: CheckOptions,
): Promise<Finding[]> {
  const clusters = await readClusters(configuration, source, destination)
  return await withNames(clusters, (named) => findAll(named, skipDiskSpaceCheck))
}

async function findAll(clusters: CheckedClusters, skipDiskSpaceCheck: boolean): Promise<Finding[]> {
  const findings: Finding[] = []
  const advice = skipDiskSpaceCheck ? advising.filter((check) => check !== checkDisk) : advising
  for (const check of [...refusing, ...advice]) findings.push(...(await findingsOf(() => check(clusters))))
  // Other checks report MissingPrivileges when the server refuses one of their commands. The findings of
  // `checkPrivileges`, if there are any, replace them, because they name all the missing actions that it can detect at
  // once.
  const [missing] = findings.filter(({ name }) => name === 'MissingPrivileges')
  const ofPrivilegeCheck = await findingsOf(() => checkPrivileges(clusters))
  return ofPrivilegeCheck.length === 0 || !missing
    ? findings
    : [...ofPrivilegeCheck, ...findings.filter(({ name }) => name !== 'MissingPrivileges')]
}

export async function readClusters(
  configuration: StartConfiguration,
  source: Cluster,
  destination: Cluster,
): Promise<CheckedClusters> {
  const [ofSource, ofDestination] = await Promise.all([readFacts(source), readFacts(destination)])
  const facts = { source: ofSource, destination: ofDestination }
  const selection = new Selection(source, configuration, configuration.timeseries)
  return { configuration, source, destination, facts, selection }
}

/**
 * Calls `work` with clusters that name databases as this configuration does: the destination renames them by
 * `namespaceRemap`, the source renames none. The clusters may be in use by a sync with other names, possibly in the
 * other direction. Therefore a cluster is opened a second time if it renames databases now or would under this
 * configuration.
 */
async function withNames<T>(clusters: CheckedClusters, work: (named: CheckedClusters) => Promise<T>): Promise<T> {
  const opened: Cluster[] = []
  const named = (cluster: Cluster, names: NamespaceRemap): Cluster => {
    if (cluster.names.isIdentity && names.isIdentity) return cluster
    const other = cluster.openWith(names)
    opened.push(other)
    return other
  }
  try {
    const { configuration } = clusters
    const source = named(clusters.source, noRemap)
    const destination = named(clusters.destination, new NamespaceRemap(configuration.namespaceRemap))
    const selection =
      source === clusters.source ? clusters.selection : new Selection(source, configuration, configuration.timeseries)
    return await work({ ...clusters, source, destination, selection })
  } finally {
    await Promise.all(opened.map((one) => one.close()))
  }
}

/**
 * Throws RefusedError DestinationNotEmpty when the destination holds a selected collection or view, or a skipped
 * time-series collection that has the name of one to be synced. Anything else may exist there, and remains.
 */
async function refuseNonEmpty(source: Cluster, destination: Cluster, selection: Selection): Promise<void> {
  for (const database of await selection.databases(await listDatabases(destination))) {
    const listed = await listCollections(destination, database)
    const found = (await selection.among(database, listed)).find((one) => isUserCollection(one.name))
    // Null means that there are no filters, so the message asks for all user databases to be dropped.
    if (found && selection.events === null) {
      throw new RefusedError(
        'DestinationNotEmpty',
        `the destination holds ${destination.names.shown(namespace(database, found.name))}; drop its user databases first, or start with "existingData": "converge"`,
      )
    }
    const taken = found ?? (await takenBySkipped(source, selection, database, listed))
    if (taken) {
      throw new RefusedError(
        'DestinationNotEmpty',
        `the destination holds ${destination.names.shown(namespace(database, taken.name))}, whose name is selected for the sync; drop it first, or start with "existingData": "converge"`,
      )
    }
  }
}

/** Finds a skipped time-series collection of the destination that has the name of a collection or view to be synced. */
async function takenBySkipped(
  source: Cluster,
  selection: Selection,
  database: string,
  listed: ListedCollection[],
): Promise<ListedCollection | undefined> {
  const skipped = await selection.skipped(database, listed)
  if (skipped.length === 0) return undefined
  const wanted = await selection.among(database, await listCollections(source, database))
  return skipped.find(({ name }) => wanted.some((one) => one.name === name))
}
