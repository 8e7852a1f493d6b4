import { proveGone } from '../definitions/listing.ts'
import { type CatalogEntry, type Segment, segmentBytes } from '../domain/catalog.ts'
import { isCapped } from '../domain/definition.ts'
import { bsonType } from '../domain/raw-bson.ts'
import type { Cluster } from '../mongo/cluster.ts'
import { renamedTo } from '../mongo/collection-name.ts'
import { sampleIds, sizeOf } from '../mongo/sample.ts'

const segmentsMax = 2_000
/** A collection gets at most one segment for each of this many documents, however large the documents are. */
const documentsPerSegment = 100
/** Sampled `_id`s per segment. More samples make the segments more even. */
const samplesPerSegment = 12

/**
 * Splits a collection into `_id` ranges. The first range has no lower bound and the last has no upper bound, so the
 * sample affects only the size of the ranges. Returns null when the collection was dropped on the source.
 */
export async function planCopy(source: Cluster, entry: CatalogEntry): Promise<Segment[] | null> {
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
      const splits = parts > 1 && !isCapped(entry.wanted.options) ? await splitPoints(source, collection, parts) : []
      return [null, ...splits].map((from, ordinal) => ({
        collection: entry.uuid,
        ordinal,
        priority: 0,
        from,
        to: splits[ordinal] ?? null,
        last: null,
        done: false,
        documents: 0,
        bytes: 0,
        wasOwn: false,
        claim: 0,
        attempts: 0,
      }))
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

async function splitPoints(
  source: Cluster,
  collection: Parameters<typeof sampleIds>[1],
  parts: number,
): Promise<Buffer[]> {
  const ids = await sampleIds(source, collection, parts * samplesPerSegment)
  const splits: Buffer[] = []
  for (let part = 1; part < parts; part++) {
    const id = ids[Math.floor((part * ids.length) / parts)]
    const previous = splits.at(-1)
    // The server refuses a range that begins at MaxKey.
    if (id && id[0] !== bsonType.maxKey && !(previous && Buffer.compare(previous, id) === 0)) splits.push(id)
  }
  return splits
}
