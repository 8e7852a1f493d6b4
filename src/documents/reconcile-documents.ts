import { proveGone } from '../definitions/listing.ts'
import { type CatalogEntry, needsOneLane, waitsForCopy } from '../domain/catalog.ts'
import { type ClusterTime, laterOf } from '../domain/cluster-time.ts'
import { FatalError } from '../domain/errors.ts'
import { isKeyed, mayRepeatIds } from '../domain/shard-key.ts'
import type { Cluster } from '../mongo/cluster.ts'
import { MovedError, renamedTo } from '../mongo/collection-name.ts'
import { TransientReplyError } from '../mongo/errors.ts'
import { measuredEach } from '../mongo/measured.ts'
import type { Metadata } from '../mongo/metadata.ts'
import { type RetryContext, retry } from '../mongo/retry.ts'
import { equalUnderCollation, refuseDuplicate } from './duplicate-ids.ts'
import {
  type Identity,
  type IdentityKey,
  idElementOf,
  identityKey,
  idOf,
  unread as unreadIdentity,
} from './identity.ts'
import { readByIds } from './read-documents.ts'
import { recordTombstones, type TombstoneRecorder } from './record-tombstones.ts'
import type { DocumentWriter } from './write-identities.ts'

export type Identities = Map<IdentityKey, Identity>

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
 * Makes the destination hold, for each identity, what the source holds now (at `notBefore` or later). tandem is built
 * on this operation. It is safe to run again from the start after any failure, and in any order between documents.
 *
 * While a collection is being copied, the identity of a document is recorded as a tombstone before the document is
 * deleted. The copy may have read the document earlier and insert it later, so the identity is reconciled again when
 * the copy has ended. When an `_id` may exist on several shards, every identity is recorded, not only deleted ones. The
 * copy may have read an older version of the document with another shard key value. When the copy inserts that version
 * later, it goes to another shard, and the `_id` index there does not reject it.
 */
export async function reconcileDocuments(
  dependencies: ReconcileDependencies,
  entry: CatalogEntry,
  identities: Identities,
  notBefore: ClusterTime,
): Promise<void> {
  if (waitsForCopy(entry)) {
    // The order of the documents is part of the content. Identities are recorded, and applied in order after the copy.
    const changed = [...identities.values()].map(({ idElement, inserted }) => ({ idElement, reorder: inserted }))
    return await recordTombstones(dependencies, entry, changed)
  }
  if (entry.state === 'copying' && isKeyed(entry)) {
    const changed = [...identities.values()].map(({ idElement }) => ({ idElement }))
    await recordTombstones(dependencies, entry, changed)
  }
  await retry(`applying changes to ${entry.database}.${entry.name}`, dependencies.context, async () => {
    try {
      if (needsOneLane(entry)) await inOrder(dependencies, entry, identities, notBefore)
      else await inBulk(dependencies, entry, identities, notBefore)
    } catch (error) {
      if (error instanceof MovedError && (await dependencies.locate?.(entry)) === false) return
      throw error
    }
  })
}

/**
 * Applies documents in any order. In parallel, it deletes documents, writes those that events contain, and reads and
 * writes all others.
 */
async function inBulk(
  dependencies: ReconcileDependencies,
  entry: CatalogEntry,
  identities: Identities,
  notBefore: ClusterTime,
): Promise<void> {
  const { writer } = dependencies
  const deleted: Buffer[] = []
  const inserts: Buffer[] = []
  const replacements: Buffer[] = []
  const unread: Identity[] = []
  // A shard key change deletes a document on one shard and inserts it on another at the same cluster time. The stream
  // may emit the insert first (observed on 6.0.27), so a delete event only shows that the document changed. A document
  // inserted with an existing `_id` may be another document, from another shard.
  const trustsEvents = !mayBeRepeated(dependencies, entry, identities.values())
  const insert = async (): Promise<void> => {
    if (trustsEvents) return await writer.insert(entry, inserts)
    const existing = await writer.insertNew(entry, inserts)
    const identities = existing.map((document) => unreadIdentity(idElementOf(document)))
    await reconcileUnread(dependencies, entry, identities, notBefore, !trustsEvents)
  }
  for (const identity of identities.values()) {
    if (identity.deleted && trustsEvents) deleted.push(identity.idElement)
    else if (!identity.document || (identity.folded && !trustsEvents)) unread.push(identity)
    else if (identity.fresh) inserts.push(identity.document)
    else replacements.push(identity.document)
  }
  try {
    await allSettled([
      remove(dependencies, entry, deleted),
      insert(),
      writer.upsert(entry, replacements),
      reconcileUnread(dependencies, entry, unread, notBefore, !trustsEvents),
    ])
  } catch (error) {
    // A current index may refuse an older version of a document. The retry reads the source's current version.
    if (!(error instanceof FatalError) || (inserts.length === 0 && replacements.length === 0)) throw error
    await inBulk(dependencies, entry, withoutDocuments(identities), laterOf(notBefore, dependencies.source.latest))
  }
}

/**
 * True if shards of the source may have several documents with one of these `_id`s. The shard key in the catalog may be
 * outdated: 6.0 emits no event when a key is refined, and several instances follow it only at the commit. The events
 * have the key's fields from the first write on.
 */
function mayBeRepeated(
  { source, destination }: ReconcileDependencies,
  entry: CatalogEntry,
  identities: Iterable<Identity>,
): boolean {
  if (mayRepeatIds(source, destination, entry)) return true
  for (const { keyed } of identities) if (keyed) return true
  return false
}

/**
 * Reads the documents that no event contained, writes each batch, and then deletes those that the source does not have.
 * @param mayHaveDuplicates several shards of the source may have documents with one `_id`
 */
async function reconcileUnread(
  dependencies: ReconcileDependencies,
  entry: CatalogEntry,
  unread: Identity[],
  notBefore: ClusterTime,
  mayHaveDuplicates: boolean,
): Promise<void> {
  const { writer } = dependencies
  const readKeys = new Set<IdentityKey>()
  const missing = new Map<IdentityKey, Identity>()
  for (const identity of unread) missing.set(identityKey(identity.idElement), identity)
  for (let from = 0; from < unread.length; from += readAtOnce) {
    const ids = unread.slice(from, from + readAtOnce).map((identity) => idOf(identity.idElement))
    const gone = await read(dependencies, entry, ids, notBefore, async (documents) => {
      const fresh: Buffer[] = []
      const known: Buffer[] = []
      for (const document of documents) {
        const key = identityKey(idElementOf(document))
        if (mayHaveDuplicates) await refuseSecond(dependencies, entry, readKeys, key, document)
        const list = missing.get(key)?.fresh ? fresh : known
        missing.delete(key)
        list.push(document)
      }
      await allSettled([writer.insert(entry, fresh), writer.upsert(entry, known)])
    })
    if (gone) return
  }
  await remove(
    dependencies,
    entry,
    [...missing.values()].map(({ idElement }) => idElement),
  )
}

/**
 * Applies changes of capped collections, whose order is part of the content, and of collections with a collation, where
 * "abc" and "ABC" may be the same `_id`. Works in small parts: deletes first, then documents in the order of their
 * events. Even a document with a delete event is read, because under a collation another spelling of its `_id` may
 * still exist.
 */
async function inOrder(
  dependencies: ReconcileDependencies,
  entry: CatalogEntry,
  identities: Identities,
  notBefore: ClusterTime,
): Promise<void> {
  const all = [...identities]
  for (let from = 0; from < all.length; from += inOrderAtOnce) {
    const part = new Map(all.slice(from, from + inOrderAtOnce))
    const ids = [...part.values()].map((identity) => idOf(identity.idElement))
    const found: Buffer[] = []
    const gone = await read(dependencies, entry, ids, notBefore, async (documents) => {
      found.push(...documents)
    })
    if (gone) return
    if (mayBeRepeated(dependencies, entry, part.values())) await refuseEqual(dependencies, entry, found)
    const documents = new Map<IdentityKey, Buffer>()
    for (const document of found) documents.set(identityKey(idElementOf(document)), document)
    const absent = [...part].filter(([key]) => !documents.has(key)).map(([, identity]) => identity.idElement)
    await remove(dependencies, entry, absent)
    const ordered: Buffer[] = []
    // Under a collation, the source may return an `_id` in a spelling that no event has. Such documents come last.
    for (const key of [...part.keys(), ...documents.keys()]) {
      const document = documents.get(key)
      if (!document) continue
      ordered.push(document)
      documents.delete(key)
    }
    // An insert would not replace an older version that another shard has under another shard key value.
    if (isKeyed(entry)) await dependencies.writer.upsert(entry, ordered)
    else await dependencies.writer.insert(entry, ordered)
  }
}

const readAtOnce = 1_000
const inOrderAtOnce = 50

/** Refuses an `_id` that exists on two shards of the source, because tandem cannot decide which document to keep. */
async function refuseSecond(
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
  // Only one document is left, so it was moving between shards. It must be read again.
  throw new TransientReplyError('a document was read from two shards while it moved')
}

/**
 * Refuses documents of several shards of the source whose `_id`s are equal. The collection's indexes on the destination
 * could not store them on one shard, and a delete would remove all of them.
 */
async function refuseEqual(
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

/** Waits for all writes of an attempt before a retry may start; otherwise an older write could arrive last. */
async function allSettled(writes: Promise<void>[]): Promise<void> {
  for (const result of await Promise.allSettled(writes)) if (result.status === 'rejected') throw result.reason
}

function withoutDocuments(identities: Identities): Identities {
  return new Map([...identities].map(([key, identity]) => [key, { ...identity, document: null }]))
}

/**
 * Passes each batch to `take`. Returns true when the source no longer has the collection; a drop event then follows.
 */
async function read(
  dependencies: ReconcileDependencies,
  entry: CatalogEntry,
  ids: Buffer[],
  notBefore: ClusterTime,
  take: (documents: Buffer[]) => Promise<void>,
): Promise<boolean> {
  for (;;) {
    const collection = { database: entry.database, name: entry.sourceName, uuid: entry.uuid }
    try {
      const batches = readByIds(dependencies.source, collection, ids, notBefore)
      for await (const documents of measuredEach(dependencies.context, 'applyRead', batches)) await take(documents)
      return false
    } catch (error) {
      const name = renamedTo(error)
      if (name === undefined) throw error
      if (name === null) {
        await proveGone(dependencies.source, entry.database, entry.uuid)
        return true
      }
      entry.sourceName = name
    }
  }
}

async function remove(dependencies: ReconcileDependencies, entry: CatalogEntry, absent: Buffer[]): Promise<void> {
  if (absent.length === 0) return
  if (entry.state === 'copying' && !isKeyed(entry)) {
    const removed = absent.map((idElement) => ({ idElement }))
    await recordTombstones(dependencies, entry, removed)
  }
  await dependencies.writer.delete(entry, absent)
}
