import { proveGone } from '../definitions/listing.ts'
import { AdjacentIds } from '../documents/duplicate-ids.ts'
import { existingIds } from '../documents/existing-ids.ts'
import { idElementOf, identityKey, idOf } from '../documents/identity.ts'
import { readMaxKey, scanLimitMS } from '../documents/read-documents.ts'
import type { StatementError } from '../documents/write-documents.ts'
import { targetOf } from '../documents/write-identities.ts'
import { firstBatchSize, nextBatchSize, type ReadBatch } from '../domain/batch-size.ts'
import type { CatalogEntry, Segment } from '../domain/catalog.ts'
import type { ClusterTime } from '../domain/cluster-time.ts'
import { isCapped } from '../domain/definition.ts'
import { StoppedError } from '../domain/errors.ts'
import { bsonType } from '../domain/raw-bson.ts'
import { isKeyed, mayRepeatIds } from '../domain/shard-key.ts'
import type { Cluster } from '../mongo/cluster.ts'
import { type CollectionToRead, renamedTo } from '../mongo/collection-name.ts'
import { code, codeOf, TransientReplyError } from '../mongo/errors.ts'
import { measured } from '../mongo/measured.ts'
import { type Progressed, retry } from '../mongo/retry.ts'
import type { Throttle } from '../throttle/throttle.ts'
import { CopiedBefore } from './copied-before.ts'
import type { SegmentProgress } from './segment-progress.ts'
import { openSegment, type SegmentRead } from './segment-read.ts'
import { insertInto, recordIdentities, type SegmentWriteParts } from './segment-writes.ts'

/** The `_id` element of a document whose `_id` is MaxKey. */
export const maxKeyElement = Buffer.from([bsonType.maxKey, ...Buffer.from('_id\0')])

/** Bytes per read batch, and thus per insert. Each segment being copied has two batches in memory. */
const batchBytesMax = 4 * 1024 * 1024
const batchDocumentsMax = 10_000

export interface CopySegmentParts extends SegmentWriteParts {
  source: Cluster
  progress: SegmentProgress
  /** Reads include all changes up to this time. The change stream contains every later change. */
  startTime: ClusterTime
  /** Called with the bytes of each acknowledged batch; they are negative when the segment begins again. */
  progressed: (bytes: number) => void
}

/**
 * Copies one segment. The first read, and the read after an interruption, start at the position that `openSegment`
 * describes. Reads the next batch while the current one is written. Resolves when the segment is on the destination or
 * the collection was dropped.
 */
export async function copySegment(parts: CopySegmentParts, entry: CatalogEntry, segment: Segment): Promise<void> {
  await retry(`copying ${entry.database}.${entry.name}`, parts.context, async (progressed) => {
    segment.attempts += 1
    parts.progress.record(segment)
    try {
      await copyFrom(parts, entry, segment, progressed)
    } catch (error) {
      if (codeOf(error) === code.cappedPositionLost) {
        // The server deleted the document at the cursor's position. Documents that are already copied stay. The read
        // starts again at the document that is now the first.
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

async function copyFrom(
  parts: CopySegmentParts,
  entry: CatalogEntry,
  segment: Segment,
  progressed: Progressed,
): Promise<void> {
  const collection = { database: entry.database, name: entry.sourceName, uuid: entry.uuid }
  if (segment.last?.[0] === bsonType.maxKey) {
    // No document with another `_id` follows MaxKey, and the server refuses a range that begins there.
    if (mayRepeatIds(parts.source, parts.destination, entry)) await recordIdentities(parts, entry, [maxKeyElement])
    segment.done = true
    parts.progress.record(segment)
    return
  }
  let batchSize = batchDocumentsMax
  const { throttle, context } = parts
  const firstBatchSize = firstBatchOf(entry, limits(throttle))
  const endsBeforeMaxKey = (segment.last ?? segment.from) !== null && segment.to === null
  const open = (): Promise<SegmentRead> => openSegment(parts, entry, segment, firstBatchSize)
  const read = await throttle.read(context.signal, () => measured(context, 'copyRead', open))
  // In natural order, documents with the same `_id` are not adjacent. Collections that may have such documents are
  // therefore not copied in natural order (`CopyOrder`).
  const adjacentIds = segment.natural ? null : AdjacentIds.of(parts.source, parts.destination, entry)
  const copied = CopiedBefore.of(parts, entry, segment)
  try {
    let reading = read.next()
    let first = true
    for (;;) {
      const batch = await reading
      if (!batch) break
      const bytes = bytesOf(batch.documents)
      throttle.spend(bytes)
      batchSize = nextBatchSize({ documents: batch.documents.length, bytes }, limits(throttle), batchSize)
      // Reads the next batch while this one is written. The next iteration awaits it and throws its error.
      const options = { batchSize, timeoutMS: scanLimitMS }
      reading = throttle.read(context.signal, () => measured(context, 'copyRead', () => read.next(options)))
      reading.catch(() => {})
      if (context.signal.aborted) throw new StoppedError()
      const repeated = (await adjacentIds?.check(batch.documents)) ?? []
      const documents = first ? withoutRepeated(segment, batch.documents) : batch.documents
      // The dropped document may be another one with the same `_id`, if the copied one was deleted since.
      if (adjacentIds)
        repeated.push(...batch.documents.slice(0, batch.documents.length - documents.length).map(idElementOf))
      await recordIdentities(parts, entry, repeated)
      if (documents.length > 0 && (await writeBatch(parts, entry, documents, copied))) {
        read.acknowledged(batch)
        count(parts, segment, documents)
      }
      progressed(read.resumes)
      first &&= batch.documents.length === 0
      if (!parts.isKnown(entry)) break
    }
    await reading
    // A read without bounds already includes MaxKey.
    if (endsBeforeMaxKey) await copyMaxKey(parts, entry, segment, collection, adjacentIds)
    if (parts.isKnown(entry)) await read.confirm()
  } finally {
    await read.close()
  }
  segment.done = true
  parts.progress.record(segment)
}

async function copyMaxKey(
  parts: CopySegmentParts,
  entry: CatalogEntry,
  segment: Segment,
  collection: CollectionToRead,
  adjacentIds: AdjacentIds | null,
): Promise<void> {
  for await (const documents of readMaxKey(parts.source, collection, parts.startTime)) {
    const missing = withoutRepeated(segment, documents)
    const repeated = (await adjacentIds?.check(documents)) ?? []
    if (adjacentIds && missing.length < documents.length) repeated.push(maxKeyElement)
    await recordIdentities(parts, entry, repeated)
    if (missing.length === 0 || !parts.isKnown(entry)) continue
    if (await writeBatch(parts, entry, missing, null)) count(parts, segment, missing)
  }
}

/**
 * Number of documents in the first batch of a segment, when the size of the collection's documents is not known. A larger
 * batch costs less CPU, but 1,000 documents of 10 KB took 30 MB more memory. The batch is smaller when the rate is limited.
 */
const unmeasuredBatchDocuments = 200

/**
 * Returns the number of documents to read first. A small collection then fits into one reply. The batch aims at half of the
 * bytes, in case the first documents are larger than the average.
 */
export function firstBatchOf(
  size: Pick<CatalogEntry, 'estimatedBytes' | 'estimatedDocuments'>,
  { documents, bytes }: ReadBatch,
): number {
  const unmeasured = Math.ceil((unmeasuredBatchDocuments * bytes) / batchBytesMax)
  return firstBatchSize(size, { documents, bytes: bytes / 2 }, unmeasured)
}

function limits(throttle: Throttle): ReadBatch {
  return { documents: batchDocumentsMax, bytes: throttle.batchBytes(batchBytesMax) }
}

function bytesOf(documents: Buffer[]): number {
  let bytes = 0
  for (const document of documents) bytes += document.length
  return bytes
}

/** Removes the last copied document, which a resumed read returns again because its lower bound is inclusive. */
function withoutRepeated(segment: Segment, read: Buffer[]): Buffer[] {
  const isRepeated = segment.last && read[0] && Buffer.compare(idOf(idElementOf(read[0])), segment.last) === 0
  return isRepeated ? read.slice(1) : read
}

/**
 * Inserts documents, and records those that an index refuses. Returns false when an event dropped the collection in the
 * meantime.
 */
async function writeBatch(
  parts: CopySegmentParts,
  entry: CatalogEntry,
  read: Buffer[],
  copied: CopiedBefore | null,
): Promise<boolean> {
  const documents = copied ? await copied.missing(read) : read
  if (documents.length === 0) return true
  const failed = await insertInto(parts, entry, documents)
  if (!failed) return false
  const refused: Buffer[] = []
  const idElementAt = ({ index }: StatementError): Buffer => idElementOf(documents[index] as Buffer)
  // An error for which `ofOtherIndex` is null may come from the `_id` index or from another one. The read below shows
  // which `_id`s exist. When each shard enforces unique `_id`s only locally, these documents are recorded without a
  // read.
  const isUnsure = (error: StatementError): boolean => error.code === code.duplicateKey && error.ofOtherIndex === null
  const unsure = isKeyed(entry) ? [] : failed.filter(isUnsure).map(idElementAt)
  const existing = await existingIds(parts.destination, targetOf(entry), unsure)
  // If two shards of the source may have documents with the same `_id`, the existing document may be the other one,
  // whose event was applied before this copy. A collection that is sharded by another key than `_id` on the destination
  // is left out, because the identities of all events are recorded for it; a capped one, because it is never sharded.
  const mayBeAnother =
    mayRepeatIds(parts.source, parts.destination, entry) && !isKeyed(entry) && !isCapped(entry.wanted.options)
  for (const error of failed) {
    if (mayBeAnother) {
      refused.push(idElementAt(error))
      continue
    }
    // The existing document with the same _id is as new or newer: it was copied before, or an event wrote it.
    if (error.code === code.duplicateKey && error.ofOtherIndex === false) continue
    if (error.code === code.duplicateKey && existing.has(identityKey(idElementAt(error)))) continue
    refused.push(idElementAt(error))
  }
  copied?.inserted(documents.length, failed.length - refused.length)
  // An index refuses this version of the document. The source has the same index, so it has changed or deleted the
  // document since this version was read. The recorded documents are read again when the copy ends.
  await recordIdentities(parts, entry, refused)
  return true
}

/** Adds acknowledged documents to the progress of the segment. */
function count(parts: CopySegmentParts, segment: Segment, documents: Buffer[]): void {
  const bytes = bytesOf(documents)
  segment.bytes += bytes
  parts.progressed(bytes)
  parts.context.meter?.copied(documents.length, bytes)
  segment.documents += documents.length
  parts.progress.record(segment)
}
