import { FatalError } from '../domain/errors.ts'
import type { Cluster, ClusterName } from '../mongo/cluster.ts'
import { codeOf } from '../mongo/errors.ts'
import type { ClusterFacts } from '../mongo/identity.ts'
import { Metadata, type SyncRecord } from '../mongo/metadata.ts'
import type { RetryContext } from '../mongo/retry.ts'

export const clusterNames = ['cluster0', 'cluster1'] as const

/**
 * The sync that stands on either cluster and is bound to exactly these two; null where none is. While a reversal moves it, it
 * may stand on both: the later generation counts, and the other is removed when the reversal goes on. Throws
 * `ClusterIdentityChanged` when it was begun between other clusters.
 */
export async function findStoredSync(
  clusters: Record<ClusterName, Cluster>,
  facts: Record<ClusterName, ClusterFacts>,
  context: RetryContext,
): Promise<SyncRecord | null> {
  let found: SyncRecord | null = null
  for (const name of clusterNames) {
    const other = name === 'cluster0' ? 'cluster1' : 'cluster0'
    const metadata = new Metadata(clusters[name], context)
    const record = await metadata.loadSync().catch((error) => {
      // A user without rights on tandem's database there cannot have stored anything there.
      if (error instanceof FatalError && error.failure === 'MissingPrivileges') return null
      if (codeOf(error) === 13) return null
      throw error
    })
    if (!record) continue
    if (
      record.configuration.destination !== name ||
      record.destinationIdentity !== facts[name].identity ||
      record.sourceIdentity !== facts[other].identity
    ) {
      throw new FatalError(
        'ClusterIdentityChanged',
        `${name} holds the state of a sync between other clusters than the ones given. Start with the clusters it was ` +
          'begun with, or drop the database tandem_internal there to begin anew.',
      )
    }
    if (!found || record.generation > found.generation) found = record
  }
  return found
}
