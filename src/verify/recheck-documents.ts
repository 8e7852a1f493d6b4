import { refuseDuplicate } from '../documents/duplicate-ids.ts'
import { idElementOf, identityKey, idOf } from '../documents/identity.ts'
import { readByIds } from '../documents/read-documents.ts'
import type { CatalogueEntry } from '../domain/catalogue.ts'
import type { ClusterTime } from '../domain/cluster-time.ts'
import { assert } from '../domain/errors.ts'
import type { Mismatch } from '../domain/mismatch.ts'
import type { BothClusters } from '../mongo/cluster.ts'
import { renamedTo, type SourceCollection } from '../mongo/collection-name.ts'
import { TransientReplyError } from '../mongo/errors.ts'
import { firstDifferingPath } from './field-path.ts'
import { digestOf } from './pair-documents.ts'
import type { Side } from './rechecks.ts'

/**
 * Neither cluster can be asked for this collection now: it is renamed or dropped, and the events that say so follow.
 */
export class MovedError extends TransientReplyError {
  constructor() {
    super('the collection moved while it was compared')
    this.name = 'MovedError'
  }
}

export function onSource(entry: CatalogueEntry): SourceCollection {
  return { database: entry.database, name: entry.sourceName, uuid: entry.uuid }
}

/**
 * A read on the source found it renamed: it is read under that name from now on, whatever is known of the event that
 * says so.
 */
export function followName(entry: CatalogueEntry, error: unknown): void {
  entry.sourceName = renamedTo(error) ?? entry.sourceName
}

export function onDestination(entry: CatalogueEntry): SourceCollection {
  assert(entry.destinationUUID, 'a collection without counterpart')
  return { database: entry.database, name: entry.name, uuid: entry.destinationUUID }
}

/**
 * Documents of one side that are kept while the other side is read, in bytes; of those beyond it only digests are kept.
 */
const keptBytesMax = 4 * 1024 * 1024

/**
 * Reads the documents of these `_id`s on both clusters and returns the `_id` elements of those that are not byte for
 * byte the same. Throws MovedError when the collection is not where it was.
 */
export async function findDifferent(
  clusters: BothClusters,
  entry: CatalogueEntry,
  idElements: readonly Buffer[],
  notBefore: ClusterTime,
): Promise<Buffer[]> {
  const ids = idElements.map(idOf)
  const expected = new Map<string, { content: Buffer | string; idElement: Buffer }>()
  let keptBytes = 0
  await eachDocument(clusters, 'source', entry, ids, notBefore, (document) => {
    const idElement = idElementOf(document)
    const key = identityKey(idElement)
    keptBytes += document.length
    const content = keptBytes > keptBytesMax ? digestOf(document) : document
    // Two documents under one `_id`, on two shards: no one document on the destination is equal to both.
    expected.set(key, { content: expected.has(key) ? noDigest : content, idElement: Buffer.from(idElement) })
  })
  const different: Buffer[] = []
  await eachDocument(clusters, 'destination', entry, ids, clusters.destination.latest, (document) => {
    const idElement = idElementOf(document)
    const key = identityKey(idElement)
    const known = expected.get(key)
    expected.delete(key)
    if (!known || !isSame(known.content, document)) different.push(Buffer.from(idElement))
  })
  for (const { idElement } of expected.values()) different.push(idElement)
  return different
}

const noDigest = ''

/** `content` is a document or the digest of one. */
function isSame(content: Buffer | string, document: Buffer): boolean {
  return typeof content === 'string' ? content === digestOf(document) : content.equals(document)
}

export interface Explanation extends Pick<Mismatch, 'kind' | 'field'> {
  /** Its `_id` element as the source spells it, or the destination where only that has it. */
  idElement: Buffer
}

/**
 * What exactly differs in one document; null when it is equal now. Throws FatalError DuplicateDocumentId where the
 * source has two.
 */
export async function explain(
  clusters: BothClusters,
  entry: CatalogueEntry,
  idElement: Buffer,
): Promise<Explanation | null> {
  const [wanted, another] = await readAll(clusters, 'source', entry, idElement)
  if (another) await refuseDuplicate(clusters.source, entry, idElement)
  const [existing, second] = await readAll(clusters, 'destination', entry, idElement)
  if (!wanted) return existing ? { kind: 'extra', idElement: idElementOf(existing) } : null
  const own = { idElement: idElementOf(wanted) }
  // On another shard: the router lets both stand.
  if (second) return { kind: 'extra', ...own }
  if (!existing) return { kind: 'missing', ...own }
  const field = firstDifferingPath(wanted, existing)
  return field === null ? null : { kind: 'content', field, ...own }
}

/** More than one only where several shards hold one each. */
async function readAll(
  clusters: BothClusters,
  side: Side,
  entry: CatalogueEntry,
  idElement: Buffer,
): Promise<Buffer[]> {
  const found: Buffer[] = []
  await eachDocument(clusters, side, entry, [idOf(idElement)], clusters[side].latest, (document) => {
    found.push(document)
  })
  return found
}

async function eachDocument(
  clusters: BothClusters,
  side: Side,
  entry: CatalogueEntry,
  ids: Buffer[],
  notBefore: ClusterTime,
  take: (document: Buffer) => void,
): Promise<void> {
  const collection = side === 'source' ? onSource(entry) : onDestination(entry)
  try {
    for await (const documents of readByIds(clusters[side], collection, ids, notBefore)) documents.forEach(take)
  } catch (error) {
    if (renamedTo(error) === undefined) throw error
    if (side === 'source') followName(entry, error)
    throw new MovedError()
  }
}
