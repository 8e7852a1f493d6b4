import type { CatalogEntry } from '../domain/catalog.ts'
import type { KeyValues } from '../domain/choose-chunks.ts'
import { compareKeys } from '../domain/compare-values.ts'
import { namespace } from '../domain/namespace.ts'
import { bsonType, type RawFields } from '../domain/raw-bson.ts'
import type { ShardKey } from '../domain/shard-key.ts'
import type { Cluster } from '../mongo/cluster.ts'
import { readShards, readZoneRanges } from '../mongo/config-database.ts'
import { minKey } from './sample-keys.ts'

export interface PlacedRange {
  /** Inclusive. */
  min: KeyValues
  /** Exclusive. */
  max: KeyValues
  shards: readonly string[]
}

/** Returns the zone ranges of the destination's collection, each with the shards of its zone that may receive chunks. */
export async function readPlacedRanges(
  destination: Cluster,
  entry: CatalogEntry,
  key: ShardKey,
  shards: readonly string[],
): Promise<PlacedRange[]> {
  const ranges = await readZoneRanges(destination, namespace(entry.database, entry.name))
  if (ranges.length === 0) return []
  const zones = new Map((await readShards(destination)).map((shard) => [shard.name, shard.zones]))
  const bound = (fields: RawFields): KeyValues => key.map((_field, at) => fields[at]?.value ?? minKey)
  return ranges.map(({ min, max, zone }) => ({
    ...{ min: bound(min), max: bound(max) },
    shards: shards.filter((shard) => zones.get(shard)?.includes(zone)),
  }))
}

/**
 * Returns the shards that may have a chunk that begins at these values: those of its zone, or all of `shards` if the
 * chunk is in no zone or all shards of its zone are draining.
 */
export function shardsFor(
  from: KeyValues,
  ranges: readonly PlacedRange[],
  shards: readonly string[],
): readonly string[] {
  const range = ranges.find(({ min, max }) => compareKeys(min, from) <= 0 && compareKeys(from, max) < 0)
  return range && range.shards.length > 0 ? range.shards : shards
}

/** Returns the values at which a zone range begins or ends, in order, without the bounds of the whole key space. */
export function edgesOf(ranges: readonly PlacedRange[]): KeyValues[] {
  const edges = ranges.flatMap(({ min, max }) => [min, max]).filter((values) => !isOutermost(values))
  return edges.filter((values, at) => at === 0 || compareKeys(edges[at - 1] as KeyValues, values) !== 0)
}

function isOutermost(values: KeyValues): boolean {
  return [bsonType.minKey, bsonType.maxKey].some((type) => values.every((value) => value[0] === type))
}
