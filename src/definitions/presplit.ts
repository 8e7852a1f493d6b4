import { setTimeout as sleep } from 'node:timers/promises'
import type { CatalogueEntry } from '../domain/catalogue.ts'
import { namespace } from '../domain/namespace.ts'
import { bsonType, type TypedValue } from '../domain/raw-bson.ts'
import { type ShardKey, shardKeyValues } from '../domain/shard-key.ts'
import { type Cluster, RawCursor } from '../mongo/cluster.ts'
import { renamedTo } from '../mongo/collection-name.ts'
import { code, codeOf, isTransient } from '../mongo/errors.ts'
import { RawValue } from '../mongo/raw-values.ts'
import { type CollectionSize, sizeOf } from '../mongo/sample.ts'
import { toUuid } from '../mongo/uuid.ts'

/** As large as the server lets a chunk of 6.0 become before its balancer moves it. */
const chunkBytes = 128 * 1024 * 1024
/** Each is a majority-committed write of the config servers: enough to spread, and for the balancer to go on with. */
const chunksPerShardMax = 8
const samplesPerChunk = 20
const minKey: TypedValue = Buffer.from([bsonType.minKey])
const sampleLimitMS = 10 * 60_000

/**
 * Cuts the one chunk of an empty collection at values drawn from the source and deals the pieces out to the shards in turn. A
 * collection hashed by its first field is cut and dealt out by the server already. Nothing but evenness depends on it: what
 * cannot be cut or moved is left as it is.
 */
export async function presplit(
  source: Cluster,
  destination: Cluster,
  entry: CatalogueEntry,
  key: ShardKey,
  shards: readonly string[],
): Promise<void> {
  if (key[0]?.hashed || shards.length < 2) return
  const size = await sizeOf(source, { database: entry.database, name: entry.sourceName, uuid: entry.uuid }).catch(gone)
  if (!size || size.documents < shards.length) return
  const wanted =
    shards.length * Math.max(1, Math.min(chunksPerShardMax, Math.ceil(size.bytes / chunkBytes / shards.length)))
  const points = cut(await sampleKeys(source, entry, key, wanted * samplesPerChunk), wanted)
  const name = namespace(entry.database, entry.name)
  const bound = (values: TypedValue[]): Map<string, RawValue> =>
    new Map(key.map(({ path }, at) => [path, new RawValue(values[at] as TypedValue)]))
  for (const point of points) await unlessRefused(destination.write('admin', { split: name, middle: bound(point) }))
  const least = key.map(() => minKey)
  const most = key.map(() => Buffer.from([bsonType.maxKey]))
  const edges = [least, ...points, most]
  // Neighbouring chunks go to one shard: fewer shards are asked for a range of keys.
  const perShard = Math.ceil((edges.length - 1) / shards.length)
  for (let at = 0; at + 1 < edges.length; at++) {
    const to = shards[Math.floor(at / perShard)]
    const bounds = [bound(edges[at] as TypedValue[]), bound(edges[at + 1] as TypedValue[])]
    const move = () => destination.write('admin', { moveChunk: name, bounds, to }, { timeoutMS: 0 })
    await unlessRefused(whenFree(move))
  }
}

/** Values of the key in the order of the key, text by its bytes. */
async function sampleKeys(
  source: Cluster,
  entry: CatalogueEntry,
  key: ShardKey,
  count: number,
): Promise<TypedValue[][]> {
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
        // What a value hashes to is not known here, so such a field begins at its least.
        values.push(key.map(({ hashed }, at) => (hashed ? minKey : (own[at] as TypedValue))))
      }
    }
    return values
  } finally {
    await cursor.close()
  }
}

/** Up to `parts - 1` different points that cut the samples evenly. */
function cut(samples: TypedValue[][], parts: number): TypedValue[][] {
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

/** The source's collection has been renamed or dropped since: its events follow, and this one is as good unsplit. */
function gone(error: unknown): CollectionSize | null {
  if (renamedTo(error) !== undefined) return null
  throw error
}

/** The shard may be just about to end the migration before. */
async function whenFree(move: () => Promise<unknown>): Promise<void> {
  for (let attempt = 1; ; attempt++) {
    try {
      await move()
      return
    } catch (error) {
      if (codeOf(error) !== code.conflictingOperationInProgress || attempt === moveAttemptsMax) throw error
      await sleep(moveAgainMS)
    }
  }
}

const moveAttemptsMax = 50
const moveAgainMS = 50

/** A point the server will not cut at (it is the least there is, or was cut at before), a chunk it will not move. */
async function unlessRefused(work: Promise<unknown>): Promise<void> {
  try {
    await work
  } catch (error) {
    if (codeOf(error) === undefined || isTransient(error)) throw error
  }
}
