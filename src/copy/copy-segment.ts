import { idElementOf, idOf } from '../apply/identity.ts'
import { targetOf } from '../apply/write-identities.ts'
import type { CatalogueEntry, Segment } from '../domain/catalogue.ts'
import type { ClusterTime } from '../domain/cluster-time.ts'
import { isCapped } from '../domain/definition.ts'
import { StoppedError } from '../domain/errors.ts'
import { bsonType, findSpan, typedValue } from '../domain/raw-bson.ts'
import type { Cluster } from '../mongo/cluster.ts'
import { code, codeOf, TransientReplyError } from '../mongo/errors.ts'
import { proveGone } from '../mongo/listing.ts'
import type { Metadata } from '../mongo/metadata.ts'
import {
  openNatural,
  openRange,
  readMaxKey,
  renamedTo,
  type SourceCollection,
  scanLimitMS,
} from '../mongo/read-documents.ts'
import { type RetryContext, retry } from '../mongo/retry.ts'
import { writeStatements } from '../mongo/write-documents.ts'
import type { SegmentLedger } from './segment-ledger.ts'

/** Bytes per read batch and so per insert: two of them are in memory for each segment being copied. */
const batchBytes = 4 * 1024 * 1024
const batchDocumentsMax = 10_000

export interface CopySegmentParts {
  source: Cluster
  destination: Cluster
  metadata: Metadata
  ledger: SegmentLedger
  context: RetryContext
  /** Reads see at least this time: every later change is in the stream. */
  startTime: ClusterTime
  nextOrder: (count: number) => number
  isKnown: (entry: CatalogueEntry) => boolean
}

/**
 * Copies one range from the last acknowledged `_id` on, reading one batch ahead of the write under way. Resolves when
 * the range is on the destination or the collection is gone. An interrupted cursor is reopened where it stopped.
 */
export async function copySegment(parts: CopySegmentParts, entry: CatalogueEntry, segment: Segment): Promise<void> {
  await retry(`copying ${entry.database}.${entry.name}`, parts.context, async () => {
    segment.attempts += 1
    parts.ledger.note(segment)
    try {
      await copyFrom(parts, entry, segment)
    } catch (error) {
      if (codeOf(error) === code.cappedPositionLost) {
        // The capped collection's end overtook the reader. What was read stands; begin again at its present start.
        throw new TransientReplyError('a capped collection rolled over while it was read')
      }
      const name = renamedTo(error)
      if (name === undefined) throw error
      if (name === null) return await proveGone(parts.source, entry.database, entry.uuid) // its drop event follows
      entry.sourceName = name
      throw new TransientReplyError('the collection was renamed on the source')
    }
  })
}

async function copyFrom(parts: CopySegmentParts, entry: CatalogueEntry, segment: Segment): Promise<void> {
  const collection = { database: entry.database, name: entry.sourceName, uuid: entry.uuid }
  const natural = isCapped(entry.wanted.options)
  if (segment.last?.[0] === bsonType.maxKey) {
    // Nothing comes after MaxKey, and the server refuses a range that begins there.
    segment.done = true
    parts.ledger.note(segment)
    return
  }
  let batchSize = batchDocumentsMax
  if (natural) {
    // Natural order cannot be re-entered by _id: an interrupted read begins again, and what stands already is ignored.
    entry.copiedBytes -= segment.bytes
    segment.bytes = 0
    segment.documents = 0
  }
  const cursor = await (natural
    ? openNatural(parts.source, collection, parts.startTime, firstBatchSize)
    : openRange(
        parts.source,
        collection,
        { from: segment.last ?? segment.from, to: segment.to },
        parts.startTime,
        firstBatchSize,
      ))
  try {
    let reading = cursor.next()
    for (;;) {
      const batch = await reading
      if (!batch) break
      batchSize = sizeForNext(batch.documents, batchSize)
      // Read the next batch while this one is written. A failure of it is met when it is awaited.
      reading = cursor.next({ batchSize, timeoutMS: scanLimitMS })
      reading.catch(() => {})
      if (parts.context.signal.aborted) throw new StoppedError()
      await writeBatch(parts, entry, segment, batch.documents, natural)
      if (!parts.isKnown(entry)) break
    }
    await reading
    await copyMaxKey(parts, entry, segment, collection)
  } finally {
    await cursor.close()
  }
  segment.done = true
  parts.ledger.note(segment)
}

async function copyMaxKey(
  parts: CopySegmentParts,
  entry: CatalogueEntry,
  segment: Segment,
  collection: SourceCollection,
): Promise<void> {
  if (segment.to !== null || isCapped(entry.wanted.options)) return
  for await (const documents of readMaxKey(parts.source, collection, parts.startTime)) {
    if (parts.isKnown(entry)) await writeBatch(parts, entry, segment, documents, true)
  }
}

/** Nothing is known of the documents' size yet; larger batches cost less CPU, but 1,000 of 10 KB took 30 MB more memory. */
const firstBatchSize = 200

function sizeForNext(documents: Buffer[], previous: number): number {
  let bytes = 0
  for (const document of documents) bytes += document.length
  if (bytes === 0) return previous
  const fitting = Math.floor(batchBytes / (bytes / documents.length))
  return Math.max(1, Math.min(batchDocumentsMax, fitting))
}

async function writeBatch(
  parts: CopySegmentParts,
  entry: CatalogueEntry,
  segment: Segment,
  read: Buffer[],
  natural: boolean,
): Promise<void> {
  // Bounds are inclusive: the document after which this segment goes on comes again, and is not counted again.
  const again = segment.last && read[0] && Buffer.compare(idOf(idElementOf(read[0])), segment.last) === 0
  const documents = again ? read.slice(1) : read
  const last = documents.at(-1)
  if (!last) return
  const failed = await writeStatements(parts.destination, targetOf(entry), 'insert', documents)
  const refused: Buffer[] = []
  for (const error of failed) {
    // What stands under the same _id is as new or newer: it was copied before, or an event wrote it.
    if (error.code === code.duplicateKey) continue
    if (error.code === code.collectionUUIDMismatch || error.code === code.namespaceNotFound) {
      if (!parts.isKnown(entry)) return // dropped by the events meanwhile
      throw new TransientReplyError('the collection moved on the destination')
    }
    refused.push(idElementOf(documents[error.index] as Buffer))
  }
  if (refused.length > 0) {
    // An index refuses a document as it was read here; by the time the copy has ended it will have changed or gone.
    const first = parts.nextOrder(refused.length)
    const tombstones = refused.map((idElement, index) => ({ idElement, order: first + index, reorder: false }))
    await parts.metadata.addTombstones(entry.uuid, tombstones)
    entry.hasTombstones = true
  }
  const id = findSpan(last, '_id')
  if (id && !natural) segment.last = typedValue(last, id)
  for (const document of documents) segment.bytes += document.length
  for (const document of documents) entry.copiedBytes += document.length
  segment.documents += documents.length
  parts.ledger.note(segment)
}
