import { canRepeatIds, refuseDuplicate } from '../documents/duplicate-ids.ts'
import { idElementOf, identityKey, idOf } from '../documents/identity.ts'
import { type RequestedDocuments, readDocuments } from '../documents/read-documents.ts'
import { chunkMapOf } from '../documents/source-chunks.ts'
import { hasKey, planReads } from '../documents/target-reads.ts'
import { type CatalogEntry, needsOneLane } from '../domain/catalog.ts'
import type { ClusterTime } from '../domain/cluster-time.ts'
import { assert } from '../domain/errors.ts'
import type { Mismatch } from '../domain/mismatch.ts'
import { isKeyed } from '../domain/shard-key.ts'
import type { BothClusters } from '../mongo/cluster.ts'
import { type CollectionToRead, MovedError, renamedTo } from '../mongo/collection-name.ts'
import { firstDifferingPath } from './field-path.ts'
import { digestOf } from './pair-documents.ts'
import type { Side } from './rechecks.ts'

export function onSource(entry: CatalogEntry): CollectionToRead {
  return { database: entry.database, name: entry.sourceName, uuid: entry.uuid }
}

/**
 * Takes the collection's new name from the error of a source read, so that reads use it before the rename event is
 * applied.
 */
export function followName(entry: CatalogEntry, error: unknown): void {
  entry.sourceName = renamedTo(error) ?? entry.sourceName
}

export function onDestination(entry: CatalogEntry): CollectionToRead {
  assert(entry.destinationUUID, 'a collection has no destination UUID')
  return { database: entry.database, name: entry.name, uuid: entry.destinationUUID }
}

/**
 * Bytes of source documents that are kept in memory while the destination is read. Of further documents, only the
 * digests are kept.
 */
const keptBytesMax = 4 * 1024 * 1024

/**
 * Reads the documents with these `_id`s from both clusters and returns the `_id` elements of those that are not equal
 * byte for byte. Throws MovedError when the collection was renamed or dropped.
 * @param documentKeys the document keys of events, by identity key. Each source document with such a key is read from
 * one shard. If it is not there, it is read by `_id`, as are all other documents of the source and all of the
 * destination
 */
export async function findDifferent(
  clusters: BothClusters,
  entry: CatalogEntry,
  idElements: readonly Buffer[],
  notBefore: ClusterTime,
  documentKeys: ReadonlyMap<string, Buffer> = new Map(),
): Promise<Buffer[]> {
  const expected = new Map<string, { contents: (Buffer | string)[]; idElement: Buffer }>()
  let keptBytes = 0
  const takeExpected = (document: Buffer): void => {
    const idElement = idElementOf(document)
    const key = identityKey(idElement)
    keptBytes += document.length
    const content = keptBytes > keptBytesMax ? digestOf(document) : document
    const known = expected.get(key)
    // Two documents on two shards may have the same `_id`.
    if (known) known.contents.push(content)
    else expected.set(key, { contents: [content], idElement: Buffer.from(idElement) })
  }
  const open = await eachTargeted(clusters, entry, idElements, documentKeys, notBefore, takeExpected)
  await eachDocument(clusters, 'source', entry, { ids: open.map(idOf) }, notBefore, takeExpected)
  const different = new Map<string, Buffer>()
  const ids = idElements.map(idOf)
  await eachDocument(clusters, 'destination', entry, { ids }, clusters.destination.latest, (document) => {
    const idElement = idElementOf(document)
    const key = identityKey(idElement)
    const contents = expected.get(key)?.contents ?? []
    const at = contents.findIndex((content) => isSame(content, document))
    if (at >= 0) contents.splice(at, 1)
    else different.set(key, Buffer.from(idElement))
  })
  for (const [key, { contents, idElement }] of expected) if (contents.length > 0) different.set(key, idElement)
  return [...different.values()]
}

/** Maximum number of documents that one `find` reads. */
export const comparedAtOnce = 1_000

/** Returns true if at least one of these documents differs, or if the collection was renamed or dropped meanwhile. */
export async function isAnyDifferent(
  clusters: BothClusters,
  entry: CatalogEntry,
  idElements: readonly Buffer[],
  notBefore: ClusterTime,
): Promise<boolean> {
  for (let from = 0; from < idElements.length; from += comparedAtOnce) {
    const part = idElements.slice(from, from + comparedAtOnce)
    const different = await findDifferent(clusters, entry, part, notBefore).catch((error) => {
      if (error instanceof MovedError) return part
      throw error
    })
    if (different.length > 0) return true
  }
  return false
}

/** `content` is a document or the digest of one. */
function isSame(content: Buffer | string, document: Buffer): boolean {
  return typeof content === 'string' ? content === digestOf(document) : content.equals(document)
}

export interface Explanation extends Pick<Mismatch, 'kind' | 'field'> {
  /** The `_id` element of the source's document, or of the destination's if only the destination has the document. */
  idElement: Buffer
}

/**
 * Returns how the documents with one `_id` differ, or null if they are equal now. Throws FatalError DuplicateDocumentId
 * when the source has several of them and the destination can hold only one.
 */
export async function explain(
  clusters: BothClusters,
  entry: CatalogEntry,
  idElement: Buffer,
): Promise<Explanation | null> {
  const sourceDocuments = await readAll(clusters, 'source', entry, idElement)
  if (sourceDocuments.length > 1 && !canRepeatIds(clusters.destination, entry))
    await refuseDuplicate(clusters.source, entry, idElement)
  const destinationDocuments = await readAll(clusters, 'destination', entry, idElement)
  const isIn = (documents: Buffer[], document: Buffer): boolean => documents.some((one) => one.equals(document))
  const [wanted, another] = sourceDocuments.filter((document) => !isIn(destinationDocuments, document))
  const [existing, second] = destinationDocuments.filter((document) => !isIn(sourceDocuments, document))
  if (!wanted) return existing ? { kind: 'extra', idElement: idElementOf(existing) } : null
  const own = { idElement: idElementOf(wanted) }
  // Several documents with this `_id` are on different shards; mongos does not enforce unique `_id`s across shards.
  if (second && !another) return { kind: 'extra', ...own }
  if (!existing || another) return { kind: 'missing', ...own }
  const field = firstDifferingPath(wanted, existing)
  return field === null ? null : { kind: 'content', field, ...own }
}

/** Reads all documents with this `_id`. There can be several only if they are on different shards. */
async function readAll(clusters: BothClusters, side: Side, entry: CatalogEntry, idElement: Buffer): Promise<Buffer[]> {
  const found: Buffer[] = []
  await eachDocument(clusters, side, entry, { ids: [idOf(idElement)] }, clusters[side].latest, (document) => {
    found.push(document)
  })
  return found
}

/**
 * Reads the source's documents whose document key is known, each from one shard. Returns the `_id` elements of the
 * documents that must still be read by `_id`.
 */
async function eachTargeted(
  clusters: BothClusters,
  entry: CatalogEntry,
  idElements: readonly Buffer[],
  documentKeys: ReadonlyMap<string, Buffer>,
  notBefore: ClusterTime,
  take: (document: Buffer) => void,
): Promise<readonly Buffer[]> {
  const { source } = clusters
  const isTargeted = documentKeys.size > 0 && source.idsMayRepeat && isKeyed(entry) && !needsOneLane(entry)
  const map = isTargeted ? chunkMapOf(source, entry) : null
  if (!map) return idElements
  const keyOf = (idElement: Buffer): Buffer | null => documentKeys.get(identityKey(idElement)) ?? null
  const { groups, byId } = planReads(map, idElements, keyOf)
  const open = [...byId]
  for (const { items, conditions } of groups) {
    const found = new Set<string>()
    const ambiguous = new Set<string>()
    const ids = items.map(idOf)
    await eachDocument(clusters, 'source', entry, { ids, conditions }, notBefore, (document) => {
      const idElement = idElementOf(document)
      const key = identityKey(idElement)
      const documentKey = keyOf(idElement)
      if (documentKey && !found.has(key) && hasKey(document, documentKey, map.key)) {
        found.add(key)
        take(document)
      } else ambiguous.add(key)
    })
    const isOpen = (key: string): boolean => !found.has(key) || ambiguous.has(key)
    open.push(...items.filter((idElement) => isOpen(identityKey(idElement))))
  }
  return open
}

async function eachDocument(
  clusters: BothClusters,
  side: Side,
  entry: CatalogEntry,
  requested: RequestedDocuments,
  notBefore: ClusterTime,
  take: (document: Buffer) => void,
): Promise<void> {
  const collection = side === 'source' ? onSource(entry) : onDestination(entry)
  try {
    for await (const documents of readDocuments(clusters[side], collection, requested, notBefore)) {
      documents.forEach(take)
    }
  } catch (error) {
    if (renamedTo(error) === undefined) throw error
    if (side === 'source') followName(entry, error)
    throw new MovedError('the collection was renamed or dropped while it was compared')
  }
}
