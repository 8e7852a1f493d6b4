import type { Cluster } from '../mongo/cluster.ts'
import type { SourceCollection } from '../mongo/collection-name.ts'
import { type IdentityKey, idElementOf, identityKey, idOf } from './identity.ts'
import { readByIds } from './read-documents.ts'

/**
 * Which of these `_id`s the cluster's majority has in this collection. Where shards keep `_id` unique each for itself, that
 * another shard has one says nothing of this document.
 */
export async function existingIds(
  cluster: Cluster,
  collection: SourceCollection,
  idElements: Buffer[],
): Promise<Set<IdentityKey>> {
  const existing = new Set<IdentityKey>()
  for await (const documents of readByIds(cluster, collection, idElements.map(idOf), cluster.latest)) {
    for (const document of documents) existing.add(identityKey(idElementOf(document)))
  }
  return existing
}
