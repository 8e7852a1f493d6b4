import { FatalError } from '../domain/errors.ts'
import { both } from '../domain/in-parallel.ts'
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
  record: SyncRecord
}

/**
 * Finds the sync that is stored on either cluster and bound to exactly these two; null when there is none. While a
 * reversal moves the sync, both clusters may have a record. The record with the later generation is valid, and the
 * reversal removes the other when it continues. Any user with write access to `tandem_internal` on a source can leave a
 * record there, so a reversed sync is trusted only if the cluster that it was moved from confirms the move. Throws
 * FatalError `ClusterIdentityChanged` when the sync was begun between other clusters, and `StoredStateConflict` when
 * the records on both clusters contradict each other.
 */
export async function findStoredSync(
  clusters: Record<ClusterName, Cluster>,
  facts: Record<ClusterName, ClusterFacts>,
  context: RetryContext,
): Promise<SyncRecord | null> {
  const found: Found[] = []
  const [record0, record1] = await both(loadRecord(clusters.cluster0, context), loadRecord(clusters.cluster1, context))
  const records = { cluster0: record0, cluster1: record1 }
  for (const name of clusterNames) {
    const record = records[name]
    if (!record) continue
    refuseOtherClusters(name, record, facts)
    // An invalid generation must be refused before the generations are compared.
    if (!Number.isSafeInteger(record.generation) || record.generation < 0) throw notOurs(name)
    found.push({ name, record })
  }
  found.sort((one, other) => other.record.generation - one.record.generation)
  const [newest, older] = found
  if (!newest) return null
  if (newest.record.generation === 0 && !older) return newest.record
  const from = otherThan(newest.name)
  await confirmMove({ ...newest, older: older?.record ?? null, from, cluster: clusters[from], context })
  return newest.record
}

async function loadRecord(cluster: Cluster, context: RetryContext): Promise<SyncRecord | null> {
  return await new Metadata(cluster, context).loadSync().catch((error) => {
    // A user without rights on tandem's database cannot have stored anything there. Code 13 is Unauthorized.
    if (error instanceof FatalError && error.failure === 'MissingPrivileges') return null
    if (codeOf(error) === 13) return null
    throw error
  })
}

function refuseOtherClusters(name: ClusterName, record: SyncRecord, facts: Record<ClusterName, ClusterFacts>): void {
  const isBound =
    record.configuration.destination === name &&
    record.destinationIdentity === facts[name].identity &&
    record.sourceIdentity === facts[otherThan(name)].identity
  if (isBound) return
  throw new FatalError(
    'ClusterIdentityChanged',
    `${name} holds the state of a sync between clusters other than the two given. Nothing was changed. Start with the ` +
      'clusters of that sync, or drop the database tandem_internal there to begin again.',
  )
}

function notOurs(name: ClusterName): FatalError {
  return new FatalError(
    'StoredStateConflict',
    `the document of tandem_internal.sync on ${name} was not written by tandem: its generation is not a valid number. ` +
      'Nothing was changed. Remove that document, find out who wrote it, and start again',
  )
}

function otherThan(name: ClusterName): ClusterName {
  return name === 'cluster0' ? 'cluster1' : 'cluster0'
}
