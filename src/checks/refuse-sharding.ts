import { type ListedCollection, listIndexes } from '../definitions/listing.ts'
import { distributionsByUuid, readDistributions } from '../definitions/sharding.ts'
import { isUniquelyIndexed } from '../definitions/sharding-options.ts'
import { deferredOptionsOf, type IndexSpecification, indexName, isCapped, isCollated } from '../domain/definition.ts'
import { RefusedError } from '../domain/errors.ts'
import { namespace } from '../domain/namespace.ts'
import { requestedShardKey, type ShardKey, showShardKey, supportsShardKey } from '../domain/shard-key.ts'
import type { ShardingEntry, StartConfiguration } from '../domain/start-request.ts'
import type { Cluster } from '../mongo/cluster.ts'
import { listShards, readZoneRanges } from '../mongo/config-database.ts'

/**
 * Refuses a collection of the source that is being resharded, because it would be copied twice.
 * @throws RefusedError UnsupportedCollection
 */
export async function refuseDistributions(
  source: Cluster,
  database: string,
  listed: ListedCollection[],
): Promise<void> {
  const distributions = await distributionsByUuid(source, database)
  const found = listed.find(({ uuid }) => distributions.get(uuid)?.resharding)
  if (!found) return
  throw new RefusedError(
    'UnsupportedCollection',
    `${namespace(database, found.name)} is being resharded on the source (reshardCollection, moveCollection or unshardCollection), which rewrites all of its documents: wait until that has ended`,
  )
}

/**
 * Refuses entries that are invalid for every source.
 * @throws RefusedError InvalidRequest
 */
export function refuseInvalidEntries({ sharding, buildIndexes }: StartConfiguration): void {
  const named = new Set<string>()
  for (const [at, entry] of (sharding?.shardingEntries ?? []).entries()) {
    const field = `sharding.shardingEntries[${at}]`
    const name = namespace(entry.database, entry.collection)
    if (named.has(name))
      throw new RefusedError(
        'InvalidRequest',
        `${field} names ${name}, which an earlier entry also names; remove one of them`,
      )
    named.add(name)
    const key = requestedShardKey(entry.shardCollection.key)
    const twice = key.find(({ path }, index) => key.findIndex((other) => other.path === path) !== index)
    if (twice) {
      throw new RefusedError(
        'InvalidRequest',
        `${field}.shardCollection.key names the field ${twice.path} twice; remove one of them`,
      )
    }
    for (const direction of entry.shardCollection.key.flatMap((part) => Object.values(part))) {
      if (direction === 1 || direction === 'hashed') continue
      throw new RefusedError(
        'InvalidRequest',
        `${field}.shardCollection.key has a value other than 1 or "hashed"; use one of these for each field`,
      )
    }
    if (key.filter(({ hashed }) => hashed).length > 1) {
      throw new RefusedError(
        'InvalidRequest',
        `${field}.shardCollection.key has several hashed fields; use at most one`,
      )
    }
    refuseInvalidOptions(entry, `${field}.shardCollection`, key, buildIndexes)
  }
}

/** Refuses options that violate the rules of shardCollection or contradict other options of the start request. */
function refuseInvalidOptions(
  { shardCollection: { unique, numInitialChunks, presplitHashedZones } }: ShardingEntry,
  field: string,
  key: ShardKey,
  buildIndexes: StartConfiguration['buildIndexes'],
): void {
  const refuse = (option: string, why: string): never => {
    throw new RefusedError('InvalidRequest', `${field}.${option} ${why}`)
  }
  const isHashed = key.some(({ hashed }) => hashed)
  if (unique && isHashed)
    refuse('unique', 'is true, but a hashed key cannot be unique; leave it out or use a key without a hashed field')
  if (unique && buildIndexes === 'never')
    refuse('unique', "is true, but with buildIndexes 'never' no index makes the key unique; leave one of them out")
  if (presplitHashedZones && !isHashed)
    refuse('presplitHashedZones', 'is true, but no field of the key is hashed; leave it out')
  if (numInitialChunks === undefined) return
  if (!isHashed) refuse('numInitialChunks', 'is for keys with a hashed field; leave it out')
  if (!key[0]?.hashed && !presplitHashedZones)
    refuse('numInitialChunks', 'needs presplitHashedZones unless the first field of the key is hashed; set it to true')
}

/**
 * Refuses options of an entry that do not fit the destination.
 * @throws RefusedError InvalidRequest
 */
export async function refuseUnfitOptions(
  destination: Cluster,
  { database, collection, shardCollection }: ShardingEntry,
  field: string,
): Promise<void> {
  const { numInitialChunks = 0, presplitHashedZones } = shardCollection
  if (numInitialChunks > chunksPerShardMax) {
    const max = chunksPerShardMax * (await listShards(destination)).length
    if (numInitialChunks > max) {
      throw new RefusedError(
        'InvalidRequest',
        `${field}.shardCollection.numInitialChunks is larger than ${max}, the server's maximum for the shards of the destination; use at most this number`,
      )
    }
  }
  const name = namespace(database, collection)
  if (!presplitHashedZones || (await readZoneRanges(destination, name)).length > 0) return
  const isSharded = (await readDistributions(destination, database)).some((one) => one.name === name && one.key)
  // The collection is already sharded if the filter of a running sync is being changed, or with existingData "converge".
  if (isSharded) return
  throw new RefusedError(
    'InvalidRequest',
    `${field}.shardCollection.presplitHashedZones is true, but the destination has no zone ranges for ${destination.names.shown(name)}; create them there (updateZoneKeyRange) or leave it out`,
  )
}

/** The server's maximum (https://www.mongodb.com/docs/manual/reference/command/shardCollection/). */
const chunksPerShardMax = 8_192

/**
 * Refuses an entry that does not fit the existing collection of the source, a replica set. A collection that does not
 * exist yet is sharded when it is created. If the destination refuses the key then, the sync fails with ShardingFailed.
 * @param creates true if tandem creates missing supporting indexes (`createSupportingIndexes`)
 */
export async function refuseUnfitEntry(
  source: Cluster,
  entry: ShardingEntry,
  one: ListedCollection,
  creates: boolean,
): Promise<void> {
  const key = requestedShardKey(entry.shardCollection.key)
  const name = namespace(entry.database, entry.collection)
  if (one.type !== 'collection')
    throw unfit(`${name} is a ${one.type}, which cannot be sharded: leave it out of shardingEntries`)
  if (isCapped(one.options))
    throw unfit(`${name} is a capped collection, which cannot be sharded: leave it out of shardingEntries`)
  const indexes = (await listIndexes(source, entry.database, one.uuid)) ?? []
  for (const index of indexes) {
    const { unique, prepareUnique } = deferredOptionsOf(index)
    if ((unique || prepareUnique) && !isUniqueAcrossShards(index, key)) {
      throw unfit(
        `${name} has the unique index ${indexName(index)}, which does not begin with the shard key ${showShardKey(key)}: its ` +
          'uniqueness could not be enforced across shards. Choose another shard key, or drop the index',
      )
    }
  }
  if (entry.shardCollection.unique && !isUniquelyIndexed(indexes, key)) {
    throw unfit(
      `${name} has no unique index on exactly the shard key ${showShardKey(key)}, which the option unique needs: create it on the ` +
        'source, or leave unique out',
    )
  }
  // The _id index supports a shard key on _id, unless the index has a collation. In that case createSupportingIndexes
  // does not help, because no second index on _id alone can be created.
  if (isIdKey(key) ? !isCollated(one.options) : creates) return
  const supporting = indexes.filter((index) => supportsShardKey(index, key))
  for (const index of supporting) if (!(await isMultikey(source, entry, index))) return
  throw unfit(
    supporting.length > 0
      ? `the index ${indexName(supporting[0] as IndexSpecification)} of ${name} is multikey, and fields of a shard key cannot hold arrays: choose another shard key`
      : `${name} has no index for the shard key ${showShardKey(key)}. Such an index begins with the fields of ` +
          'the key, is neither partial nor sparse, and has the simple collation. Create one on the source or, if the ' +
          'shard key is not _id, set createSupportingIndexes to true',
  )
}

/** True if the shard key is `_id`. Every collection has an index on `_id`, which tandem's `listIndexes` leaves out. */
export function isIdKey(key: ShardKey): boolean {
  return key.length === 1 && key[0]?.path === '_id' && !key[0].hashed
}

/**
 * True if the index is unique across shards. Each shard enforces uniqueness only among its own documents, so equal
 * values must be on one shard. They are if the index begins with the shard key.
 */
function isUniqueAcrossShards(index: IndexSpecification, key: ShardKey): boolean {
  const bare = index.filter(({ name }) => name !== 'partialFilterExpression' && name !== 'sparse')
  return supportsShardKey(bare, key)
}

async function isMultikey(source: Cluster, entry: ShardingEntry, index: IndexSpecification): Promise<boolean> {
  const reply = await source.read(entry.database, {
    explain: { find: entry.collection, filter: {}, hint: indexName(index) },
    verbosity: 'queryPlanner',
  })
  return JSON.stringify(reply['queryPlanner']?.winningPlan ?? {}).includes('"isMultiKey":true')
}

function unfit(what: string): RefusedError {
  return new RefusedError('UnsupportedCollection', `${what}; then send start again`)
}
