import { setTimeout as sleep } from 'node:timers/promises'
import type { CatalogEntry } from '../domain/catalog.ts'
import type { ClusterTime } from '../domain/cluster-time.ts'
import { type ShardKey, shardKeyValues } from '../domain/shard-key.ts'
import type { Cluster } from '../mongo/cluster.ts'
import { MovedError, renamedTo } from '../mongo/collection-name.ts'
import { TransientReplyError } from '../mongo/errors.ts'
import { betweenReadsMS, canRepeatIds, refuseDuplicate } from './duplicate-ids.ts'
import { type IdentityKey, idElementOf, identityKey, idOf } from './identity.ts'
import { readDocuments } from './read-documents.ts'
import { type ReconcileDependencies, readCurrent } from './reconcile-steps.ts'
import { deleteStatement, keyedDelete } from './statements.ts'
import { movedText, targetOf } from './write-identities.ts'

/**
 * Several documents with one `_id`. Each shard enforces the uniqueness of `_id` only for its own documents, so a
 * collection whose shard key is not `_id` may hold such documents on different shards. They are different documents: an
 * event names one of them by its shard key values.
 */

/**
 * Makes the destination hold the same documents with these `_id`s as the source, of which a read by `_id` has found
 * several. While a document moves between shards, such a read may find it on both. tandem therefore reads these documents
 * again before it writes them under shard key values that the destination does not have.
 *
 * A failed attempt may leave the destination without some of these documents. The caller repeats it, also after a crash,
 * because the events are not acknowledged before.
 * @throws FatalError DuplicateDocumentId if the destination cannot hold all of these documents
 * @throws TransientReplyError if the source has only one such document, which was moving
 */
export async function reconcileRepeated(
  dependencies: ReconcileDependencies,
  entry: CatalogEntry,
  idElements: readonly Buffer[],
  notBefore: ClusterTime,
): Promise<void> {
  const { source, destination } = dependencies
  if (!canRepeatIds(destination, entry)) {
    for (const idElement of idElements) await refuseDuplicate(source, entry, idElement)
    throw moving()
  }
  const key = entry.shardKey ?? []
  const first = await readSource(dependencies, entry, idElements, notBefore)
  if (!first) return
  const existing = await readDestination(destination, entry, idElements)
  const isUnconfirmed = (idElement: Buffer): boolean => !haveSamePlaces(first, existing, identityKey(idElement), key)
  const unconfirmed = idElements.filter(isUnconfirmed)
  const wanted = new Map(first)
  if (unconfirmed.length > 0) {
    await sleep(betweenReadsMS, undefined, { signal: dependencies.context.signal })
    const second = await readSource(dependencies, entry, unconfirmed, notBefore)
    if (!second) return
    for (const idElement of unconfirmed) {
      const one = identityKey(idElement)
      wanted.set(one, second.get(one) ?? [])
    }
  }
  let wasMoving = false
  for (const idElement of idElements) {
    const one = identityKey(idElement)
    const documents = wanted.get(one) ?? []
    if (documents.length < 2) wasMoving = true
    else await writeRepeated(dependencies, entry, idElement, documents, existing.get(one) ?? [])
  }
  if (wasMoving) throw moving()
}

/** Writes the documents with one `_id` that the destination does not have, and removes those that the source does not have. */
async function writeRepeated(
  { source, destination, writer }: ReconcileDependencies,
  entry: CatalogEntry,
  idElement: Buffer,
  wanted: readonly Buffer[],
  existing: readonly Buffer[],
): Promise<void> {
  const key = entry.shardKey ?? []
  const isIn = (documents: readonly Buffer[], document: Buffer): boolean =>
    documents.some((one) => one.equals(document))
  const removed = existing.filter((document) => !isIn(wanted, document))
  const statements = removed.map((document) => keyedDelete(idElement, shardKeyValues(document, key), key))
  const areExpressed = statements.every((statement) => statement !== null)
  // No filter can express one of the shard key values, so all documents with the `_id` are written again.
  const removals = areExpressed ? statements : [deleteStatement(idElement, true)]
  const inserted = areExpressed ? wanted.filter((document) => !isIn(existing, document)) : wanted
  const refused = await writer.replaceRepeated(entry, idElement, removals, inserted)
  if (!refused) return
  const now = (await readDestination(destination, entry, [idElement])).get(identityKey(idElement)) ?? []
  const others = new Set(wanted.map((document) => placeOf(document, key)))
  others.delete(placeOf(refused, key))
  // The copy has inserted this document, or a former version of one, meanwhile. The repeated attempt finds it.
  if (now.some((document) => !others.has(placeOf(document, key)))) throw insertedByCopy()
  await refuseDuplicate(source, entry, idElement, 'the destination places two of them on one shard')
  throw moving()
}

type DocumentsById = Map<IdentityKey, Buffer[]>

function add(to: DocumentsById, documents: readonly Buffer[]): void {
  for (const document of documents) {
    const key = identityKey(idElementOf(document))
    // A slice would keep the whole batch in memory.
    const copy = Buffer.from(document)
    const known = to.get(key)
    if (known) known.push(copy)
    else to.set(key, [copy])
  }
}

/** Returns null if the source no longer has the collection. */
async function readSource(
  dependencies: ReconcileDependencies,
  entry: CatalogEntry,
  idElements: readonly Buffer[],
  notBefore: ClusterTime,
): Promise<DocumentsById | null> {
  const found: DocumentsById = new Map()
  const take = async (documents: Buffer[]): Promise<void> => add(found, documents)
  return (await readCurrent(dependencies, entry, { ids: idElements.map(idOf) }, notBefore, take)) ? null : found
}

/** @throws MovedError if the destination's collection is not in the entry's namespace */
async function readDestination(
  destination: Cluster,
  entry: CatalogEntry,
  idElements: readonly Buffer[],
): Promise<DocumentsById> {
  const found: DocumentsById = new Map()
  try {
    const batches = readDocuments(destination, targetOf(entry), { ids: idElements.map(idOf) }, destination.latest)
    for await (const documents of batches) add(found, documents)
  } catch (error) {
    if (renamedTo(error) !== undefined) throw new MovedError(movedText(destination, entry, error))
    throw error
  }
  return found
}

/** True if both clusters have the documents with this `_id` under the same shard key values. */
function haveSamePlaces(one: DocumentsById, other: DocumentsById, id: IdentityKey, key: ShardKey): boolean {
  const placesOf = (documents: readonly Buffer[] = []): string =>
    documents
      .map((document) => placeOf(document, key))
      .sort()
      .join(';')
  return placesOf(one.get(id)) === placesOf(other.get(id))
}

function placeOf(document: Buffer, key: ShardKey): string {
  return shardKeyValues(document, key)
    .map((value) => value.toString('hex'))
    .join()
}

const insertedByCopy = (): Error => new TransientReplyError('the copy inserted one of the documents with the same _id')
const moving = (): Error => new TransientReplyError('a document was read from two shards while it moved')
