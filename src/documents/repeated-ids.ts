import { setTimeout as sleep } from 'node:timers/promises'
import type { CatalogEntry } from '../domain/catalog.ts'
import type { ClusterTime } from '../domain/cluster-time.ts'
import { inParallel } from '../domain/in-parallel.ts'
import { type ShardKey, shardKeyValues } from '../domain/shard-key.ts'
import type { Cluster } from '../mongo/cluster.ts'
import { TransientReplyError } from '../mongo/errors.ts'
import { type DocumentsById, readComplete } from './complete-reads.ts'
import { betweenReadsMS, refuseDuplicate } from './duplicate-ids.ts'
import { type Identity, idElementOf, identityKey, idOf } from './identity.ts'
import { readExisting } from './placed-elsewhere.ts'
import {
  allSettled,
  isInsert,
  type ReconcileDependencies,
  readWhileMoving,
  removeAbsent,
  replace,
} from './reconcile-steps.ts'
import { shardsOf } from './shards-of.ts'
import { exactDelete } from './statements.ts'

/**
 * Several documents with one `_id`. Each shard enforces the uniqueness of `_id` only for its own documents, so a
 * collection whose shard key is not `_id` may hold such documents on different shards. They are different documents: an
 * event names one of them by its shard key values.
 *
 * Rule of this module: no step deletes a document that the source may still have. A later event need not name such a
 * document, so nothing would write it again if the attempt failed. Therefore all documents of the source with one `_id`
 * are known before anything with this `_id` is written.
 */

/** The number of `_id`s that are written at the same time. */
const idsAtOnce = 8

/** Makes the destination hold the same documents with these `_id`s as the source. */
export async function reconcileAll(
  dependencies: ReconcileDependencies,
  entry: CatalogEntry,
  identities: readonly Identity[],
  notBefore: ClusterTime,
): Promise<void> {
  const { writer } = dependencies
  await readComplete(dependencies, entry, identities, notBefore, async (part, documents) => {
    const fresh: Buffer[] = []
    const known: Buffer[] = []
    const absent: Buffer[] = []
    const several: Identity[] = []
    for (const identity of part) {
      const found = documents.get(identityKey(identity.idElement)) ?? []
      const [document] = found
      if (!document) absent.push(identity.idElement)
      else if (found.length > 1) several.push(identity)
      else if (isInsert(identity, entry)) fresh.push(document)
      else known.push(document)
    }
    const insert = async (): Promise<void> => replace(dependencies, entry, await writer.insertNew(entry, fresh))
    await allSettled([
      insert(),
      replace(dependencies, entry, known),
      removeAbsent(dependencies, entry, absent),
      reconcileSeveral(dependencies, entry, several, documents, notBefore),
    ])
  })
}

/**
 * Writes documents of which the source has several with one `_id`. While a document moves between shards, a read may find
 * it on both. They are therefore read again before one of them is written under shard key values that the destination
 * does not have.
 */
async function reconcileSeveral(
  dependencies: ReconcileDependencies,
  entry: CatalogEntry,
  several: readonly Identity[],
  documents: DocumentsById,
  notBefore: ClusterTime,
): Promise<void> {
  if (several.length === 0) return
  const key = entry.shardKey ?? []
  const idElements = several.map(({ idElement }) => idElement)
  const existing = await readDestination(dependencies.destination, entry, idElements)
  const isKnown = ({ idElement }: Identity): boolean => {
    const id = identityKey(idElement)
    return (
      havePlacesOnce(documents.get(id), key) && placesOf(documents.get(id), key) === placesOf(existing.get(id), key)
    )
  }
  const confirmed = new Map(several.filter(isKnown).map((identity) => [identity, documents] as const))
  const unconfirmed = several.filter((identity) => !confirmed.has(identity))
  if (unconfirmed.length > 0) {
    await sleep(betweenReadsMS, undefined, { signal: dependencies.context.signal })
    await readComplete(dependencies, entry, unconfirmed, notBefore, async (part, again) => {
      for (const identity of part) confirmed.set(identity, again)
    })
  }
  await inParallel(idsAtOnce, [...confirmed], async ([{ idElement }, read]) => {
    const id = identityKey(idElement)
    await writeAll(dependencies, entry, idElement, read.get(id) ?? [], existing.get(id) ?? [])
  })
}

/**
 * Writes the documents with one `_id` that the destination does not have, and removes those that the source does not have.
 * @throws FatalError DuplicateDocumentId if the destination cannot hold all of them
 */
async function writeAll(
  dependencies: ReconcileDependencies,
  entry: CatalogEntry,
  idElement: Buffer,
  wanted: readonly Buffer[],
  existing: readonly Buffer[],
): Promise<void> {
  // One of them was moving between shards, or was deleted meanwhile.
  if (wanted.length === 0) return await removeAbsent(dependencies, entry, [idElement])
  if (wanted.length === 1) return await replace(dependencies, entry, [...wanted])
  const { source, destination, writer } = dependencies
  const key = entry.shardKey ?? []
  if (!havePlacesOnce(wanted, key)) {
    await refuseDuplicate(source, entry, idElement, 'the shard key on the destination does not distinguish them')
    throw readWhileMoving()
  }
  const isIn = (documents: readonly Buffer[], document: Buffer): boolean =>
    documents.some((one) => one.equals(document))
  const removals = existing
    .filter((document) => !isIn(wanted, document))
    .map((document) => exactDelete(idElement, shardKeyValues(document, key), key))
  const inserted = wanted.filter((document) => !isIn(existing, document))
  const refused = await writer.replaceRepeated(entry, idElement, removals, inserted)
  if (!refused) return
  const now = (await readDestination(destination, entry, [idElement])).get(identityKey(idElement)) ?? []
  const others = wanted.filter((document) => document !== refused)
  const places = new Set(others.map((document) => placeOf(document, key)))
  // The copy has inserted this document, or a former version of one, meanwhile. The repeated attempt finds it.
  if (now.some((document) => !places.has(placeOf(document, key))))
    throw new TransientReplyError('the copy inserted one of the documents with the same _id')
  const [own, ...shards] = (await shardsOf(destination, entry, [refused, ...others])) ?? []
  if (own && shards.every((shard) => shard !== null && shard !== own))
    throw new TransientReplyError('the shard still has an orphaned document with the same _id')
  await refuseDuplicate(source, entry, idElement, 'the destination places two of them on one shard')
  throw readWhileMoving()
}

/** @throws MovedError if the destination's collection is not in the entry's namespace */
async function readDestination(
  destination: Cluster,
  entry: CatalogEntry,
  idElements: readonly Buffer[],
): Promise<DocumentsById> {
  const found: DocumentsById = new Map()
  for await (const documents of readExisting(destination, entry, { ids: idElements.map(idOf) })) {
    for (const document of documents) {
      const id = identityKey(idElementOf(document))
      found.set(id, [...(found.get(id) ?? []), document])
    }
  }
  return found
}

/** False if two of the documents have the same shard key values. */
function havePlacesOnce(documents: readonly Buffer[] = [], key: ShardKey): boolean {
  return new Set(documents.map((document) => placeOf(document, key))).size === documents.length
}

function placesOf(documents: readonly Buffer[] = [], key: ShardKey): string {
  return documents
    .map((document) => placeOf(document, key))
    .sort()
    .join(';')
}

function placeOf(document: Buffer, key: ShardKey): string {
  return shardKeyValues(document, key)
    .map((value) => value.toString('hex'))
    .join()
}
