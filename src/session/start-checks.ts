import { type Check, type CheckedClusters, findingsOf, toRefusal } from '../checks/check.ts'
import { checkClocks } from '../checks/clocks.ts'
import { checkCollections } from '../checks/collections.ts'
import { checkDisk } from '../checks/disk.ts'
import { checkDuplicateIds } from '../checks/duplicate-ids.ts'
import { checkConvergence, checkExistingData } from '../checks/existing-data.ts'
import { checkIndexLimit } from '../checks/index-limit.ts'
import { checkOplogWindow } from '../checks/oplog-window.ts'
import { checkOptions, checkReversible } from '../checks/options.ts'
import { checkPrivileges } from '../checks/privileges.ts'
import { checkCompatibility, checkReleases } from '../checks/releases.ts'
import { checkShardingEntries } from '../checks/sharding.ts'
import { checkShards } from '../checks/shards.ts'
import { checkTopology } from '../checks/topology.ts'
import { checkVerification } from '../checks/verification.ts'
import { checkPatch, checkVersions } from '../checks/versions.ts'
import { listCollections, listDatabases } from '../definitions/listing.ts'
import { RefusedError } from '../domain/errors.ts'
import type { Finding } from '../domain/finding.ts'
import { isUserCollection, namespace } from '../domain/namespace.ts'
import type { StartConfiguration } from '../domain/start-request.ts'
import type { Cluster } from '../mongo/cluster.ts'
import { readFacts } from '../mongo/identity.ts'
import { Selection } from '../mongo/selection.ts'

export type CheckedStart = CheckedClusters['facts']

/** Checks that can refuse a start, in the order in which start runs them. Start answers with the first error. */
const refusing: Check[] = [
  checkOptions,
  checkPrivileges,
  checkTopology,
  checkVersions,
  checkReversible,
  checkConvergence,
  checkCompatibility,
  async ({ selection }) => {
    await selection.refuseBadPatterns()
    return []
  },
  checkPatch,
  checkCollections,
  checkShardingEntries,
  checkIndexLimit,
  checkVerification,
  async ({ configuration, destination, selection }) => {
    if (configuration.existingData === 'refuse') await refuseNonEmpty(destination, selection)
    return []
  },
]

/** Checks that only inform the operator before a start. They refuse nothing. */
const advising: Check[] = [
  checkReleases,
  checkShards,
  checkDuplicateIds,
  checkDisk,
  checkOplogWindow,
  checkClocks,
  checkExistingData,
]

/** Throws RefusedError with the reason and the remedy of the first error that a check finds. It only reads. */
export async function checkStart(
  configuration: StartConfiguration,
  source: Cluster,
  destination: Cluster,
): Promise<CheckedStart> {
  const clusters = await readClusters(configuration, source, destination)
  for (const check of refusing) {
    const error = (await findingsOf(() => check(clusters))).find(({ severity }) => severity === 'error')
    if (error) throw toRefusal(error)
  }
  return clusters.facts
}

/** Returns the findings of all checks. It only reads; throws RefusedError ClusterUnreachable. */
export async function findEverything(
  configuration: StartConfiguration,
  source: Cluster,
  destination: Cluster,
): Promise<Finding[]> {
  const clusters = await readClusters(configuration, source, destination)
  const findings: Finding[] = []
  for (const check of [...refusing, ...advising]) findings.push(...(await findingsOf(() => check(clusters))))
  // Other checks may fail because of missing privileges. Their findings are dropped, since the check of privileges
  // names them all.
  const [lacking] = findings.filter(({ name }) => name === 'MissingPrivileges')
  const known = await findingsOf(() => checkPrivileges(clusters))
  return known.length === 0 || !lacking
    ? findings
    : [...known, ...findings.filter(({ name }) => name !== 'MissingPrivileges')]
}

async function readClusters(
  configuration: StartConfiguration,
  source: Cluster,
  destination: Cluster,
): Promise<CheckedClusters> {
  const facts = { source: await readFacts(source), destination: await readFacts(destination) }
  return { configuration, source, destination, facts, selection: new Selection(source, configuration) }
}

/** Collections that are not selected may exist on the destination, and remain there. */
async function refuseNonEmpty(destination: Cluster, selection: Selection): Promise<void> {
  for (const database of await selection.databases(await listDatabases(destination))) {
    const listed = await selection.among(database, await listCollections(destination, database))
    const found = listed.find((one) => isUserCollection(one.name))
    if (found) {
      throw new RefusedError(
        'DestinationNotEmpty',
        selection.events === null
          ? `the destination holds ${namespace(database, found.name)}; drop its user databases first`
          : `the destination holds ${namespace(database, found.name)}, which is to be synced; drop it first`,
      )
    }
  }
}
