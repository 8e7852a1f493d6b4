import type { Cluster } from '../mongo/cluster.ts'
import type { CollectionToRead } from '../mongo/collection-name.ts'
import { type IdentityKey, idElementOf, identityKey, idOf } from './identity.ts'
import { readDocuments } from './read-documents.ts'

/**
 * Returns which of these `_id`s exist in this collection. Reads with majority read concern. If each shard enforces
 * unique `_id`s only locally, an existing `_id` may belong to another document on another shard.
 */
export async function existingIds(
  cluster: Cluster,
  collection: CollectionToRead,
  idElements: Buffer[],
): Promise<Set<IdentityKey>> {
  const existing = new Set<IdentityKey>()
  // The server reads the `_id` index and no documents, unless a collation or a shard key requires them.
  const requested = { ids: idElements.map(idOf), fields: [] }
  for await (const documents of readDocuments(cluster, collection, requested, cluster.latest)) {
    for (const document of documents) existing.add(identityKey(idElementOf(document)))
  }
  return existing
}
