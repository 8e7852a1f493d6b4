import { idElementOf, identityKey, idOf } from '../apply/identity.ts'
import type { CatalogueEntry } from '../domain/catalogue.ts'
import type { ClusterTime } from '../domain/cluster-time.ts'
import { assert } from '../domain/errors.ts'
import type { Cluster } from '../mongo/cluster.ts'
import { TransientReplyError } from '../mongo/errors.ts'
import { readByIds, renamedTo, type SourceCollection } from '../mongo/read-documents.ts'
import type { Mismatch } from './difference.ts'
import { firstDifferingPath } from './field-path.ts'
import { digestOf } from './pair-documents.ts'

export interface BothClusters {
  source: Cluster
  destination: Cluster
}

/** Neither cluster can be asked for this collection now: it is renamed or dropped, and the events that say so follow. */
export class MovedError extends TransientReplyError {
  constructor() {
    super('the collection moved while it was compared')
    this.name = 'MovedError'
  }
}

export function onSource(entry: CatalogueEntry): SourceCollection {
  return { database: entry.database, name: entry.sourceName, uuid: entry.uuid }
}

export function onDestination(entry: CatalogueEntry): SourceCollection {
  assert(entry.destinationUUID, 'a collection without counterpart')
  return { database: entry.database, name: entry.name, uuid: entry.destinationUUID }
}

/**
 * Reads the documents of these `_id`s on both clusters and returns the `_id` elements of those that are not byte for
 * byte the same. Only digests of one side are kept. Throws MovedError when the collection is not where it was.
 */
export async function findDifferent(
  clusters: BothClusters,
  entry: CatalogueEntry,
  idElements: readonly Buffer[],
  notBefore: ClusterTime,
): Promise<Buffer[]> {
  const ids = idElements.map(idOf)
  const expected = new Map<string, { digest: string; idElement: Buffer }>()
  await eachDocument(clusters.source, onSource(entry), ids, notBefore, (document) => {
    const idElement = idElementOf(document)
    expected.set(identityKey(idElement), { digest: digestOf(document), idElement: Buffer.from(idElement) })
  })
  const different: Buffer[] = []
  await eachDocument(clusters.destination, onDestination(entry), ids, clusters.destination.latest, (document) => {
    const idElement = idElementOf(document)
    const key = identityKey(idElement)
    const known = expected.get(key)
    expected.delete(key)
    if (known?.digest !== digestOf(document)) different.push(Buffer.from(idElement))
  })
  for (const { idElement } of expected.values()) different.push(idElement)
  return different
}

export interface Explanation extends Pick<Mismatch, 'kind' | 'field'> {
  /** Its `_id` element as the source spells it, or the destination where only that has it. */
  idElement: Buffer
}

/** What exactly differs in one document; null when it is equal now. */
export async function explain(
  clusters: BothClusters,
  entry: CatalogueEntry,
  idElement: Buffer,
): Promise<Explanation | null> {
  const wanted = await readOne(clusters.source, onSource(entry), idElement, clusters.source.latest)
  const standing = await readOne(clusters.destination, onDestination(entry), idElement, clusters.destination.latest)
  if (!wanted) return standing && { kind: 'extra', idElement: idElementOf(standing) }
  const own = { idElement: idElementOf(wanted) }
  if (!standing) return { kind: 'missing', ...own }
  const field = firstDifferingPath(wanted, standing)
  return field === null ? null : { kind: 'content', field, ...own }
}

async function readOne(
  cluster: Cluster,
  collection: SourceCollection,
  idElement: Buffer,
  notBefore: ClusterTime,
): Promise<Buffer | null> {
  let found: Buffer | null = null
  await eachDocument(cluster, collection, [idOf(idElement)], notBefore, (document) => {
    found = document
  })
  return found
}

async function eachDocument(
  cluster: Cluster,
  collection: SourceCollection,
  ids: Buffer[],
  notBefore: ClusterTime,
  take: (document: Buffer) => void,
): Promise<void> {
  try {
    for await (const documents of readByIds(cluster, collection, ids, notBefore)) documents.forEach(take)
  } catch (error) {
    if (renamedTo(error) === undefined) throw error
    throw new MovedError()
  }
}
