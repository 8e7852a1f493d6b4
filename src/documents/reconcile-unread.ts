import type { CatalogEntry } from '../domain/catalog.ts'
import type { ClusterTime } from '../domain/cluster-time.ts'
import { inParallel } from '../domain/in-parallel.ts'
import { isKeyed } from '../domain/shard-key.ts'
import { type Identity, type IdentityKey, idElementOf, identityKey, idOf } from './identity.ts'
import { placedElsewhere } from './placed-elsewhere.ts'
import { allSettled, type ReconcileDependencies, readCurrent, refuseSecond, removeAbsent } from './reconcile-steps.ts'
import { chunkMapOf } from './source-chunks.ts'
import { hasKey, planReads, type TargetedGroup } from './target-reads.ts'

const readAtOnce = 1_000
/** The number of shards that one lane asks at the same time. */
const groupsAtOnce = 4

/**
 * Reads the documents that no event contained, writes each batch, and then deletes those that the source does not have.
 *
 * A router sends a read by `_id` to every shard, unless `_id` is the shard key. So a document is first asked for with the
 * shard key values of its event, from one shard (`reconcileTargeted`). It is asked for by `_id` alone if
 *
 * - it is not found there, because it was deleted, its key was changed, or the collection has another shard key now;
 * - an event of it is a delete, or its events have different keys. It may exist under another key, on another shard;
 * - the destination has the `_id` under another key. Either the key was changed, or the source has two documents with
 *   this `_id`, which only a read by `_id` finds, and which must not replace each other;
 * - the shard key in the catalog is `_id` alone, also if events already name the document by a refined key. The
 *   destination has no such key, by which it could tell two documents with this `_id` apart.
 *
 * Collections with a collation do not come here, because their changes are applied in order.
 * @param mayHaveDuplicates several shards of the source may have documents with one `_id` (`mayBeRepeated`)
 */
export async function reconcileUnread(
  dependencies: ReconcileDependencies,
  entry: CatalogEntry,
  unread: Identity[],
  notBefore: ClusterTime,
  mayHaveDuplicates: boolean,
): Promise<void> {
  const { source } = dependencies
  // The destination's key shows whether it has a document under another key. Without one, a document could be replaced
  // by another one with the same `_id`.
  const map = source.idsMayRepeat && isKeyed(entry) ? chunkMapOf(source, entry, dependencies.context.journal) : null
  if (!map) return await reconcileByIds(dependencies, entry, unread, notBefore, mayHaveDuplicates)
  const { groups, byId } = planReads(map, unread, ({ documentKey }) => documentKey)
  const again = [...byId]
  await inParallel(groupsAtOnce, groups, async (group) => {
    const isExact = (document: Buffer, { documentKey }: Identity) =>
      documentKey !== null && hasKey(document, documentKey, map.key)
    again.push(...(await reconcileTargeted(dependencies, entry, group, notBefore, isExact)))
  })
  await reconcileByIds(dependencies, entry, again, notBefore, mayHaveDuplicates)
}

/** Reads documents of one shard and writes them. Returns the identities that must be asked for by `_id`. */
async function reconcileTargeted(
  dependencies: ReconcileDependencies,
  entry: CatalogEntry,
  { items, conditions }: TargetedGroup<Identity>,
  notBefore: ClusterTime,
  isExact: (document: Buffer, identity: Identity) => boolean,
): Promise<Identity[]> {
  const { writer } = dependencies
  const identities = new Map(items.map((identity) => [identityKey(identity.idElement), identity]))
  const open = new Map(identities)
  const otherwise = new Map<IdentityKey, Identity>()
  const ids = items.map(({ idElement }) => idOf(idElement))
  const gone = await readCurrent(dependencies, entry, { ids, conditions }, notBefore, async (documents) => {
    const fresh: Buffer[] = []
    const known: Buffer[] = []
    const exact = new Set<IdentityKey>()
    for (const document of documents) {
      const key = identityKey(idElementOf(document))
      const identity = identities.get(key)
      if (!identity) continue
      if (!isExact(document, identity)) {
        otherwise.set(key, identity)
        continue
      }
      exact.add(key)
      const list = identity.fresh ? fresh : known
      list.push(document)
    }
    const update = async (): Promise<void> => {
      for (const document of await replaceInPlace(dependencies, entry, known)) {
        exact.delete(identityKey(idElementOf(document)))
      }
    }
    const insert = async (): Promise<void> => {
      for (const document of await writer.insertNew(entry, fresh)) exact.delete(identityKey(idElementOf(document)))
    }
    await allSettled([insert(), update()])
    for (const key of exact) open.delete(key)
  })
  return gone ? [] : [...new Map([...open, ...otherwise]).values()]
}

/**
 * Writes documents of which the destination has no other one with the same `_id`. Returns those that it has under
 * another key. They are not written, because the source must first be asked for all documents with this `_id`.
 */
export async function replaceInPlace(
  { writer, destination }: ReconcileDependencies,
  entry: CatalogEntry,
  documents: Buffer[],
): Promise<Buffer[]> {
  const elsewhere = await placedElsewhere(destination, entry, documents)
  const isElsewhere = (document: Buffer): boolean => elsewhere.has(identityKey(idElementOf(document)))
  await writer.upsertInPlace(
    entry,
    documents.filter((document) => !isElsewhere(document)),
  )
  return documents.filter(isElsewhere)
}

async function reconcileByIds(
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
    const gone = await readCurrent(dependencies, entry, { ids }, notBefore, async (documents) => {
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
  await removeAbsent(
    dependencies,
    entry,
    [...missing.values()].map(({ idElement }) => idElement),
  )
}
