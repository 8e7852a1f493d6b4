import { type ListedCollection, listIndexes } from '../definitions/listing.ts'
import { distributionsByUuid } from '../definitions/sharding.ts'
import { deferredOptionsOf, type IndexSpecification, indexName, isCapped, isCollated } from '../domain/definition.ts'
import { RefusedError } from '../domain/errors.ts'
import { namespace } from '../domain/namespace.ts'
import { requestedShardKey, type ShardKey, showShardKey, supportsShardKey } from '../domain/shard-key.ts'
import type { StartConfiguration } from '../domain/start-request.ts'
import type { Cluster } from '../mongo/cluster.ts'

type Entry = NonNullable<StartConfiguration['sharding']>['shardingEntries'][number]

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
export function refuseInvalidEntries({ sharding }: StartConfiguration): void {
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
  }
}

/**
 * Refuses an entry that does not fit the existing collection of the replica set. A collection that is created later is
 * sharded at its creation, and the sync then fails with a named error if the entry does not fit.
 * @param creates whether tandem creates missing supporting indexes (`createSupportingIndexes`)
 */
export async function refuseUnfitEntry(
  source: Cluster,
  entry: Entry,
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
  // The _id index supports a shard key on _id, unless the index has a collation. No second index on _id alone can be
  // created then, so createSupportingIndexes does not help.
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

/** True if the shard key is `_id`. Every collection has an index on it, which `listIndexes` above does not return. */
export function isIdKey(key: ShardKey): boolean {
  return key.length === 1 && key[0]?.path === '_id' && !key[0].hashed
}

/**
 * True if the index is unique across shards. Each shard enforces uniqueness only among its own documents, so equal
 * values must be on one shard: the index must begin with the shard key.
 */
function isUniqueAcrossShards(index: IndexSpecification, key: ShardKey): boolean {
  const bare = index.filter(({ name }) => name !== 'partialFilterExpression' && name !== 'sparse')
  return supportsShardKey(bare, key)
}

async function isMultikey(source: Cluster, entry: Entry, index: IndexSpecification): Promise<boolean> {
  const reply = await source.read(entry.database, {
    explain: { find: entry.collection, filter: {}, hint: indexName(index) },
    verbosity: 'queryPlanner',
  })
  return JSON.stringify(reply['queryPlanner']?.winningPlan ?? {}).includes('"isMultiKey":true')
}

function unfit(what: string): RefusedError {
  return new RefusedError('UnsupportedCollection', `${what}; then send start again`)
}
