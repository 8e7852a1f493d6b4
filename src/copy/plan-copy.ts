import { proveGone } from '../definitions/listing.ts'
import { type CatalogueEntry, type Segment, segmentBytes } from '../domain/catalogue.ts'
import { isCapped } from '../domain/definition.ts'
import { bsonType } from '../domain/raw-bson.ts'
import type { Cluster } from '../mongo/cluster.ts'
import { renamedTo } from '../mongo/collection-name.ts'
import { sampleIds, sizeOf } from '../mongo/sample.ts'

const segmentsMax = 2_000
/** Sampled `_id`s per cut: more make the segments more even. */
const samplesPerSegment = 12

/**
 * Cuts a collection into `_id` ranges. First and last are open-ended, so nothing depends on the sample but evenness.
 * Returns null when the collection is gone on the source.
 */
export async function planCopy(source: Cluster, entry: CatalogueEntry): Promise<Segment[] | null> {
  for (;;) {
    const collection = { database: entry.database, name: entry.sourceName, uuid: entry.uuid }
    try {
      const size = await sizeOf(source, collection)
      entry.estimatedBytes = size.bytes
      entry.estimatedDocuments = size.documents
      const parts = Math.min(segmentsMax, Math.ceil(size.bytes / segmentBytes), Math.ceil(size.documents / 100))
      const cuts = parts > 1 && !isCapped(entry.wanted.options) ? await cut(source, collection, parts) : []
      return [null, ...cuts].map((from, ordinal) => ({
        collection: entry.uuid,
        ordinal,
        rank: 0,
        from,
        to: cuts[ordinal] ?? null,
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

async function cut(source: Cluster, collection: Parameters<typeof sampleIds>[1], parts: number): Promise<Buffer[]> {
  const ids = await sampleIds(source, collection, parts * samplesPerSegment)
  const cuts: Buffer[] = []
  for (let part = 1; part < parts; part++) {
    const id = ids[Math.floor((part * ids.length) / parts)]
    const previous = cuts.at(-1)
    // The server refuses a range that begins at MaxKey.
    if (id && id[0] !== bsonType.maxKey && !(previous && Buffer.compare(previous, id) === 0)) cuts.push(id)
  }
  return cuts
}
