import type { Document } from 'mongodb'
import type { ClusterTime } from '../domain/cluster-time.ts'
import { bsonType, type TypedValue } from '../domain/raw-bson.ts'
import { type Cluster, RawCursor, toTimestamp } from '../mongo/cluster.ts'
import { type SourceCollection, unlessGone } from '../mongo/collection-name.ts'
import { ranOutOfTime } from '../mongo/errors.ts'
import { RawValue } from '../mongo/raw-values.ts'
import { toUuid } from '../mongo/uuid.ts'

/** A source collection as a read names it. `name` is a hint: the UUID decides (see `whereIs`). */
/** Ids in one `$in`: bounded so that the command stays far below 16 MB even with long ids. */
const idsMax = 1_000
const idBytesMax = 1024 * 1024

/**
 * Reads wait for their time to be majority-committed; this bounds that wait together with the read itself. Less than the client
 * waits (30 s), so that the server's own answer comes first: it says that fewer `_id`s may pass.
 */
const readLimitMS = 25_000
/** For one batch of a scan, on a disk that is far behind. */
export const scanLimitMS = 120_000

/**
 * The documents that now stand under the given `_id`s, as bytes, in batches of at most 16 MB, read from the majority at
 * `notBefore` or later.
 * Under a collation one id may return a document whose `_id` is spelled differently. Throws 361
 * (CollectionUUIDMismatch) when the collection was renamed or dropped meanwhile.
 */
export async function* readByIds(
  cluster: Cluster,
  collection: SourceCollection,
  ids: TypedValue[],
  notBefore: ClusterTime,
): AsyncGenerator<Buffer[]> {
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
        filter: { _id: { $in: values } },
        batchSize: idsMax + 1,
        readConcern: { level: 'majority', afterClusterTime: toTimestamp(notBefore) },
        maxTimeMS: readLimitMS,
      })
      for (let batch = await cursor.next(); batch; batch = await cursor.next()) yield batch.documents
      size.passed()
      from += values.length
    } catch (error) {
      // The caller tries again, and shows that it does.
      if (ranOutOfTime(error)) size.halve(values.length)
      throw error
    } finally {
      await cursor?.close()
    }
  }
}

/**
 * How many `_id`s of a collection are read at a time, from one attempt to the next. The limit is the command's, however many there are: where a thousand cold documents of
 * megabytes take longer, the same thousand would be asked for again and again.
 */
class ReadSize {
  ids = idsMax
  #passed = 0

  halve(asked: number): void {
    this.ids = Math.max(1, Math.floor(asked / 2))
    this.#passed = 0
  }

  /** Grows again slowly: each attempt that is too large costs the whole time limit. */
  passed(): void {
    this.#passed += 1
    if (this.#passed < passedToGrow || this.ids === idsMax) return
    this.ids = Math.min(idsMax, this.ids * 2)
    this.#passed = 0
  }
}

const passedToGrow = 16
const readSizes = new WeakMap<Cluster, Map<string, ReadSize>>()
/** Collections whose sizes are kept for a cluster. */
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

/**
 * Opens a cursor over a range of `_id`s in index order. Bounds are `min`/`max` on the `_id` index: comparison operators
 * in a filter stay within one BSON type and would lose the documents of all others. A range with a lower bound ends
 * before `_id: MaxKey` even without an upper bound: that one is for `readMaxKey`.
 */
export async function openRange(
  cluster: Cluster,
  collection: SourceCollection,
  bounds: RangeBounds,
  notBefore: ClusterTime,
  batchSize: number,
): Promise<RawCursor> {
  return await openScan(cluster, collection, notBefore, batchSize, {
    hint: { _id: 1 },
    // A hint orders what each shard gives, but not what mongos makes of it.
    ...(cluster.sharded ? { sort: { _id: 1 } } : {}),
    ...(bounds.from ? { min: { _id: new RawValue(bounds.from) } } : {}),
    ...(bounds.to ? { max: { _id: new RawValue(bounds.to) } } : {}),
  })
}

/** The document whose `_id` is MaxKey, if there is one. */
export function readMaxKey(
  cluster: Cluster,
  collection: SourceCollection,
  notBefore: ClusterTime,
): AsyncGenerator<Buffer[]> {
  return readByIds(cluster, collection, [Buffer.from([bsonType.maxKey])], notBefore)
}

/** Opens a cursor in natural order: for capped collections, whose order is part of their content. */
export async function openNatural(
  cluster: Cluster,
  collection: SourceCollection,
  notBefore: ClusterTime,
  batchSize: number,
): Promise<RawCursor> {
  return await openScan(cluster, collection, notBefore, batchSize, { hint: { $natural: 1 } })
}

async function openScan(
  cluster: Cluster,
  collection: SourceCollection,
  notBefore: ClusterTime,
  batchSize: number,
  shape: Document,
): Promise<RawCursor> {
  const readConcern = { level: 'majority', afterClusterTime: toTimestamp(notBefore) }
  return await openFind(cluster, collection, { ...shape, batchSize, readConcern }, scanLimitMS)
}

/**
 * A find that reads exactly this collection, whatever stands under its name. Releases before 6.0 know no `collectionUUID`, but
 * find by the UUID itself, whatever the collection is called (measured on 5.0.32).
 */
async function openFind(
  cluster: Cluster,
  collection: SourceCollection,
  shape: Document,
  timeoutMS?: number,
): Promise<RawCursor> {
  const uuid = toUuid(collection.uuid)
  const command = cluster.before6 ? { find: uuid, ...shape } : { find: collection.name, ...shape, collectionUUID: uuid }
  return await unlessGone(cluster, RawCursor.open(cluster, collection.database, command, timeoutMS))
}
