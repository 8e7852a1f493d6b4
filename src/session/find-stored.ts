import { FatalError } from '../domain/errors.ts'
import { all } from '../domain/in-parallel.ts'
import { databasesOfSync, metadataDatabase, olderMetadataDatabase } from '../domain/namespace.ts'
import type { Cluster, ClusterName } from '../mongo/cluster.ts'
import { codeOf } from '../mongo/errors.ts'
import type { ClusterFacts } from '../mongo/identity.ts'
import { Metadata, type SyncRecord } from '../mongo/metadata.ts'
import type { RetryContext } from '../mongo/retry.ts'
import { confirmMove } from './confirm-move.ts'

export const clusterNames = ['cluster0', 'cluster1'] as const

interface Found {
  /** The cluster on which the record was found, which is the destination of the sync. */
  name: ClusterName
  database: string
  record: SyncRecord
}

/**
 * Finds the sync that is stored on either cluster and bound to exactly these two; null when there is none. Sets the
 * metadata database of both clusters: the database that holds the sync, or the database for a new sync. Both clusters
 * use the same database, so a sync of an earlier release keeps its database when it is reversed.
 *
 * While a reversal moves the sync, both clusters may have a record. The record with the later generation is valid, and
 * the reversal removes the other when it continues. Any user with write access to the metadata database on a source can
 * leave a record there, so a reversed sync is trusted only if the cluster that it was moved from confirms the move. Throws
 * FatalError `ClusterIdentityChanged` when the sync was begun between other clusters, and `StoredStateConflict` when
 * the records on both clusters contradict each other, or both databases hold a sync.
 * @param syncName the name of the sync to find; null: the one without a name
 */
export async function findStoredSync(
  clusters: Record<ClusterName, Cluster>,
  facts: Record<ClusterName, ClusterFacts>,
  context: RetryContext,
  syncName: string | null = null,
): Promise<SyncRecord | null> {
  const databases = databasesOfSync(syncName)
  const found: Found[] = []
  const places = databases.flatMap((database) => clusterNames.map((name) => ({ name, database })))
  const loading = places.map(({ name, database }) => loadRecord(clusters[name], database, context))
  await all(loading)
  for (const [at, { name, database }] of places.entries()) {
    const record = (await loading[at]) ?? null
    if (!record) continue
    refuseOtherClusters({ name, database, record }, facts)
    // An invalid generation must be refused before the generations are compared.
    if (!Number.isSafeInteger(record.generation) || record.generation < 0) throw notOurs(name, database)
    found.push({ name, database, record })
  }
  const isNew = ({ database }: Found): boolean => database === databases[0]
  const [ofThisRelease, ofEarlier] = [found.find(isNew), found.find((one) => !isNew(one))]
  if (ofThisRelease && ofEarlier) throw twoSyncs(ofThisRelease.name, ofEarlier.name)
  for (const name of clusterNames) clusters[name].metadataDatabase = found[0]?.database ?? (databases[0] as string)
  found.sort((one, other) => other.record.generation - one.record.generation)
  const [newest, older] = found
  if (!newest) return null
  if (newest.record.generation === 0 && !older) return newest.record
  const from = otherThan(newest.name)
  await confirmMove({ ...newest, older: older?.record ?? null, from, cluster: clusters[from], context })
  return newest.record
}

/** Returns the text that identifies the sync in a Redis that several syncs share. It is the same for both directions. */
export function redisScope(facts: Record<ClusterName, ClusterFacts>, syncName: string | null): string {
  const scope = clusterNames.map((name) => facts[name].identity).sort()
  return [...scope, ...(syncName === null ? [] : [syncName])].join(':')
}

/**
 * Called by a process whose sync is in the database of this release. Throws FatalError StoredStateConflict if the database
 * of earlier releases holds a sync between the same two clusters, in either direction. Ignores a sync between other
 * clusters.
 * @param own the record of the sync of this process
 */
export async function refuseOlderSync(
  cluster: Cluster,
  own: Pick<SyncRecord, 'sourceIdentity' | 'destinationIdentity'>,
  context: RetryContext,
): Promise<void> {
  const found = await loadRecord(cluster, olderMetadataDatabase, context)
  if (found && clustersOf(found) === clustersOf(own)) throw twoSyncs(null, cluster.name)
}

function clustersOf({
  sourceIdentity,
  destinationIdentity,
}: Pick<SyncRecord, 'sourceIdentity' | 'destinationIdentity'>): string {
  return [sourceIdentity, destinationIdentity].sort().join(' ')
}

async function loadRecord(cluster: Cluster, database: string, context: RetryContext): Promise<SyncRecord | null> {
  return await new Metadata(cluster, context, undefined, database).loadSync().catch((error) => {
    // A user without rights on tandem's database cannot have stored anything there. Code 13 is Unauthorized.
    if (error instanceof FatalError && error.failure === 'MissingPrivileges') return null
    if (codeOf(error) === 13) return null
    throw error
  })
}

function refuseOtherClusters({ name, database, record }: Found, facts: Record<ClusterName, ClusterFacts>): void {
  const isBound =
    record.configuration.destination === name &&
    record.destinationIdentity === facts[name].identity &&
    record.sourceIdentity === facts[otherThan(name)].identity
  if (isBound) return
  throw new FatalError(
    'ClusterIdentityChanged',
    `${name} holds the state of a sync between clusters other than the two given. Nothing was changed. Start with the ` +
      `clusters of that sync, or drop the database ${database} there to begin again.`,
  )
}

/** @param name the cluster with the sync of this release, if it is known */
function twoSyncs(name: ClusterName | null, older: ClusterName): FatalError {
  return new FatalError(
    'StoredStateConflict',
    `two syncs are stored between these clusters: one in the database ${metadataDatabase}${name === null ? '' : ` on ${name}`}, and one of an earlier ` +
      `release in ${olderMetadataDatabase} on ${older}. Nothing was changed. Stop all instances, find out which sync is the valid one, drop the ` +
      'database of the other, and start the instances again, all of this release.',
  )
}

function notOurs(name: ClusterName, database: string): FatalError {
  return new FatalError(
    'StoredStateConflict',
    `the document of ${database}.sync on ${name} was not written by tandem: its generation is not a valid number. ` +
      'Nothing was changed. Remove that document, find out who wrote it, and start again.',
  )
}

function otherThan(name: ClusterName): ClusterName {
  return name === 'cluster0' ? 'cluster1' : 'cluster0'
}
