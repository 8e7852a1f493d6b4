import type { CatalogEntry } from '../domain/catalog.ts'
import { isAddressable, type ShardKey, shardKeyValues } from '../domain/shard-key.ts'
import type { Cluster } from '../mongo/cluster.ts'
import { MovedError, renamedTo } from '../mongo/collection-name.ts'
import { type IdentityKey, idElementOf, identityKey, idOf } from './identity.ts'
import { readDocuments } from './read-documents.ts'
import { movedText, targetOf } from './write-identities.ts'

/**
 * Returns the identities of those documents that the destination holds, or may hold, with different shard key values.
 * This includes documents whose shard key values a filter cannot express, and documents whose values on the destination
 * are equal but encoded differently.
 * @throws MovedError if the destination's collection is not in the entry's namespace
 */
export async function placedElsewhere(
  destination: Cluster,
  entry: CatalogEntry,
  documents: readonly Buffer[],
): Promise<Set<IdentityKey>> {
  const elsewhere = new Set<IdentityKey>()
  const key = entry.shardKey
  if (documents.length === 0 || !key) return elsewhere
  const wanted = new Map<IdentityKey, string>()
  for (const document of documents) {
    const identity = identityKey(idElementOf(document))
    if (!shardKeyValues(document, key).every(isAddressable)) elsewhere.add(identity)
    wanted.set(identity, textOf(document, key))
  }
  const ids = documents.map((document) => idOf(idElementOf(document)))
  const fields = [...new Set(key.map(({ path }) => path.split('.')[0] as string))]
  try {
    for await (const batch of readDocuments(destination, targetOf(entry), { ids, fields }, destination.latest)) {
      for (const existing of batch) {
        const identity = identityKey(idElementOf(existing))
        if (textOf(existing, key) !== wanted.get(identity)) elsewhere.add(identity)
      }
    }
  } catch (error) {
    // Throws the same error as a write does, so that the caller looks for the collection on the destination and not on
    // the source.
    if (renamedTo(error) !== undefined) throw new MovedError(movedText(entry, error))
    throw error
  }
  return elsewhere
}

function textOf(document: Buffer, key: ShardKey): string {
  return shardKeyValues(document, key)
    .map((value) => `${value.length}:${value.latin1Slice()}`)
    .join()
}
