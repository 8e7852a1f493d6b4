import { proveGone } from '../definitions/listing.ts'
import type { CatalogEntry } from '../domain/catalog.ts'
import type { ClusterTime } from '../domain/cluster-time.ts'
import { isCollated } from '../domain/definition.ts'
import { isKeyed, mayRepeatIds } from '../domain/shard-key.ts'
import type { Cluster } from '../mongo/cluster.ts'
import { renamedTo } from '../mongo/collection-name.ts'
import { TransientReplyError } from '../mongo/errors.ts'
import { measuredEach } from '../mongo/measured.ts'
import type { Metadata } from '../mongo/metadata.ts'
import type { RetryContext } from '../mongo/retry.ts'
import { equalUnderCollation, refuseDuplicate } from './duplicate-ids.ts'
import { type Identity, type IdentityKey, idElementOf, identityKey } from './identity.ts'
import { type RequestedDocuments, readDocuments } from './read-documents.ts'
import { recordTombstones, type TombstoneRecorder } from './record-tombstones.ts'
import { removePlaced, replacePlaced } from './remove-keyed.ts'
import type { DocumentWriter } from './write-identities.ts'

export interface ReconcileDependencies extends TombstoneRecorder {
  source: Cluster
  destination: Cluster
  metadata: Metadata
  writer: DocumentWriter
  context: RetryContext
  /**
   * Called when the destination's collection is not in the entry's namespace. Updates the entry from the stored
   * catalog, which another instance may have changed. Returns false when the collection is gone. Omitted when no
   * other instance changes entries.
   */
  locate?: (entry: CatalogEntry) => Promise<boolean>
}

/**
 * True if shards of the source may have several documents with one of these `_id`s. The shard key in the catalog may be
 * outdated: 6.0 emits no event when a key is refined, and several instances follow the refinement only at the commit.
 * The events name the fields of the refined key from the first write on.
 */
export function mayBeRepeated(
  { source, destination }: ReconcileDependencies,
  entry: CatalogEntry,
  identities: Iterable<Identity>,
): boolean {
  if (mayRepeatIds(source, destination, entry)) return true
  for (const { keyed } of identities) if (keyed) return true
  return false
}

/**
 * Adds the key of a document to `readKeys`. If the key was read before, and two shards of the source have documents with
 * this `_id`, throws FatalError DuplicateDocumentId, because tandem cannot decide which document to keep.
 */
export async function refuseSecond(
  { source }: ReconcileDependencies,
  entry: CatalogEntry,
  readKeys: Set<IdentityKey>,
  key: IdentityKey,
  document: Buffer,
): Promise<void> {
  if (!readKeys.has(key)) {
    readKeys.add(key)
    return
  }
  await refuseDuplicate(source, entry, idElementOf(document))
  // The source has only one such document, which was moving between shards. It must be read again.
  throw readWhileMoving()
}

export const readWhileMoving = (): Error =>
  new TransientReplyError('a document was read from two shards while it moved')

/**
 * Throws FatalError DuplicateDocumentId when several of these documents have equal `_id`s, on different shards of the
 * source. On the destination, the `_id` index could not store them on one shard, and a delete would remove all of them.
 */
export async function refuseEqual(
  dependencies: ReconcileDependencies,
  entry: CatalogEntry,
  documents: readonly Buffer[],
): Promise<void> {
  const keys = new Set<IdentityKey>()
  for (const document of documents)
    await refuseSecond(dependencies, entry, keys, identityKey(idElementOf(document)), document)
  for (const idElement of await equalUnderCollation(dependencies.source, entry, documents.map(idElementOf))) {
    await refuseDuplicate(dependencies.source, entry, idElement)
    throw new TransientReplyError('documents with equal _ids were read while one replaced the other')
  }
}

/**
 * Reads the source's documents and passes each batch to `take`. Returns true when the source no longer has the
 * collection; a drop event then follows.
 */
export async function readCurrent(
  dependencies: ReconcileDependencies,
  entry: CatalogEntry,
  requested: RequestedDocuments,
  notBefore: ClusterTime,
  take: (documents: Buffer[]) => Promise<void>,
): Promise<boolean> {
  for (;;) {
    const collection = { database: entry.database, name: entry.sourceName, uuid: entry.uuid }
    // An error of `take` says nothing about the source's collection.
    let isTaking = false
    try {
      const batches = readDocuments(dependencies.source, collection, requested, notBefore)
      for await (const documents of measuredEach(dependencies.context, 'applyRead', batches)) {
        isTaking = true
        await take(documents)
        isTaking = false
      }
      return false
    } catch (error) {
      const name = isTaking ? undefined : renamedTo(error)
      if (name === undefined) throw error
      if (name === null) {
        await proveGone(dependencies.source, entry.database, entry.uuid)
        return true
      }
      entry.sourceName = name
    }
  }
}

/**
 * True if a document on the destination is found by a read of its `_id` and then addressed by its shard key. This
 * concerns collections that may have documents with one `_id` on several shards. While a collection is copied, a read
 * could miss a document that the copy inserts. Under a collation, an `_id` may exist in another spelling. In both cases
 * deletes go to all shards instead.
 */
export function isPlaced(entry: CatalogEntry): boolean {
  return entry.state === 'copied' && isKeyed(entry) && !isCollated(entry.wanted.options)
}

/**
 * True if the document is inserted first, and replaced only if the insert is refused. In a keyed collection, one of
 * several folded events may have changed the shard key. The destination may already have the document under the former
 * key, because an earlier batch, or an attempt before a crash, has read it from the source. If that key is on another
 * shard, no `_id` index refuses the insert, and no later event names the key.
 */
export function isInsert({ fresh, folded }: Identity, entry: CatalogEntry): boolean {
  return fresh && !(folded && isKeyed(entry))
}

/** Replaces documents that the destination may have under other shard key values. */
export async function replace(
  dependencies: ReconcileDependencies,
  entry: CatalogEntry,
  documents: Buffer[],
): Promise<void> {
  if (isPlaced(entry)) await replacePlaced(dependencies, entry, documents)
  else await dependencies.writer.upsert(entry, documents)
}

export async function removeAbsent(
  dependencies: ReconcileDependencies,
  entry: CatalogEntry,
  absent: Buffer[],
): Promise<void> {
  if (absent.length === 0) return
  if (entry.state === 'copying' && !isKeyed(entry)) {
    const removed = absent.map((idElement) => ({ idElement }))
    await recordTombstones(dependencies, entry, removed)
  }
  if (isPlaced(entry)) await removePlaced(dependencies, entry, absent)
  else await dependencies.writer.delete(entry, absent)
}

/** Waits for all writes of an attempt before a retry may start; otherwise an older write could arrive last. */
export async function allSettled(writes: Promise<void>[]): Promise<void> {
  for (const result of await Promise.allSettled(writes)) if (result.status === 'rejected') throw result.reason
}
