import { NaturalScan } from '../documents/natural-scan.ts'
import { openBulkRange, openNatural } from '../documents/read-documents.ts'
import type { CatalogEntry, Segment } from '../domain/catalog.ts'
import { isCapped } from '../domain/definition.ts'
import { namespace } from '../domain/namespace.ts'
import { advanced, type NaturalRead } from '../domain/natural-order.ts'
import { findSpan, typedValue } from '../domain/raw-bson.ts'
import type { RawBatch, RawCursor } from '../mongo/raw-cursor.ts'
import type { CopySegmentParts } from './copy-segment.ts'

/** One read of the documents of a segment that are not copied yet. */
export interface SegmentRead {
  /** True if the next read after an interruption continues where this one stopped. */
  readonly resumes: boolean
  next(options?: Parameters<RawCursor['next']>[0]): Promise<RawBatch | null>
  /** Advances the segment's position. Call it when all documents of this batch and of earlier ones are acknowledged. */
  acknowledged(batch: RawBatch): void
  /** Called after the last batch. Throws a transient error if this read may have omitted documents. */
  confirm(): Promise<void>
  close(): Promise<void>
}

type Parts = Pick<CopySegmentParts, 'source' | 'startTime' | 'progressed' | 'progress' | 'context'>

/**
 * Opens a read of the rest of a segment.
 *
 * A range      The read continues at the last acknowledged `_id`.
 * `natural`    On a replica set, the read continues after the newest acknowledged batch whose token the server accepts,
 *              if the server process and its term as primary are still the same (`NaturalScan`). Otherwise, and through
 *              mongos, which accepts no resume tokens (`cluster_find_cmd.h` in the server's source), it starts at the
 *              beginning.
 * Capped       The read always starts at the beginning, because the insertion order is part of the content.
 */
export async function openSegment(
  parts: Parts,
  entry: CatalogEntry,
  segment: Segment,
  batchSize: number,
): Promise<SegmentRead> {
  const { source, startTime } = parts
  const collection = { database: entry.database, name: entry.sourceName, uuid: entry.uuid }
  if (segment.natural && !source.sharded) {
    const scan = await NaturalScan.open(source, collection, startTime, batchSize, segment.natural)
    if (!scan.resumed) beginAgain(parts, entry, segment, { ...segment.natural, server: scan.server, tokens: [] })
    return {
      resumes: scan.server !== null,
      next: (options) => scan.next(options),
      acknowledged: ({ recordToken }) => {
        if (segment.natural) segment.natural = advanced(segment.natural, recordToken)
      },
      confirm: () => scan.confirm(),
      close: () => scan.close(),
    }
  }
  if (segment.natural || isCapped(entry.wanted.options)) {
    const cursor = await openNatural(source, collection, startTime, batchSize)
    beginAgain(parts, entry, segment, segment.natural)
    return { ...unconfirmed(cursor), resumes: false, acknowledged: () => {} }
  }
  const bounds = { from: segment.last ?? segment.from, to: segment.to }
  return {
    ...unconfirmed(await openBulkRange(source, collection, bounds, startTime, batchSize)),
    resumes: true,
    acknowledged: ({ documents }) => {
      const last = documents.at(-1)
      const id = last && findSpan(last, '_id')
      if (last && id) segment.last = typedValue(last, id)
    },
  }
}

function unconfirmed(cursor: RawCursor): Pick<SegmentRead, 'next' | 'confirm' | 'close'> {
  return { next: (options) => cursor.next(options), confirm: async () => {}, close: () => cursor.close() }
}

/** Resets the progress of a segment whose read starts at the beginning. Documents that exist are not written again. */
function beginAgain(parts: Parts, entry: CatalogEntry, segment: Segment, natural: NaturalRead | null): void {
  if (natural && segment.bytes > 0) {
    const { bytes } = segment
    parts.context.journal?.('copy begins again', { namespace: namespace(entry.database, entry.name), bytes })
  }
  parts.progressed(-segment.bytes)
  segment.bytes = 0
  segment.documents = 0
  segment.natural = natural
  parts.progress.record(segment)
}
