import type { CatalogEntry } from '../domain/catalog.ts'
import { deferredOptionsOf, type IndexSpecification } from '../domain/definition.ts'
import { namespace } from '../domain/namespace.ts'
import { bsonType, embedded, fieldNamed, readFields } from '../domain/raw-bson.ts'
import { requestedShardKey, type ShardKey, sameShardKey, supportsShardKey } from '../domain/shard-key.ts'
import type { Cluster } from '../mongo/cluster.ts'
import { readZoneRanges } from '../mongo/config-database.ts'
import { readDistribution, type ShardingEntries } from './sharding.ts'

/**
 * The options with which a collection of the destination is sharded, apart from its key: those of the source's
 * collection or, if the source is a replica set, those of the start request.
 */
export interface ShardingOptions {
  /** True if the values of the key are unique. `config.collections` stores this. */
  unique: boolean
  /** The number of chunks before the copy; undefined if tandem chooses it. */
  numInitialChunks?: number | undefined
  /** True if the server creates the chunks according to the zones of the collection. */
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
 * True if one of the indexes makes the values of the shard key unique: a unique index that has exactly the fields of
 * the key. For the key `_id`, the `_id` index does so, and `indexes` need not contain it.
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
