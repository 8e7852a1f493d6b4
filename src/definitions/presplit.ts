import type { CatalogEntry } from '../domain/catalog.ts'
import {
  assignShards,
  chooseChunks,
  type KeyValues,
  type PlannedChunk,
  splitAtValues,
} from '../domain/choose-chunks.ts'
import { compareKeys } from '../domain/compare-values.ts'
import { namespace } from '../domain/namespace.ts'
import type { RawFields } from '../domain/raw-bson.ts'
import { type ShardKey, sameShardKey } from '../domain/shard-key.ts'
import type { Cluster } from '../mongo/cluster.ts'
import { renamedTo } from '../mongo/collection-name.ts'
import { type Chunk, listShards, readChunks } from '../mongo/config-database.ts'
import { codeOf, isOwnTimeLimit, isTransient, ranOutOfTime } from '../mongo/errors.ts'
import { type CollectionSize, sizeOf } from '../mongo/sample.ts'
import { edgesOf, readPlacedRanges, shardsFor } from './placed-ranges.ts'
import { evenHashes, minKey, sampleKeys, samplesMax } from './sample-keys.ts'
import { readDistribution } from './sharding.ts'
import { SplitCollection } from './split-collection.ts'

/** The default chunk size of 6.0. */
const chunkBytes = 128 * 1024 * 1024
/**
 * Each chunk costs a majority-committed write on the config servers. This many chunks distribute the load and leave the
 * balancer enough chunks to move later. mongosync uses the same number.
 */
const chunksPerShardMax = 90
/**
 * Limits the splits to about a minute. Without this limit they could take an hour. A collection on more shards than
 * this still gets one chunk for each shard.
 */
const chunksMax = 2_000
const samplesPerChunk = 20

export interface PresplitContext {
  signal: AbortSignal
  /** Called with an error that may cause an uneven distribution of the collection. */
  uneven: (error: unknown) => void
  /** The number of chunks that the start request gives for a key whose first field is hashed. */
  numInitialChunks?: number | undefined
}

/**
 * Splits an empty collection into chunks and distributes them over the shards. If the source's collection has the same
 * shard key, its chunk boundaries are used, and a sample estimates the sizes of the chunks. Otherwise, and within a
 * chunk that is much larger than the others, the boundaries are sampled values. If the first field of the key is
 * hashed, the server has already created and distributed chunks. These are split further, and moved only if the
 * collection has zones. Each chunk of a zone goes to a shard of that zone. An even distribution depends on this function, and
 * the place of documents that share an `_id`, which need different shards. A refused move is logged, and a refused split is
 * ignored.
 * @param shards the shards that may receive chunks, beginning with the shard of the first chunks
 */
export async function presplit(
  source: Cluster,
  destination: Cluster,
  entry: CatalogEntry,
  key: ShardKey,
  shards: readonly string[],
  { signal, uneven, numInitialChunks }: PresplitContext,
): Promise<void> {
  if (shards.length < 2) return
  const located = { database: entry.database, name: entry.sourceName, uuid: entry.uuid }
  const size = await sizeOf(source, located).catch(nullIfGone)
  if (!size) return
  const target = new SplitCollection(destination, entry, key, { signal, uneven })
  const zones = await readPlacedRanges(destination, entry, key, shards)
  const existing = key[0]?.hashed ? await target.chunks() : null
  const planned = existing
    ? planHashedChunks(existing, key, size, shards.length, numInitialChunks)
    : await planChunks(source, entry, key, size, shards.length, uneven)
  if (zones.length === 0) {
    if (existing) return await splitFurther(target, existing, planned)
    if (planned.length === 1) return
  }
  const chunks = splitAtValues(planned, edgesOf(zones))
  const minimum = key.map(() => minKey)
  const assigned = assignShards(chunks, ({ from }) => shardsFor(from ?? minimum, zones, shards))
  // Adjacent chunks of one shard are moved as one chunk and split there, because a move takes much longer than a split.
  const regions = chunks.flatMap((chunk, at) =>
    assigned[at] === assigned[at - 1] ? [] : [{ from: chunk.from, shard: assigned[at] as string }],
  )
  for (const { from } of regions) await target.split(from)
  for (const chunk of await target.chunks()) {
    const region = regions.findLast(({ from }) => from === null || compareKeys(from, valuesOf(chunk.min)) <= 0)
    if (region) await target.move(chunk, region.shard)
  }
  const borders = new Set(regions.map(({ from }) => from))
  for (const { from } of chunks) if (!borders.has(from)) await target.split(from)
}

/** Splits the existing chunks. It moves none, because the server has placed no chunk on a draining shard. */
async function splitFurther(
  target: SplitCollection,
  existing: readonly Chunk[],
  planned: readonly PlannedChunk[],
): Promise<void> {
  const borders = boundariesOf(existing)
  for (const { from } of planned) {
    if (!borders.some((known) => from && compareKeys(known, from) === 0)) await target.split(from)
  }
}

function planHashedChunks(
  existing: readonly Chunk[],
  key: ShardKey,
  { bytes }: CollectionSize,
  shards: number,
  requested = 0,
): PlannedChunk[] {
  const max = Math.max(existing.length, requested || chunksMaxOf(shards))
  const wanted = Math.min(max, Math.max(existing.length, requested || Math.ceil(bytes / chunkBytes)))
  return chooseChunks(boundariesOf(existing), evenHashes(key, wanted * samplesPerChunk), wanted, max)
}

async function planChunks(
  source: Cluster,
  entry: CatalogEntry,
  key: ShardKey,
  size: CollectionSize,
  shards: number,
  uneven: (error: unknown) => void,
): Promise<PlannedChunk[]> {
  const { bytes, documents } = size
  const max = chunksMaxOf(shards)
  const known = await sourceBoundaries(source, entry, key)
  // The plan has at least as many chunks as the source's collection, up to `max`. If the source's collection has
  // another key, the plan has at least one chunk for each shard, or at least one chunk if there are fewer documents
  // than shards.
  const least = known ? known.length + 1 : documents < shards ? 1 : shards
  const wanted = Math.min(max, Math.max(least, Math.ceil(bytes / chunkBytes)))
  if (wanted === 1) return [{ from: null, weight: 1 }]
  const sourceShards = source.sharded ? (await listShards(source)).length : 1
  const count = Math.min(wanted * samplesPerChunk, samplesMax(size, sourceShards))
  const samples = count > 0 ? await sampleKeys(source, entry, key, count).catch(withoutSamples(uneven)) : []
  return chooseChunks(known ?? [], samples, wanted, max)
}

/** Returns no samples if the server refuses to sample or takes too long, because a retry would fail in the same way. */
function withoutSamples(uneven: (error: unknown) => void): (error: unknown) => KeyValues[] {
  return (error) => {
    const isRefused = codeOf(error) !== undefined && !isTransient(error)
    if (!isRefused && !ranOutOfTime(error) && !isOwnTimeLimit(error)) throw error
    uneven(error)
    return []
  }
}

function chunksMaxOf(shards: number): number {
  return Math.max(shards, Math.min(chunksPerShardMax * shards, chunksMax))
}

/** Returns the boundaries between the chunks of the source's collection, or null if it does not have this shard key. */
async function sourceBoundaries(source: Cluster, entry: CatalogEntry, key: ShardKey): Promise<KeyValues[] | null> {
  const distribution = await readDistribution(source, namespace(entry.database, entry.sourceName), entry.uuid)
  if (!distribution || !sameShardKey(distribution.key, key)) return null
  return boundariesOf(await readChunks(source, entry.uuid))
}

function boundariesOf(chunks: readonly Chunk[]): KeyValues[] {
  return chunks.slice(1).map(({ min }) => valuesOf(min))
}

function valuesOf(bound: RawFields): KeyValues {
  return bound.map(({ value }) => value)
}

/** Returns null if the error says that the source's collection was renamed or dropped. Such a collection is not split. */
function nullIfGone(error: unknown): CollectionSize | null {
  if (renamedTo(error) !== undefined) return null
  throw error
}
