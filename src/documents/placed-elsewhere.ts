import type { CatalogEntry } from '../domain/catalog.ts'
import type { TypedValue } from '../domain/raw-bson.ts'
import { isAddressable, type ShardKey, shardKeyValues } from '../domain/shard-key.ts'
import type { Cluster } from '../mongo/cluster.ts'
import { MovedError, renamedTo } from '../mongo/collection-name.ts'
import { type IdentityKey, idElementOf, identityKey, idOf } from './identity.ts'
import { type RequestedDocuments, readDocuments } from './read-documents.ts'
import { movedText, targetOf } from './write-identities.ts'

/**
 * Returns the identities of those documents that have, or may have, different shard key values on the destination. This
 * includes documents with shard key values that a filter cannot express, and documents whose values on the destination
 * are equal but encoded differently. Returns none for a collection that is not sharded on the destination.
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
    const values = shardKeyValues(document, key)
    if (!values.every(isAddressable)) elsewhere.add(identity)
    wanted.set(identity, textOf(values))
  }
  for (const { idElement, values } of await existingPlaces(destination, entry, key, documents.map(idElementOf))) {
    const identity = identityKey(idElement)
    if (textOf(values) !== wanted.get(identity)) elsewhere.add(identity)
  }
  return elsewhere
}

/** The `_id` and the shard key values of a stored document. The values determine the shard on which it is stored. */
export interface Place {
  idElement: Buffer
  /** The document's shard key values, in the order of the fields of the key. */
  values: TypedValue[]
}

/**
 * Returns the places of all documents that the destination has with these `_id`s. Several shards may have a document with
 * the same `_id`. Only the places are kept in memory, because the server returns whole top-level fields, which may be
 * large if a field of the key is nested in them.
 * @throws MovedError if the destination's collection is not in the entry's namespace
 */
export async function existingPlaces(
  destination: Cluster,
  entry: CatalogEntry,
  key: ShardKey,
  idElements: readonly Buffer[],
): Promise<Place[]> {
  const ids = idElements.map((idElement) => idOf(idElement))
  const fields = [...new Set(key.map(({ path }) => path.split('.')[0] as string))]
  const found: Place[] = []
  for await (const batch of readExisting(destination, entry, { ids, fields })) {
    // A place contains copies, because a slice of the document's buffer would keep the whole buffer in memory.
    for (const document of batch)
      found.push({ idElement: Buffer.from(idElementOf(document)), values: shardKeyValues(document, key) })
  }
  return found
}

/**
 * Reads documents of the destination, with all changes up to its newest known operation time.
 * @throws MovedError if the destination's collection is not in the entry's namespace
 */
export async function* readExisting(
  destination: Cluster,
  entry: CatalogEntry,
  requested: RequestedDocuments,
): AsyncGenerator<Buffer[]> {
  try {
    yield* readDocuments(destination, targetOf(entry), requested, destination.latest)
  } catch (error) {
    // A write throws the same error. The caller therefore looks for the collection on the destination and not on the
    // source.
    if (renamedTo(error) !== undefined) throw new MovedError(movedText(destination, entry, error))
    throw error
  }
}

/** Returns a text that is equal for equal values only. The length of each value shows where the next one begins. */
function textOf(values: readonly TypedValue[]): string {
  return values.map((value) => `${value.length}:${value.latin1Slice()}`).join()
}
