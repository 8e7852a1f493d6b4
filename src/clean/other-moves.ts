import { FatalError } from '../domain/errors.ts'
import type { Cluster, ClusterName } from '../mongo/cluster.ts'
import type { ClusterFacts } from '../mongo/identity.ts'
import { Metadata } from '../mongo/metadata.ts'
import type { RetryContext } from '../mongo/retry.ts'
import { clusterNames } from '../session/find-stored.ts'

/**
 * Throws FatalError ClusterIdentityChanged if a reversal has moved a sync from one of the clusters to a third one. The
 * moved sync is trusted only while the cluster that it left keeps the record of the move.
 */
export async function refuseOtherMoves(
  clusters: Record<ClusterName, Cluster>,
  facts: Record<ClusterName, ClusterFacts>,
  databases: readonly string[],
  context: RetryContext,
): Promise<void> {
  const given = new Set(clusterNames.map((name) => facts[name].identity))
  const places = clusterNames.flatMap((name) => databases.map((database) => ({ name, database })))
  for (const { name, database } of places) {
    const move = await new Metadata(clusters[name], context, undefined, database).loadMove()
    if (!move || (given.has(move.sourceIdentity) && given.has(move.destinationIdentity))) continue
    throw new FatalError(
      'ClusterIdentityChanged',
      `${name} holds the record of a reversed sync between clusters other than the two given. Nothing was changed. Run clean ` +
        'with the clusters of that sync first.',
    )
  }
}
