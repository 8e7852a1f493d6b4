import type { IndexSpecification } from './definition.ts'
import { embedded, fieldNamed, readFields, stringOf } from './raw-bson.ts'
import { type ShardKey, supportsShardKey } from './shard-key.ts'

/**
 * When the secondary indexes of the source are built on the destination.
 *
 * beforeDataCopy           when a collection is created, while it is empty
 * afterDataCopy            when the copy of the collection has ended
 * excludeHashed            as beforeDataCopy, without hashed indexes
 * excludeHashedAfterCopy   as afterDataCopy, without hashed indexes
 * never                    not at all
 *
 * A collection that is created after the start of the sync is empty and receives its documents as events. Therefore its
 * indexes are built when it is created, even with afterDataCopy and excludeHashedAfterCopy.
 */
export const buildIndexesModes = [
  'beforeDataCopy',
  'afterDataCopy',
  'excludeHashed',
  'excludeHashedAfterCopy',
  'never',
] as const

export type BuildIndexes = (typeof buildIndexesModes)[number]

export function buildsAfterCopy(mode: BuildIndexes): boolean {
  return mode === 'afterDataCopy' || mode === 'excludeHashedAfterCopy'
}

export function excludesHashed(mode: BuildIndexes): boolean {
  return mode === 'excludeHashed' || mode === 'excludeHashedAfterCopy'
}

/**
 * The indexes that the sync creates, drops and compares. Excluded indexes are left alone on both clusters. A hashed
 * index that supports the shard key is never excluded, because the server needs it.
 */
export function includedIndexes(
  all: IndexSpecification[],
  mode: BuildIndexes,
  shardKey: ShardKey | null,
): IndexSpecification[] {
  if (!excludesHashed(mode)) return all
  return all.filter((one) => !isHashed(one) || (shardKey !== null && supportsShardKey(one, shardKey)))
}

/** True if a field of the key is hashed. A compound index may have one such field. */
export function isHashed(specification: IndexSpecification): boolean {
  const key = fieldNamed(specification, 'key')
  return key !== undefined && readFields(embedded(key)).some(({ value }) => stringOf(value) === 'hashed')
}
