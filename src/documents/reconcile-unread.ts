import type { CatalogEntry } from '../domain/catalog.ts'
import type { ClusterTime } from '../domain/cluster-time.ts'
import { inParallel } from '../domain/in-parallel.ts'
import { isKeyed } from '../domain/shard-key.ts'
import { canRepeatIds } from './duplicate-ids.ts'
import { type Identity, type IdentityKey, idElementOf, identityKey, idOf } from './identity.ts'
import { placedElsewhere } from './placed-elsewhere.ts'
import {
  allSettled,
  isInsert,
  type ReconcileDependencies,
  readCurrent,
  refuseSecond,
  removeAbsent,
  replace,
} from './reconcile-steps.ts'
import { deletedKeyOf, removeDeleted } from './remove-keyed.ts'
import { reconcileAll } from './repeated-ids.ts'
import { chunkMapOf } from './source-chunks.ts'
import { hasKey, planReads, type TargetedGroup } from './target-reads.ts'

const readAtOnce = 1_000
/** The number of shards from which one lane reads at the same time. */
const groupsAtOnce = 4

/**
 * Reads the documents that no event contained, writes each batch, and then deletes those that the source does not have.
 *
 * A router sends a read by `_id` to every shard, unless `_id` is the shard key. A document is therefore first read with
 * the shard key values of its event, from one shard (`reconcileTargeted`). It is read by `_id` alone if
 *
 * - it is not found there, because it was deleted, its key was changed, or the collection has another shard key now. If
 *   its only event is a delete, no further read is needed, because the document with that key is gone (`removeDeleted`);
 * - one of its several events is a delete, or its events name different keys. The document may then exist under another
 *   key, on another shard;
 * - the destination has the `_id` under another key. Either the key was changed, or the source has two documents with
 *   this `_id`. Only a read by `_id` finds both of them, and neither may replace the other;
 * - the shard key in the catalog is `_id` alone, even if events already name the document by a refined key. The
 *   destination does not have the refined key yet, by which it could tell two documents with this `_id` apart.
 *
 * Collections with a collation do not come here, because their changes are applied in order.
 * @param mayHaveDuplicates true if several shards of the source may have documents with one `_id` (`mayBeRepeated`)
 */
export async function reconcileUnread(
  dependencies: ReconcileDependencies,
  entry: CatalogEntry,
  unread: Identity[],
  notBefore: ClusterTime,
  mayHaveDuplicates: boolean,
): Promise<void> {
  const { source } = dependencies
  // The destination's shard key shows whether the destination has a document under another key. Without a shard key, a
  // document could be replaced by another one with the same `_id`.
  const map = source.idsMayRepeat && isKeyed(entry) ? chunkMapOf(source, entry, dependencies.context.journal) : null
  if (!map) return await reconcileByIds(dependencies, entry, unread, notBefore, mayHaveDuplicates)
  const keyOf = (identity: Identity) => identity.documentKey ?? deletedKeyOf(identity, entry, map.key)
  const { groups, byId } = planReads(map, unread, keyOf)
  const again = [...byId]
  await inParallel(groupsAtOnce, groups, async (group) => {
    const isExact = (document: Buffer, identity: Identity) => {
      const key = keyOf(identity)
      return key !== null && hasKey(document, key, map.key)
    }
    const open = await reconcileTargeted(dependencies, entry, group, notBefore, isExact)
    again.push(...open.otherwise)
    const gone = open.missing.filter((identity) => deletedKeyOf(identity, entry, map.key))
    again.push(...open.missing.filter((identity) => !gone.includes(identity)))
    again.push(...(await removeDeleted(dependencies, entry, gone)))
  })
  await reconcileByIds(dependencies, entry, again, notBefore, mayHaveDuplicates)
}

/** Identities that a read by their keys did not decide. */
interface Open {
  /** The source has no document under the key. */
  missing: Identity[]
  /** The document, or another one with its `_id`, has other shard key values on one of the clusters. */
  otherwise: Identity[]
}

/** Reads documents from one shard and writes them. Returns the identities that must be decided in another way. */
async function reconcileTargeted(
  dependencies: ReconcileDependencies,
  entry: CatalogEntry,
  { items, conditions }: TargetedGroup<Identity>,
  notBefore: ClusterTime,
  isExact: (document: Buffer, identity: Identity) => boolean,
): Promise<Open> {
  const { writer } = dependencies
  const identities = new Map(items.map((identity) => [identityKey(identity.idElement), identity]))
  const open = new Map(identities)
  const otherwise = new Map<IdentityKey, Identity>()
  /** Documents that the source has under their keys, whether they could be written or not. */
  const found = new Set<IdentityKey>()
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
      found.add(key)
      // This differs from `isInsert`: a document with several folded events is inserted too, because it has the key that
      // all these events name. If the destination has it under another key, a later event names that key.
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
  if (gone) return { missing: [], otherwise: [] }
  const isMissing = ([key]: [IdentityKey, Identity]): boolean => !found.has(key) && !otherwise.has(key)
  const missing = new Map([...open].filter(isMissing))
  const rest = new Map([...open, ...otherwise])
  for (const key of missing.keys()) rest.delete(key)
  return { missing: [...missing.values()], otherwise: [...rest.values()] }
}

/**
 * Writes the documents whose `_id` the destination has under no other key. Returns the other documents without writing
 * them, because all documents with their `_id`s must first be read from the source.
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
  const { writer, destination } = dependencies
  if (mayHaveDuplicates && canRepeatIds(destination, entry))
    return await reconcileAll(dependencies, entry, unread, notBefore)
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
        const identity = missing.get(key)
        const list = identity && isInsert(identity, entry) ? fresh : known
        missing.delete(key)
        list.push(document)
      }
      const insert = async () => replace(dependencies, entry, await writer.insertNew(entry, fresh))
      await allSettled([insert(), replace(dependencies, entry, known)])
    })
    if (gone) return
  }
  await removeAbsent(
    dependencies,
    entry,
    [...missing.values()].map(({ idElement }) => idElement),
  )
}
