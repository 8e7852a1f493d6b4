import { proveGone } from '../definitions/listing.ts'
import { AdjacentIds } from '../documents/duplicate-ids.ts'
import { existingIds } from '../documents/existing-ids.ts'
import { type IdentityKey, idElementOf, identityKey, idOf } from '../documents/identity.ts'
import { batchBytes, firstBatchDocuments, RangeReader, sizeForNext } from '../documents/range-reader.ts'
import { openRange, readMaxKey } from '../documents/read-documents.ts'
import { targetOf } from '../documents/write-identities.ts'
import type { CatalogEntry, Segment } from '../domain/catalog.ts'
import { StoppedError } from '../domain/errors.ts'
import { bsonType } from '../domain/raw-bson.ts'
import { isKeyed } from '../domain/shard-key.ts'
import { type CollectionToRead, renamedTo } from '../mongo/collection-name.ts'
import { TransientReplyError } from '../mongo/errors.ts'
import type { RawCursor } from '../mongo/raw-cursor.ts'
import { type Progressed, retry } from '../mongo/retry.ts'
import { type AbsentOn, Alignment, type Side } from './align-documents.ts'
import { type CopySegmentParts, maxKeyElement } from './copy-segment.ts'
import { insertInto, movedOnDestination, recordIdentities } from './segment-writes.ts'

/** The approximate number of bytes in one insert of missing documents, to limit its memory. */
const insertBytes = 4 * 1024 * 1024

/**
 * Makes one range of a collection equal on both clusters when the destination already has documents in it. It reads the
 * range from both clusters and does not write equal documents. A document is decided when it is known to be equal,
 * missing or differing. A retry resumes at the last `_id` up to which the whole range is decided and its differences
 * are written (`segment.last`).
 *
 * A document that the destination lacks is inserted, as in a copy. A document that differs or that the source does not
 * have is only recorded: the bytes read may be older than an event that is already applied, so writing them could
 * bring an old version back. When the segments of all instances are stored as done, the owner of the document's
 * partition reconciles the recorded documents (`CopyEnds`). A segment is stored as done only after all its differences
 * are recorded, so no owner ends the copy too early.
 *
 * Through mongos, both sides are read in `_id` order, without orphans. The destination may hold several documents with
 * one `_id` on different shards. They are adjacent, and at most one of them is paired with the source's document. The
 * others are recorded. If the source holds several documents with one `_id`, their `_id` is recorded too, as in
 * `copySegment`. The owner of the partition makes all documents with a recorded `_id` equal.
 */
export async function convergeSegment(parts: CopySegmentParts, entry: CatalogEntry, segment: Segment): Promise<void> {
  await retry(`converging ${entry.database}.${entry.name}`, parts.context, async (progressed) => {
    segment.attempts += 1
    parts.progress.record(segment)
    try {
      await new SegmentConvergence(parts, entry, segment, progressed).run()
    } catch (error) {
      if (!parts.isKnown(entry)) return // an event dropped the collection in the meantime
      const name = renamedTo(error)
      if (name === undefined) throw error
      if (name === null) return await proveGone(parts.source, entry.database, entry.uuid) // its drop event follows
      entry.sourceName = name
      throw new TransientReplyError('the collection was renamed on the source')
    }
  })
}

class SegmentConvergence {
  readonly #parts: CopySegmentParts
  readonly #entry: CatalogEntry
  readonly #segment: Segment
  readonly #progressed: Progressed
  readonly #adjacentIds: AdjacentIds | null
  readonly #alignment = new Alignment((...asked) => this.#absentOn(...asked))
  /** Documents and bytes of the source that are decided but not yet counted in the segment. */
  #read = { documents: 0, bytes: 0 }
  #isDropped = false
  /** True if the destination had no document in the whole range when the range was read. */
  #isDestinationEmpty = false

  constructor(parts: CopySegmentParts, entry: CatalogEntry, segment: Segment, progressed: Progressed) {
    this.#parts = parts
    this.#entry = entry
    this.#segment = segment
    this.#progressed = progressed
    this.#adjacentIds = AdjacentIds.of(parts.source, parts.destination, entry)
  }

  async run(): Promise<void> {
    const { source, destination, throttle, startTime } = this.#parts
    const segment = this.#segment
    const isAtMaxKey = (): boolean => segment.last?.[0] === bsonType.maxKey
    // No document with another `_id` follows MaxKey, and the server refuses a range that begins there.
    if (isAtMaxKey()) {
      if (this.#adjacentIds) await recordIdentities(this.#parts, this.#entry, [maxKeyElement])
    } else {
      const bounds = { from: segment.last ?? segment.from, to: segment.to }
      const open = (side: Side): Promise<RawCursor> =>
        this.#readFrom(side, (collection) => {
          const [cluster, time] = side === 'source' ? [source, startTime] : [destination, destination.latest]
          return openRange(cluster, collection, bounds, time, firstBatchDocuments)
        })
      const cursors = await Promise.allSettled([open('source'), open('destination')])
      try {
        const [left, right] = cursors.map((one) => {
          if (one.status === 'rejected') throw one.reason
          return one.value
        }) as [RawCursor, RawCursor]
        await this.#compare(
          new RangeReader(left, (read) => throttle.read(this.#signal, read)),
          new RangeReader(right, (read) => this.#readFrom('destination', () => throttle.read(this.#signal, read))),
        )
        // A range with a lower bound and no upper bound ends before MaxKey, except in a clustered collection.
        if (bounds.from && !bounds.to && !this.#isDropped && !isAtMaxKey()) await this.#compareMaxKey()
      } finally {
        for (const one of cursors) if (one.status === 'fulfilled') await one.value.close()
      }
    }
    this.#count()
    segment.done = true
    this.#parts.progress.record(segment)
  }

  get #signal(): AbortSignal {
    return this.#parts.context.signal
  }

  async #compare(source: RangeReader, destination: RangeReader): Promise<void> {
    const alignment = this.#alignment
    const isWhole = this.#segment.last === null
    const sides = { source, destination }
    const bytesMax = this.#parts.throttle.batchBytes(batchBytes)
    let batchSize = firstBatchDocuments
    let checked = source.documents
    while (!this.#isDropped) {
      const before = source.bytes
      const [left, right] = await Promise.all([source.fill(), destination.fill()])
      if (this.#signal.aborted) throw new StoppedError()
      this.#parts.throttle.spend(source.bytes - before)
      if (!left && !right) break
      const { documents, at } = source
      if (documents !== checked)
        await recordIdentities(this.#parts, this.#entry, (await this.#adjacentIds?.check(documents)) ?? [])
      checked = documents
      const only: Side | null = left && right ? null : left ? 'source' : 'destination'
      let decidedTo: Buffer | null
      if (only) {
        if (only === 'source') this.#isDestinationEmpty = isWhole && destination.count === 0
        sides[only].readAhead(batchSize)
        const remaining = sides[only].takeRemaining()
        alignment.decideRemaining(only, remaining)
        decidedTo = remaining.at(-1) ?? null
      } else {
        batchSize = sizeForNext(documents, bytesMax, batchSize)
        // Both sides read the same number of documents, so that equal documents have nearly equal positions.
        for (const reader of Object.values(sides)) reader.readAhead(batchSize)
        await alignment.align(sides)
        decidedTo = alignment.decided.lastCommon
      }
      for (const { length } of documents.slice(at, source.at)) this.#read.bytes += length
      this.#read.documents += source.at - at
      await this.#write(decidedTo)
      this.#progressed(decidedTo !== null)
    }
  }

  /**
   * Inserts missing documents and records differing ones. Then stores the `_id` of `decidedTo`, the document up to
   * which the range is decided; null leaves the stored `_id` unchanged.
   */
  async #write(decidedTo: Buffer | null): Promise<void> {
    const { missing, differing } = this.#alignment.take()
    const entry = this.#entry
    // When an `_id` may exist on several shards, no index refuses a second document, so an insert could add one.
    // Therefore missing documents are only recorded, like differing ones. If the range was empty on the destination,
    // they are inserted: only an event can have written a document with the same `_id` after the range was read, and the
    // application of that event has recorded its identity.
    if (isKeyed(entry) && !this.#isDestinationEmpty) differing.push(...missing.map(idElementOf))
    else for (const batch of batchesOf(missing)) differing.push(...(await this.#insert(batch)))
    if (this.#isDropped) return
    await recordIdentities(this.#parts, entry, differing)
    if (!decidedTo) return
    this.#segment.last = idOf(idElementOf(decidedTo))
    this.#count()
    this.#parts.progress.record(this.#segment)
  }

  #count(): void {
    const { documents, bytes } = this.#read
    this.#segment.documents += documents
    this.#segment.bytes += bytes
    this.#parts.progressed(bytes)
    this.#parts.context.meter?.copied(documents, bytes)
    this.#read = { documents: 0, bytes: 0 }
  }

  /**
   * Inserts documents, and returns the `_id` elements of those that were refused. An event may have written the
   * document in the meantime, or the destination may have a document whose `_id` has another BSON type and compares
   * equal.
   */
  async #insert(documents: Buffer[]): Promise<Buffer[]> {
    if (this.#signal.aborted) throw new StoppedError()
    const failed = this.#isDropped ? [] : await insertInto(this.#parts, this.#entry, documents)
    this.#isDropped ||= failed === null || !this.#parts.isKnown(this.#entry)
    return (failed ?? []).map(({ index }) => idElementOf(documents[index] as Buffer))
  }

  /** Returns the given `_id`s that the cluster of this side does not have. */
  async #absentOn(...[side, idElements]: Parameters<AbsentOn>): Promise<ReadonlySet<IdentityKey>> {
    const cluster = this.#parts[side]
    const existing = await this.#readFrom(side, (collection) => existingIds(cluster, collection, idElements))
    return new Set(idElements.map(identityKey).filter((key) => !existing.has(key)))
  }

  async #compareMaxKey(): Promise<void> {
    const { source, destination, startTime } = this.#parts
    const read = async (side: Side): Promise<Buffer[]> =>
      await this.#readFrom(side, async (collection) => {
        const [cluster, time] = side === 'source' ? [source, startTime] : [destination, destination.latest]
        const found: Buffer[] = []
        for await (const documents of readMaxKey(cluster, collection, time)) found.push(...documents)
        return found
      })
    const [left, right] = await Promise.all([read('source'), read('destination')])
    for (const { length } of left) this.#read.bytes += length
    this.#read.documents += left.length
    const areEqual = left.length === right.length && left.every((one, at) => right[at]?.equals(one))
    // When two shards hold a document with this `_id`, it is recorded, and the owner of the partition reconciles it.
    if (areEqual && left.length < 2) return
    await recordIdentities(this.#parts, this.#entry, [...left, ...right].slice(0, 1).map(idElementOf))
  }

  /**
   * Reads the collection of one side. After a rename or drop on the destination, this updates the entry and throws an
   * error that makes the caller retry. The caller handles a rename or drop on the source.
   */
  async #readFrom<T>(side: Side, read: (collection: CollectionToRead) => Promise<T>): Promise<T> {
    const { database, sourceName, uuid } = this.#entry
    if (side === 'source') return await read({ database, name: sourceName, uuid })
    return await read(targetOf(this.#entry)).catch(async (error) => {
      throw renamedTo(error) === undefined ? error : await movedOnDestination(this.#parts, this.#entry)
    })
  }
}

function* batchesOf(documents: Buffer[]): Generator<Buffer[]> {
  let batch: Buffer[] = []
  let bytes = 0
  for (const document of documents) {
    batch.push(document)
    bytes += document.length
    if (bytes < insertBytes) continue
    yield batch
    batch = []
    bytes = 0
  }
  if (batch.length > 0) yield batch
}
