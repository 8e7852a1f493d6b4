import { type ClientSession, type Document, ReadPreference } from 'mongodb'
import { type ClusterTime, laterOf } from '../domain/cluster-time.ts'
import { bsonType, type TypedValue } from '../domain/raw-bson.ts'
import { type Cluster, toTimestamp } from '../mongo/cluster.ts'
import { type CollectionToRead, unlessGone } from '../mongo/collection-name.ts'
import { ranOutOfTime } from '../mongo/errors.ts'
import { RawCursor } from '../mongo/raw-cursor.ts'
import { RawValue } from '../mongo/raw-values.ts'
import { toUuid } from '../mongo/uuid.ts'

/** The limits of the `_id`s in one `$in`. They keep the command far below 16 MB, even with long `_id`s. */
const idsMax = 1_000
const idBytesMax = 1024 * 1024

/**
 * The server's time limit of a read, which includes the wait until `notBefore` is majority-committed. It is shorter than
 * the client's limit (30 s), so that the server reports the timeout first. After this error, tandem reads fewer `_id`s
 * at a time.
 */
const readLimitMS = 25_000
/** The time limit of one batch of a scan. An overloaded disk needs a long one. */
export const scanLimitMS = 120_000

/** The documents that a read requests. */
export interface RequestedDocuments {
  /** Their `_id`s. */
  ids: TypedValue[]
  /** Further conditions that the documents must meet. A router decides by them which shards receive the read. */
  conditions?: readonly FieldCondition[]
  /** The top-level fields that are returned besides `_id`. By default, whole documents are returned. */
  fields?: readonly string[]
}

/** The condition that the field at this path has one of these values. */
export interface FieldCondition {
  path: string
  values: readonly TypedValue[]
}

/**
 * Reads the current documents with the given `_id`s with majority read concern, at `notBefore` or later. Yields them as
 * bytes, in batches of at most 16 MB. Under a collation, a returned document may have a different spelling of a
 * requested `_id`. Throws 361 (CollectionUUIDMismatch) when the collection was renamed or dropped in the meantime.
 */
export function readByIds(
  cluster: Cluster,
  collection: CollectionToRead,
  ids: TypedValue[],
  notBefore: ClusterTime,
): AsyncGenerator<Buffer[]> {
  return readDocuments(cluster, collection, { ids }, notBefore)
}

/** Does what `readByIds` does, with further conditions, and with a choice of fields. */
export async function* readDocuments(
  cluster: Cluster,
  collection: CollectionToRead,
  { ids, conditions = [], fields }: RequestedDocuments,
  notBefore: ClusterTime,
): AsyncGenerator<Buffer[]> {
  const meeting = conditions.map(({ path, values }) => [path, { $in: values.map((value) => new RawValue(value)) }])
  const shape = {
    // With conditions, the server could choose the index of the shard key, in which many documents may have one value.
    ...(conditions.length > 0 ? { hint: { _id: 1 } } : {}),
    ...(fields ? { projection: Object.fromEntries(['_id', ...fields].map((name) => [name, 1])) } : {}),
  }
  const size = readSize(cluster, collection.uuid)
  let from = 0
  while (from < ids.length) {
    const values: RawValue[] = []
    let bytes = 0
    while (from + values.length < ids.length && values.length < size.ids && bytes < idBytesMax) {
      const id = ids[from + values.length] as TypedValue
      bytes += id.length
      values.push(new RawValue(id))
    }
    let cursor: RawCursor | null = null
    try {
      cursor = await openFind(cluster, collection, {
        filter: { _id: { $in: values }, ...Object.fromEntries(meeting) },
        ...shape,
        batchSize: idsMax + 1,
        readConcern: { level: 'majority', afterClusterTime: toTimestamp(notBefore) },
        maxTimeMS: readLimitMS,
      })
      for (let batch = await cursor.next(); batch; batch = await cursor.next()) yield batch.documents
      size.succeeded()
      from += values.length
    } catch (error) {
      // The caller retries and logs it. The retry reads fewer documents at a time.
      if (ranOutOfTime(error)) size.halve(values.length)
      throw error
    } finally {
      await cursor?.close()
    }
  }
}

/**
 * The number of `_id`s of a collection that one command reads, kept across attempts. The time limit applies to the
 * whole command. A read of a thousand large, uncached documents may exceed the limit, and so would every retry of the
 * same size.
 */
class ReadSize {
  ids = idsMax
  #succeeded = 0

  halve(requested: number): void {
    this.ids = Math.max(1, Math.floor(requested / 2))
    this.#succeeded = 0
  }

  /** Grows slowly after successful reads, because each oversized attempt costs the whole time limit. */
  succeeded(): void {
    this.#succeeded += 1
    if (this.#succeeded < successesToGrow || this.ids === idsMax) return
    this.ids = Math.min(idsMax, this.ids * 2)
    this.#succeeded = 0
  }
}

/** The number of successful reads after which the size is doubled. */
const successesToGrow = 16
const readSizes = new WeakMap<Cluster, Map<string, ReadSize>>()
/** The largest number of collections per cluster whose sizes are kept. */
const readSizesMax = 10_000

function readSize(cluster: Cluster, uuid: string): ReadSize {
  const sizes = readSizes.get(cluster) ?? new Map<string, ReadSize>()
  readSizes.set(cluster, sizes)
  const known = sizes.get(uuid)
  if (known) return known
  if (sizes.size >= readSizesMax) sizes.clear()
  const size = new ReadSize()
  sizes.set(uuid, size)
  return size
}

export interface RangeBounds {
  /** Inclusive. */
  from: TypedValue | null
  /** Exclusive. */
  to: TypedValue | null
}

/** What a scan returns of each document. By default, the whole document. */
export interface ScanShape {
  projection?: Document
}

/**
 * Opens a cursor over a range of `_id`s in index order. The bounds are `min` and `max` on the `_id` index, because
 * comparison operators in a filter match only one BSON type and would miss documents of other types. A range with a
 * lower bound ends before `_id: MaxKey` even without an upper bound; `readMaxKey` reads that document.
 */
export async function openRange(
  cluster: Cluster,
  collection: CollectionToRead,
  bounds: RangeBounds,
  notBefore: ClusterTime,
  batchSize: number,
  shape: ScanShape = {},
): Promise<RawCursor> {
  return await openScan(cluster, collection, notBefore, batchSize, { ...rangeOf(cluster, bounds), ...shape })
}

/** A secondary that is further behind than this, in seconds, is not selected. It is the driver's lowest limit. */
const maxStalenessSeconds = 90
const secondaryPreferred = new ReadPreference('secondaryPreferred', undefined, { maxStalenessSeconds })

/**
 * Does what `openRange` does for the copy and the verifier's first pass. With `--copyReadPreference secondaryPreferred`
 * a secondary may answer. That is as consistent as a read from the primary, for these reasons:
 *
 * - Only majority-committed documents are read, so a rollback does not undo them.
 * - They are read at `notBefore` or later. Every later change has an event, and the events are applied, and rechecked by
 *   the verifier, with reads from the primary.
 * - The read is no older than any reply of the source that this process has received (`latest`). What tandem has learned
 *   from the primary, such as the existence of a collection, the secondary has applied too.
 * - Nothing relies on the order of two reads of different documents. An interrupted range continues on another member,
 *   possibly at an earlier time. A primary that does not know yet that it has been deposed may also answer at an earlier
 *   time. tandem therefore requires of no read more than these bounds.
 *
 * The secondaries of a shard are not read: when a chunk has moved away, a shard deletes the documents of the range without
 * waiting for cursors on its secondaries, so such a cursor could miss documents
 * (https://www.mongodb.com/docs/manual/reference/parameters/#mongodb-parameter-param.orphanCleanupDelaySecs).
 */
export async function openBulkRange(
  cluster: Cluster,
  collection: CollectionToRead,
  bounds: RangeBounds,
  notBefore: ClusterTime,
  batchSize: number,
  shape: ScanShape = {},
): Promise<RawCursor> {
  if (!cluster.readsSecondaries) return await openRange(cluster, collection, bounds, notBefore, batchSize, shape)
  const time = laterOf(notBefore, cluster.latest)
  const range = { ...rangeOf(cluster, bounds), ...shape }
  return await openScan(cluster, collection, time, batchSize, range, secondaryPreferred)
}

function rangeOf({ sharded }: Cluster, { from, to }: RangeBounds): Document {
  return {
    hint: { _id: 1 },
    // A hint orders the results of each shard, but not the results that mongos merges.
    ...(sharded ? { sort: { _id: 1 } } : {}),
    ...(from ? { min: { _id: new RawValue(from) } } : {}),
    ...(to ? { max: { _id: new RawValue(to) } } : {}),
  }
}

/** Reads the document whose `_id` is MaxKey, if it exists. */
export function readMaxKey(
  cluster: Cluster,
  collection: CollectionToRead,
  notBefore: ClusterTime,
): AsyncGenerator<Buffer[]> {
  return readByIds(cluster, collection, [Buffer.from([bsonType.maxKey])], notBefore)
}

/**
 * Opens a read in natural order that cannot be resumed: of a capped collection, whose order is part of its content, or of
 * any collection through mongos.
 */
export async function openNatural(
  cluster: Cluster,
  collection: CollectionToRead,
  notBefore: ClusterTime,
  batchSize: number,
): Promise<RawCursor> {
  return await openScan(cluster, collection, notBefore, batchSize, { hint: { $natural: 1 } })
}

/**
 * Opens a resumable read in natural order, in a session that stays at one member of a replica set. Only the primary
 * answers.
 * @param resumeAfter the token at which the read resumes; null for a read from the beginning
 */
export async function openNaturalIn(
  session: ClientSession,
  cluster: Cluster,
  collection: CollectionToRead,
  notBefore: ClusterTime,
  batchSize: number,
  resumeAfter: Document | null,
): Promise<RawCursor> {
  const command = findOf(cluster, collection, {
    hint: { $natural: 1 },
    $_requestResumeToken: true,
    ...(resumeAfter ? { $_resumeAfter: resumeAfter } : {}),
    batchSize,
    readConcern: { level: 'majority', afterClusterTime: toTimestamp(notBefore) },
  })
  const opening = RawCursor.openIn(session, cluster, collection.database, command, scanLimitMS, ReadPreference.primary)
  return await unlessGone(cluster, opening)
}

async function openScan(
  cluster: Cluster,
  collection: CollectionToRead,
  notBefore: ClusterTime,
  batchSize: number,
  shape: Document,
  readPreference?: ReadPreference,
): Promise<RawCursor> {
  const readConcern = { level: 'majority', afterClusterTime: toTimestamp(notBefore) }
  return await openFind(cluster, collection, { ...shape, batchSize, readConcern }, scanLimitMS, readPreference)
}

/**
 * Opens a find that reads exactly this collection, even when another collection has its name now. Releases before 6.0
 * do not support `collectionUUID`, but accept the UUID in place of the name (measured on 5.0.32).
 */
async function openFind(
  cluster: Cluster,
  collection: CollectionToRead,
  shape: Document,
  timeoutMS?: number,
  readPreference?: ReadPreference,
): Promise<RawCursor> {
  const command = findOf(cluster, collection, shape)
  return await unlessGone(cluster, RawCursor.open(cluster, collection.database, command, timeoutMS, readPreference))
}

function findOf(cluster: Cluster, collection: CollectionToRead, shape: Document): Document {
  const uuid = toUuid(collection.uuid)
  return cluster.before6 ? { find: uuid, ...shape } : { find: collection.name, ...shape, collectionUUID: uuid }
}
