import { type CatalogEntry, needsOneLane, waitsForCopy } from '../domain/catalog.ts'
import { type ClusterTime, laterOf } from '../domain/cluster-time.ts'
import { FatalError } from '../domain/errors.ts'
import { isKeyed } from '../domain/shard-key.ts'
import { MovedError } from '../mongo/collection-name.ts'
import { retry } from '../mongo/retry.ts'
import {
  type Identity,
  type IdentityKey,
  idElementOf,
  identityKey,
  idOf,
  unread as unreadIdentity,
} from './identity.ts'
import {
  allSettled,
  isInsert,
  mayBeRepeated,
  type ReconcileDependencies,
  readCurrent,
  refuseEqual,
  removeAbsent,
  replace,
} from './reconcile-steps.ts'
import { reconcileUnread, replaceInPlace } from './reconcile-unread.ts'
import { recordTombstones } from './record-tombstones.ts'

export type Identities = Map<IdentityKey, Identity>

/**
 * Makes the destination hold, for each identity, what the source holds now (at `notBefore` or later, and no earlier than
 * the start time of the collection's last convergence). tandem is built on this operation. It is safe to run again from
 * the start after any failure, and it may process the documents in any order.
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
  // A convergence finds changes that have no events. A read from before its start may lack them.
  const asOf = laterOf(notBefore, entry.convergedFrom ?? 0n)
  await retry(`applying changes to ${entry.database}.${entry.name}`, dependencies.context, async () => {
    try {
      if (needsOneLane(entry)) await inOrder(dependencies, entry, identities, asOf)
      else await inBulk(dependencies, entry, identities, asOf)
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
  // may emit the insert first (observed on 6.0.27), so a delete event only shows that the document changed. If the
  // `_id` of an insert exists on the destination, it may be the `_id` of another document, on another shard.
  const trustsEvents = !mayBeRepeated(dependencies, entry, identities.values())
  const insert = async (): Promise<void> => {
    if (trustsEvents) return await replace(dependencies, entry, await writer.insertNew(entry, inserts))
    await reconcileByIds(await writer.insertNew(entry, inserts))
  }
  const update = async (): Promise<void> => {
    if (trustsEvents || !dependencies.destination.sharded) return await replace(dependencies, entry, replacements)
    // If the destination's shard key is still `_id`, the destination does not show whether it has this document or
    // another one with its `_id`.
    if (!isKeyed(entry)) return await reconcileByIds(replacements)
    await reconcileByIds(await replaceInPlace(dependencies, entry, replacements))
  }
  const reconcileByIds = async (documents: Buffer[]): Promise<void> => {
    const identities = documents.map((document) => unreadIdentity(idElementOf(document)))
    await reconcileUnread(dependencies, entry, identities, notBefore, !trustsEvents)
  }
  for (const identity of identities.values()) {
    if (identity.deleted && trustsEvents) deleted.push(identity.idElement)
    else if (!identity.document || (identity.folded && !trustsEvents)) unread.push(identity)
    else if (isInsert(identity, entry)) inserts.push(identity.document)
    else replacements.push(identity.document)
  }
  try {
    await allSettled([
      removeAbsent(dependencies, entry, deleted),
      insert(),
      update(),
      reconcileUnread(dependencies, entry, unread, notBefore, !trustsEvents),
    ])
  } catch (error) {
    // A current index may refuse an older version of a document. The retry reads the source's current version.
    if (!(error instanceof FatalError) || (inserts.length === 0 && replacements.length === 0)) throw error
    await inBulk(dependencies, entry, withoutDocuments(identities), laterOf(notBefore, dependencies.source.latest))
  }
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
    const gone = await readCurrent(dependencies, entry, { ids }, notBefore, async (documents) => {
      found.push(...documents)
    })
    if (gone) return
    if (mayBeRepeated(dependencies, entry, part.values())) await refuseEqual(dependencies, entry, found)
    const documents = new Map<IdentityKey, Buffer>()
    for (const document of found) documents.set(identityKey(idElementOf(document)), document)
    const absent = [...part].filter(([key]) => !documents.has(key)).map(([, identity]) => identity.idElement)
    await removeAbsent(dependencies, entry, absent)
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

const inOrderAtOnce = 50

function withoutDocuments(identities: Identities): Identities {
  return new Map([...identities].map(([key, identity]) => [key, { ...identity, document: null }]))
}
