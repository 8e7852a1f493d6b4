import { setTimeout as sleep } from 'node:timers/promises'
import type { CatalogEntry } from '../domain/catalog.ts'
import { namespace } from '../domain/namespace.ts'
import { bsonType, type TypedValue } from '../domain/raw-bson.ts'
import { type ShardKey, shardKeyValues } from '../domain/shard-key.ts'
import type { Cluster } from '../mongo/cluster.ts'
import { renamedTo } from '../mongo/collection-name.ts'
import { code, codeOf, isTransient, ranOutOfTime } from '../mongo/errors.ts'
import { RawCursor } from '../mongo/raw-cursor.ts'
import { RawValue } from '../mongo/raw-values.ts'
import { type CollectionSize, sizeOf } from '../mongo/sample.ts'
import { toUuid } from '../mongo/uuid.ts'

/** The default chunk size of 6.0. */
const chunkBytes = 128 * 1024 * 1024
/**
 * Each chunk costs a majority-committed write on the config servers. This many chunks distribute the load and leave the
 * balancer enough chunks to move later.
 */
const chunksPerShardMax = 8
const samplesPerChunk = 20
const minKey: TypedValue = Buffer.from([bsonType.minKey])
const sampleLimitMS = 10 * 60_000

/**
 * Splits the single chunk of an empty collection at values sampled from the source and distributes the chunks over the
 * shards. When the first field of the key is hashed, the server has already split and distributed the chunks. Only an
 * even distribution depends on this function, so refused splits and moves are ignored.
 */
export async function presplit(
  source: Cluster,
  destination: Cluster,
  entry: CatalogEntry,
  key: ShardKey,
  shards: readonly string[],
): Promise<void> {
  if (key[0]?.hashed || shards.length < 2) return
  const size = await sizeOf(source, { database: entry.database, name: entry.sourceName, uuid: entry.uuid }).catch(gone)
  if (!size || size.documents < shards.length) return
  const wanted =
    shards.length * Math.max(1, Math.min(chunksPerShardMax, Math.ceil(size.bytes / chunkBytes / shards.length)))
  const points = splitPoints(await sampleKeys(source, entry, key, wanted * samplesPerChunk), wanted)
  const name = namespace(entry.database, entry.name)
  const bound = (values: TypedValue[]): Map<string, RawValue> =>
    new Map(key.map(({ path }, at) => [path, new RawValue(values[at] as TypedValue)]))
  for (const point of points) await unlessRefused(destination.write('admin', { split: name, middle: bound(point) }))
  const least = key.map(() => minKey)
  const most = key.map(() => Buffer.from([bsonType.maxKey]))
  const edges = [least, ...points, most]
  // Adjacent chunks go to the same shard, so that a query on a range of keys reaches fewer shards.
  const perShard = Math.ceil((edges.length - 1) / shards.length)
  for (let at = 0; at + 1 < edges.length; at++) {
    const to = shards[Math.floor(at / perShard)]
    const bounds = [bound(edges[at] as TypedValue[]), bound(edges[at + 1] as TypedValue[])]
    // The chunk is empty, so its move usually takes less than the time limit of a write.
    const move = () => destination.write('admin', { moveChunk: name, bounds, to })
    await unlessRefused(whenFree(move))
  }
}

/** Sampled shard key values, sorted in key order. Text is compared by its bytes. */
async function sampleKeys(source: Cluster, entry: CatalogEntry, key: ShardKey, count: number): Promise<TypedValue[][]> {
  const projection = Object.fromEntries(key.map(({ path }) => [path, 1]))
  const cursor = await RawCursor.open(
    source,
    entry.database,
    {
      aggregate: entry.sourceName,
      pipeline: [
        { $sample: { size: count } },
        { $project: { _id: 0, ...projection } },
        { $sort: new Map(key.map(({ path }) => [path, 1])) },
      ],
      cursor: {},
      collation: { locale: 'simple' },
      collectionUUID: toUuid(entry.uuid),
    },
    sampleLimitMS,
  )
  try {
    const values: TypedValue[][] = []
    for (let batch = await cursor.next(); batch; batch = await cursor.next()) {
      for (const document of batch.documents) {
        const own = shardKeyValues(document, key)
        // The hash of a value is not known here, so a hashed field starts at MinKey.
        values.push(key.map(({ hashed }, at) => (hashed ? minKey : (own[at] as TypedValue))))
      }
    }
    return values
  } finally {
    await cursor.close()
  }
}

/** Up to `parts - 1` distinct values that divide the samples evenly. */
function splitPoints(samples: TypedValue[][], parts: number): TypedValue[][] {
  const points: TypedValue[][] = []
  const known = new Set(samples.slice(0, 1).map(textOf))
  for (let part = 1; part < parts; part++) {
    const point = samples[Math.floor((part * samples.length) / parts)]
    if (!point || known.has(textOf(point))) continue
    known.add(textOf(point))
    points.push(point)
  }
  return points
}

function textOf(values: TypedValue[]): string {
  return values.map((value) => value.latin1Slice()).join('\0')
}

/** Returns null if the error says that the source collection was renamed or dropped. Such a collection is not split. */
function gone(error: unknown): CollectionSize | null {
  if (renamedTo(error) !== undefined) return null
  throw error
}

/** Repeats a move that exceeds its time limit, or that a shard refuses because another chunk move is not finished. */
async function whenFree(move: () => Promise<unknown>): Promise<void> {
  for (let attempt = 1; ; attempt++) {
    try {
      await move()
      return
    } catch (error) {
      const mayPass = codeOf(error) === code.conflictingOperationInProgress || ranOutOfTime(error)
      if (!mayPass || attempt === moveAttemptsMax) throw error
      await sleep(moveAgainMS)
    }
  }
}

const moveAttemptsMax = 50
const moveAgainMS = 50

/**
 * Ignores errors of the server. It refuses to split at the minimum key or at an existing chunk boundary, and it may
 * refuse to move a chunk. Transient errors are thrown.
 */
async function unlessRefused(work: Promise<unknown>): Promise<void> {
  try {
    await work
  } catch (error) {
    if (codeOf(error) === undefined || isTransient(error)) throw error
  }
}
