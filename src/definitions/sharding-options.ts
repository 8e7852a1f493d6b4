import type { CatalogEntry } from '../domain/catalog.ts'
import { deferredOptionsOf, type IndexSpecification } from '../domain/definition.ts'
import { namespace } from '../domain/namespace.ts'
import { bsonType, embedded, fieldNamed, readFields } from '../domain/raw-bson.ts'
import { requestedShardKey, type ShardKey, sameShardKey, supportsShardKey } from '../domain/shard-key.ts'
import type { Cluster } from '../mongo/cluster.ts'
import { readZoneRanges } from '../mongo/config-database.ts'
import { readDistribution, type ShardingEntries } from './sharding.ts'

/**
 * The options with which a collection of the destination is sharded, apart from its key: those that the source's
 * collection has, or those that the start request gives when the source is a replica set.
 */
export interface ShardingOptions {
  /** The values of the key are unique. `config.collections` stores it. */
  unique: boolean
  /** The number of chunks before the copy; undefined if the request leaves it to tandem. */
  numInitialChunks?: number | undefined
  /** The server creates the chunks by the zones of the collection. */
  presplitHashedZones: boolean
}

export async function readShardingOptions(
  source: Cluster,
  destination: Cluster,
  shardingEntries: ShardingEntries,
  entry: CatalogEntry,
  key: ShardKey,
): Promise<ShardingOptions> {
  if (source.sharded) {
    const found = await readDistribution(source, namespace(entry.database, entry.sourceName), entry.uuid)
    return { unique: found?.unique === true && sameShardKey(found.key, key), presplitHashedZones: false }
  }
  const requested = shardingEntries.find(
    ({ database, collection, shardCollection }) =>
      database === entry.database &&
      collection === entry.name &&
      sameShardKey(requestedShardKey(shardCollection.key), key),
  )
  const { unique = false, numInitialChunks, presplitHashedZones = false } = requested?.shardCollection ?? {}
  if (!presplitHashedZones) return { unique, numInitialChunks, presplitHashedZones }
  // The server refuses the option without zones, and it removes the zone ranges of a collection that is dropped.
  const isZoned = (await readZoneRanges(destination, namespace(entry.database, entry.name))).length > 0
  return {
    unique,
    numInitialChunks: isZoned || key[0]?.hashed ? numInitialChunks : undefined,
    presplitHashedZones: isZoned,
  }
}

/**
 * True if one of the indexes makes the values of the shard key unique: it is unique and has exactly the fields of the
 * key. The `_id` index, which `indexes` need not contain, does so for the key `_id`.
 */
export function isUniquelyIndexed(indexes: readonly IndexSpecification[], key: ShardKey): boolean {
  if (key.length === 1 && key[0]?.path === '_id' && !key[0].hashed) return true
  return indexes.some((index) => {
    const pattern = fieldNamed(index, 'key')
    if (pattern?.[0] !== bsonType.document || readFields(embedded(pattern)).length !== key.length) return false
    const { unique, prepareUnique } = deferredOptionsOf(index)
    return (unique || prepareUnique) && supportsShardKey(index, key)
  })
}
