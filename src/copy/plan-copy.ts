import { proveGone } from '../definitions/listing.ts'
import { type CatalogEntry, type Segment, segmentBytes } from '../domain/catalog.ts'
import { isCapped } from '../domain/definition.ts'
import type { Journal } from '../domain/journal.ts'
import { namespace } from '../domain/namespace.ts'
import { beforeNaturalRead } from '../domain/natural-order.ts'
import { bsonType, type TypedValue } from '../domain/raw-bson.ts'
import type { Cluster } from '../mongo/cluster.ts'
import { renamedTo } from '../mongo/collection-name.ts'
import { sampleIds, sizeOf } from '../mongo/sample.ts'
import type { CopyOrder } from './copy-order.ts'

const segmentsMax = 2_000
/** A collection gets at most one segment for each of this many documents, however large the documents are. */
const documentsPerSegment = 100
/** Sampled `_id`s per segment. More samples make the segments more even. */
const samplesPerSegment = 12

/**
 * Splits a collection into `_id` ranges. The first range has no lower bound and the last has no upper bound, so the
 * sample affects only the size of the ranges. A collection that is to be copied in natural order becomes one segment.
 * Returns null when the collection was dropped on the source.
 */
export async function planCopy(
  source: Cluster,
  entry: CatalogEntry,
  order: Pick<CopyOrder, 'decide'>,
  journal?: Journal,
): Promise<Segment[] | null> {
  for (;;) {
    const collection = { database: entry.database, name: entry.sourceName, uuid: entry.uuid }
    try {
      const size = await sizeOf(source, collection)
      entry.estimatedBytes = size.bytes
      entry.estimatedDocuments = size.documents
      const parts = Math.min(
        segmentsMax,
        Math.ceil(size.bytes / segmentBytes),
        Math.ceil(size.documents / documentsPerSegment),
      )
      const isSplit = parts > 1 && !isCapped(entry.wanted.options)
      const ids = isSplit ? await sampleIds(source, collection, parts * samplesPerSegment) : []
      const splits = splitPoints(ids, parts)
      const decision = isSplit ? await order.decide(entry, ids) : null
      if (decision) journal?.('copy order', { namespace: namespace(entry.database, entry.name), ...decision })
      if (decision?.order === 'natural') {
        return [{ ...segmentOf(entry, 0, null, null), natural: beforeNaturalRead(splits) }]
      }
      return [null, ...splits].map((from, ordinal) => segmentOf(entry, ordinal, from, splits[ordinal] ?? null))
    } catch (error) {
      const name = renamedTo(error)
      if (name === undefined) throw error
      if (name === null) {
        await proveGone(source, entry.database, entry.uuid)
        return null
      }
      entry.sourceName = name
    }
  }
}

function segmentOf(entry: CatalogEntry, ordinal: number, from: Buffer | null, to: Buffer | null): Segment {
  return {
    collection: entry.uuid,
    ordinal,
    priority: 0,
    from,
    to,
    last: null,
    natural: null,
    done: false,
    documents: 0,
    bytes: 0,
    wasOwn: false,
    claim: 0,
    attempts: 0,
  }
}

/** @param ids sampled `_id`s, in the order of the `_id` index */
function splitPoints(ids: readonly TypedValue[], parts: number): Buffer[] {
  const splits: Buffer[] = []
  for (let part = 1; part < parts; part++) {
    const id = ids[Math.floor((part * ids.length) / parts)]
    const previous = splits.at(-1)
    // The server refuses a range that begins at MaxKey.
    if (id && id[0] !== bsonType.maxKey && !(previous && Buffer.compare(previous, id) === 0)) splits.push(id)
  }
  return splits
}
