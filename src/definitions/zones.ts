import type { Document } from 'mongodb'
import type { CatalogEntry } from '../domain/catalog.ts'
import { errorText } from '../domain/error-text.ts'
import { FatalError } from '../domain/errors.ts'
import { both } from '../domain/in-parallel.ts'
import { namespace } from '../domain/namespace.ts'
import { notLost } from '../domain/not-lost.ts'
import { buildDocument, type RawFields } from '../domain/raw-bson.ts'
import type { Cluster } from '../mongo/cluster.ts'
import { readShards, readZoneRanges, type Shard, type ZoneRange } from '../mongo/config-database.ts'
import { codeOf, isTransient } from '../mongo/errors.ts'
import { RawValue } from '../mongo/raw-values.ts'

/**
 * Copies zones from a sharded source (https://www.mongodb.com/docs/manual/core/zone-sharding/). A zone is a set of
 * shards, so this is possible only where these shards have the same names on both clusters, or names that
 * `--shardNames` pairs.
 */

/**
 * Returns the names that shards of the destination should have, because shards of the source belong to one of these
 * zones, and that no shard of the destination has.
 */
export function shardsMissing(
  zones: ReadonlySet<string>,
  source: readonly Shard[],
  destination: readonly Shard[],
  { shardNames }: Pick<Cluster, 'shardNames'>,
): string[] {
  const names = new Set(destination.map(({ name }) => name))
  return source
    .filter((shard) => shard.zones.some((zone) => zones.has(zone)))
    .map(({ name }) => shardNames.get(name) ?? name)
    .filter((name) => !names.has(name))
}

/**
 * Gives the destination's collections the zone ranges that they have on the source, and adds the shards to these zones.
 * A collection that has no range on the source keeps its own ranges. Does nothing if one of the shards does not exist on
 * the destination. This is repeatable.
 * @param refused called for each change that the destination refuses; it may throw the error
 */
export async function copyZones(
  source: Cluster,
  destination: Cluster,
  entries: readonly CatalogEntry[],
  refused: Refused,
): Promise<void> {
  const change = changeOf(destination, refused)
  const sharded = entries.filter(({ shardKey }) => shardKey)
  if (!source.sharded || !destination.sharded || sharded.length === 0) return
  const [only] = sharded.length === 1 ? sharded : []
  const wanted = group(await readZoneRanges(source, only && namespace(only.database, only.sourceName)))
  const zoned = sharded.filter((entry) => wanted.has(namespace(entry.database, entry.sourceName)))
  if (zoned.length === 0) return
  const ranges = zoned.flatMap((entry) => wanted.get(namespace(entry.database, entry.sourceName)) ?? [])
  const zones = new Set(ranges.map(({ zone }) => zone))
  const [shards, existingShards] = await both(readShards(source), readShards(destination))
  if (shardsMissing(zones, shards, existingShards, source).length > 0) return
  const named = shards.map((shard) => ({ ...shard, name: source.shardNames.get(shard.name) ?? shard.name }))
  await addShards(change, zones, named, existingShards)
  const existing = group(await readZoneRanges(destination, only && namespace(only.database, only.name)))
  for (const entry of zoned) {
    const name = namespace(entry.database, entry.name)
    await copyRanges(
      change,
      { name, shown: destination.names.shown(name) },
      wanted.get(namespace(entry.database, entry.sourceName)) ?? [],
      existing.get(name) ?? [],
    )
  }
}

async function addShards(
  change: Change,
  zones: ReadonlySet<string>,
  shards: readonly Shard[],
  existing: readonly Shard[],
): Promise<void> {
  const known = new Map(existing.map(({ name, zones }) => [name, zones]))
  for (const shard of shards) {
    for (const zone of shard.zones) {
      if (!zones.has(zone) || known.get(shard.name)?.includes(zone)) continue
      await change(`${shard.name} in the zone ${zone}`, { addShardToZone: shard.name, zone })
    }
  }
}

/** Removes unwanted ranges first, because the server refuses a range that overlaps another. */
async function copyRanges(
  change: Change,
  { name, shown }: { name: string; shown: string },
  wanted: readonly ZoneRange[],
  existing: readonly ZoneRange[],
): Promise<void> {
  const update = (range: ZoneRange, zone: string | null): Promise<void> =>
    change(`a range of ${shown} in the zone ${range.zone}`, {
      updateZoneKeyRange: name,
      min: commandValue(range.min),
      max: commandValue(range.max),
      zone,
    })
  const [has, wants] = [new Set(existing.map(textOf)), new Set(wanted.map(textOf))]
  for (const range of existing) if (!wants.has(textOf(range))) await update(range, null)
  for (const range of wanted) if (!has.has(textOf(range))) await update(range, range.zone)
}

type Refused = (what: string, error: FatalError) => void
type Change = (what: string, command: Document) => Promise<void>

function changeOf(destination: Cluster, refused: Refused): Change {
  return async (what, command) => {
    try {
      await destination.write('admin', command, { withoutWriteConcern: true })
    } catch (error) {
      if (codeOf(error) === undefined || isTransient(error)) throw error
      refused(
        what,
        new FatalError(
          'ShardingFailed',
          `copying zones: the destination does not accept ${what} (${errorText(error)}). Fix the cause, or remove that zone on the source, and send resume. ${notLost.progress}`,
          { cause: error },
        ),
      )
    }
  }
}

function group(ranges: readonly ZoneRange[]): Map<string, ZoneRange[]> {
  const groups = new Map<string, ZoneRange[]>()
  for (const range of ranges) {
    const known = groups.get(range.namespace)
    if (known) known.push(range)
    else groups.set(range.namespace, [range])
  }
  return groups
}

function textOf({ min, max, zone }: ZoneRange): string {
  return [buildDocument(min), buildDocument(max)].map((bytes) => bytes.toString('base64')).join() + zone
}

function commandValue(bound: RawFields): Map<string, RawValue> {
  return new Map(bound.map(({ name, value }) => [name, new RawValue(value)]))
}
