import type { CatalogEntry } from '../domain/catalog.ts'
import type { TypedValue } from '../domain/raw-bson.ts'
import { type ShardKey, sameShardKey, shardKeyValues } from '../domain/shard-key.ts'
import type { Cluster } from '../mongo/cluster.ts'
import { type Identity, type IdentityKey, idElementOf, identityKey } from './identity.ts'
import { existingPlaces } from './placed-elsewhere.ts'
import { deleteStatement, keyedDelete, keyedUpsert } from './statements.ts'
import { namedValues } from './target-reads.ts'
import type { DocumentWriter } from './write-identities.ts'

interface Parts {
  destination: Cluster
  writer: DocumentWriter
}

/**
 * Deletes and replacements in a copied collection whose shard key is not `_id`. A router sends a delete by `_id` to every
 * shard. Deletes here therefore contain the document's shard key values, if a filter can express them: those in the
 * event, or those with which the destination has the document. While a collection is copied, this is not possible,
 * because the copy may still insert the document with other values. All documents with the `_id` are then removed
 * (`DocumentWriter`).
 */

/** Removes all documents that the destination has with these `_id`s. */
export async function removePlaced(parts: Parts, entry: CatalogEntry, idElements: readonly Buffer[]): Promise<void> {
  await removeOthers(parts, entry, idElements, new Map())
}

/**
 * Writes documents. Before that, removes the same documents under other shard key values, because a unique index may
 * refuse the new version while the old one exists.
 */
export async function replacePlaced(parts: Parts, entry: CatalogEntry, documents: readonly Buffer[]): Promise<void> {
  const { writer } = parts
  const key = entry.shardKey ?? []
  const inPlace: Buffer[] = []
  const others: Buffer[] = []
  for (const document of documents) {
    const isExpressed = keyedUpsert(idElementOf(document), document, key) !== null
    ;(isExpressed ? inPlace : others).push(document)
  }
  const wanted = new Map(inPlace.map((document) => [identityKey(idElementOf(document)), document]))
  await removeOthers(parts, entry, inPlace.map(idElementOf), wanted)
  await writer.upsertInPlace(entry, inPlace)
  await writer.upsert(entry, others)
}

/** Removes the destination's documents with these `_id`s, except those with the shard key values of a wanted document. */
async function removeOthers(
  { destination, writer }: Parts,
  entry: CatalogEntry,
  idElements: readonly Buffer[],
  wanted: ReadonlyMap<IdentityKey, Buffer>,
): Promise<void> {
  if (idElements.length === 0) return
  const key = entry.shardKey ?? []
  const removed: Buffer[] = []
  const statements: Buffer[] = []
  for (const { idElement, values } of await existingPlaces(destination, entry, key, idElements)) {
    const document = wanted.get(identityKey(idElement))
    if (document && sameValues(values, shardKeyValues(document, key))) continue
    removed.push(idElement)
    statements.push(keyedDelete(idElement, values, key) ?? deleteStatement(idElement, true))
  }
  await writer.remove(entry, removed, statements)
}

function sameValues(one: readonly TypedValue[], other: readonly TypedValue[]): boolean {
  return one.every((value, at) => value.equals(other[at] as TypedValue))
}

/**
 * Returns the key of a delete event if it shows which document is gone. Returns null if the delete must be decided by a
 * read of all documents with its `_id`. The key must name all fields of the destination's shard key. An event from before
 * refineCollectionShardKey names fewer fields, and so does the event of a document that lacks a field. An event from after
 * it names more fields than the destination's key, until the destination's key is refined too. While `sourceKey` is still
 * the former key, tandem ignores the added fields, both when it reads from the source and when it deletes on the
 * destination.
 * @param sourceKey the shard key with which the document is read from the source
 */
export function deletedKeyOf(identity: Identity, entry: CatalogEntry, sourceKey: ShardKey): Buffer | null {
  const { deletedKey } = identity
  if (entry.state !== 'copied' || !deletedKey || !sameShardKey(entry.shardKey, sourceKey)) return null
  return namedValues(deletedKey, sourceKey) ? deletedKey : null
}

/**
 * Removes documents that the source no longer has under the keys of their delete events. Does not touch other documents
 * with these `_id`s: if the destination has one, the source had it after this delete event. When the source loses that
 * document too, another event names its key, and it is removed then (test/documents/document-key-model.ts).
 *
 * Returns the identities that must be decided by a read of all documents with their `_id`: those whose key no filter can
 * express and, if the deletes found fewer documents than expected, those that the destination still has.
 */
export async function removeDeleted(
  { destination, writer }: Parts,
  entry: CatalogEntry,
  gone: readonly Identity[],
): Promise<Identity[]> {
  if (gone.length === 0) return []
  const key = entry.shardKey ?? []
  const idElements: Buffer[] = []
  const statements: Buffer[] = []
  const inexpressible: Identity[] = []
  for (const identity of gone) {
    const values = identity.deletedKey && namedValues(identity.deletedKey, key)
    const statement = values && keyedDelete(identity.idElement, values, key)
    if (!statement) {
      inexpressible.push(identity)
      continue
    }
    idElements.push(identity.idElement)
    statements.push(statement)
  }
  const removed = await writer.remove(entry, idElements, statements)
  if (removed === statements.length) return inexpressible
  const places = await existingPlaces(destination, entry, key, idElements)
  const existing = new Set(places.map(({ idElement }) => identityKey(idElement)))
  const left = gone.filter(({ idElement }) => existing.has(identityKey(idElement)))
  return [...new Set([...inexpressible, ...left])]
}
