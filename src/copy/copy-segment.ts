import { proveGone } from '../definitions/listing.ts'
import { refuseDuplicate } from '../documents/duplicate-ids.ts'
import { existingIds } from '../documents/existing-ids.ts'
import { type IdentityKey, idElementOf, identityKey, idOf } from '../documents/identity.ts'
import { openNatural, openRange, readMaxKey, scanLimitMS } from '../documents/read-documents.ts'
import { type StatementError, writeStatements } from '../documents/write-documents.ts'
import { targetOf } from '../documents/write-identities.ts'
import type { CatalogueEntry, Segment } from '../domain/catalogue.ts'
import type { ClusterTime } from '../domain/cluster-time.ts'
import { isCapped } from '../domain/definition.ts'
import { StoppedError } from '../domain/errors.ts'
import { bsonType, findSpan, typedValue } from '../domain/raw-bson.ts'
import { isKeyed } from '../domain/shard-key.ts'
import type { Cluster, RawCursor } from '../mongo/cluster.ts'
import { renamedTo, type SourceCollection } from '../mongo/collection-name.ts'
import { code, codeOf, TransientReplyError } from '../mongo/errors.ts'
import type { Metadata } from '../mongo/metadata.ts'
import { type Progressed, type RetryContext, retry } from '../mongo/retry.ts'
import type { Throttle } from '../throttle/throttle.ts'
import type { SegmentProgress } from './segment-progress.ts'

/** Bytes per read batch and so per insert: two of them are in memory for each segment being copied. */
const batchBytesMax = 4 * 1024 * 1024
const batchDocumentsMax = 10_000

export interface CopySegmentParts {
  source: Cluster
  destination: Cluster
  metadata: Metadata
  ledger: SegmentProgress
  /** How fast it may be, and how many batches are read and written at a time. */
  throttle: Throttle
  context: RetryContext
  /** Reads see at least this time: every later change is in the stream. */
  startTime: ClusterTime
  nextOrder: (count: number) => number
  isKnown: (entry: CatalogueEntry) => boolean
  /** The catalogue as the coordinator has stored it by now. */
  reload: () => Promise<void>
}

/**
 * Copies one range from the last acknowledged `_id` on, reading one batch ahead of the write under way. Resolves when
 * the range is on the destination or the collection is gone. An interrupted cursor is reopened where it stopped.
 */
export async function copySegment(parts: CopySegmentParts, entry: CatalogueEntry, segment: Segment): Promise<void> {
  await retry(`copying ${entry.database}.${entry.name}`, parts.context, async (progressed) => {
    segment.attempts += 1
    parts.ledger.record(segment)
    try {
      await copyFrom(parts, entry, segment, progressed)
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

async function copyFrom(
  parts: CopySegmentParts,
  entry: CatalogueEntry,
  segment: Segment,
  progressed: Progressed,
): Promise<void> {
  const collection = { database: entry.database, name: entry.sourceName, uuid: entry.uuid }
  const natural = isCapped(entry.wanted.options)
  if (segment.last?.[0] === bsonType.maxKey) {
    // Nothing comes after MaxKey, and the server refuses a range that begins there.
    segment.done = true
    parts.ledger.record(segment)
    return
  }
  let batchSize = batchDocumentsMax
  if (natural) {
    // Natural order cannot be re-entered by _id: an interrupted read begins again, and what stands already is ignored.
    entry.copiedBytes -= segment.bytes
    segment.bytes = 0
    segment.documents = 0
  }
  const { throttle, context } = parts
  const firstBatchSize = Math.ceil((firstBatchDocuments * throttle.batchBytes(batchBytesMax)) / batchBytesMax)
  const bounds = { from: segment.last ?? segment.from, to: segment.to }
  const open = (): Promise<RawCursor> =>
    natural
      ? openNatural(parts.source, collection, parts.startTime, firstBatchSize)
      : openRange(parts.source, collection, bounds, parts.startTime, firstBatchSize)
  const cursor = await throttle.read(context.signal, open)
  const watch = parts.source.sharded && isKeyed(entry) ? new AdjacentIds(parts.source, entry) : null
  try {
    let reading = cursor.next()
    let first = true
    for (;;) {
      const batch = await reading
      if (!batch) break
      const bytes = bytesOf(batch.documents)
      throttle.spend(bytes)
      batchSize = sizeForNext(batch.documents.length, bytes, throttle.batchBytes(batchBytesMax), batchSize)
      // Read the next batch while this one is written. A failure of it is met when it is awaited.
      const options = { batchSize, timeoutMS: scanLimitMS }
      reading = throttle.read(context.signal, () => cursor.next(options))
      reading.catch(() => {})
      if (context.signal.aborted) throw new StoppedError()
      await watch?.look(batch.documents)
      await writeBatch(parts, entry, segment, first ? unrepeated(segment, batch.documents) : batch.documents, natural)
      // An interrupted read in natural order begins again.
      progressed(!natural)
      first &&= batch.documents.length === 0
      if (!parts.isKnown(entry)) break
    }
    await reading
    // A range without any bound has it.
    if (!natural && bounds.from && !bounds.to) await copyMaxKey(parts, entry, segment, collection)
  } finally {
    await cursor.close()
  }
  segment.done = true
  parts.ledger.record(segment)
}

async function copyMaxKey(
  parts: CopySegmentParts,
  entry: CatalogueEntry,
  segment: Segment,
  collection: SourceCollection,
): Promise<void> {
  for await (const documents of readMaxKey(parts.source, collection, parts.startTime)) {
    if (parts.isKnown(entry)) await writeBatch(parts, entry, segment, unrepeated(segment, documents), true)
  }
}

/**
 * Documents in the first batch, of a segment whose documents' size is not known yet: larger ones cost less CPU, but 1,000 of 10 KB
 * took 30 MB more memory. Fewer where the rate is limited.
 */
const firstBatchDocuments = 200

function sizeForNext(documents: number, bytes: number, bytesMax: number, previous: number): number {
  if (bytes === 0) return previous
  const fitting = Math.floor(bytesMax / (bytes / documents))
  return Math.max(1, Math.min(batchDocumentsMax, fitting))
}

function bytesOf(documents: Buffer[]): number {
  let bytes = 0
  for (const document of documents) bytes += document.length
  return bytes
}

/** Bounds are inclusive: the document after which this segment goes on comes again, and is not counted again. */
function unrepeated(segment: Segment, read: Buffer[]): Buffer[] {
  const again = segment.last && read[0] && Buffer.compare(idOf(idElementOf(read[0])), segment.last) === 0
  return again ? read.slice(1) : read
}

/** Two documents of one `_id` on two shards of the source stand beside each other in the order of `_id`. */
class AdjacentIds {
  readonly #source: Cluster
  readonly #entry: CatalogueEntry
  #last: IdentityKey | null = null
  constructor(source: Cluster, entry: CatalogueEntry) {
    this.#source = source
    this.#entry = entry
  }

  /** Throws FatalError DuplicateDocumentId. One that moved from shard to shard meanwhile has an event that settles it. */
  async look(documents: Buffer[]): Promise<void> {
    for (const document of documents) {
      const idElement = idElementOf(document)
      const key = identityKey(idElement)
      if (key === this.#last) await refuseDuplicate(this.#source, this.#entry, idElement)
      this.#last = key
    }
  }
}

async function writeBatch(
  parts: CopySegmentParts,
  entry: CatalogueEntry,
  segment: Segment,
  documents: Buffer[],
  natural: boolean,
): Promise<void> {
  const last = documents.at(-1)
  if (!last) return
  const write = (): ReturnType<typeof writeStatements> =>
    writeStatements(parts.destination, targetOf(entry), 'insert', documents)
  const failed = await parts.throttle.write(parts.context.signal, write)
  const refused: Buffer[] = []
  const idElementAt = ({ index }: StatementError): Buffer => idElementOf(documents[index] as Buffer)
  // Recorded unasked where shards keep _id unique each for itself.
  const isUnsure = (error: StatementError): boolean => error.code === code.duplicateKey && error.ofOtherIndex === null
  const unsure = isKeyed(entry) ? [] : failed.filter(isUnsure).map(idElementAt)
  const existing = await existingIds(parts.destination, targetOf(entry), unsure)
  for (const error of failed) {
    // What stands under the same _id is as new or newer: it was copied before, or an event wrote it.
    if (error.code === code.duplicateKey && error.ofOtherIndex === false) continue
    if (error.code === code.duplicateKey && existing.has(identityKey(idElementAt(error)))) continue
    if (error.code === code.collectionUUIDMismatch || error.code === code.namespaceNotFound) {
      if (!parts.isKnown(entry)) return // dropped by the events meanwhile
      // Perhaps by another instance, for events that this one has no part in.
      await parts.reload()
      throw new TransientReplyError('the collection moved on the destination')
    }
    refused.push(idElementAt(error))
  }
  if (refused.length > 0) {
    // An index refuses a document as it was read here; by the time the copy has ended it will have changed or gone.
    const first = parts.nextOrder(refused.length)
    const tombstones = refused.map((idElement, index) => ({ idElement, order: first + index, reorder: false }))
    await parts.metadata.tombstones.add(entry.uuid, tombstones)
    entry.hasTombstones = true
  }
  const id = findSpan(last, '_id')
  if (id && !natural) segment.last = typedValue(last, id)
  const bytes = bytesOf(documents)
  segment.bytes += bytes
  entry.copiedBytes += bytes
  segment.documents += documents.length
  parts.ledger.record(segment)
}
