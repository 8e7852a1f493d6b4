import type { Document } from 'mongodb'

/** Some of a sync's partitions. */
export interface PartitionFilter {
  partitions: readonly number[]
  /** The number of all partitions. */
  count: number
}

/**
 * Returns an expression that is true if the `_id` at `path` belongs to one of these partitions. $toHashedIndexKey returns
 * the same hash for equal numbers of different types (measured on 6.0.27), so a document whose `_id` changes its numeric
 * type stays in its partition.
 */
export function isIn({ partitions, count }: PartitionFilter, path: string): Document {
  return { $in: [{ $abs: { $mod: [{ $toHashedIndexKey: path }, count] } }, partitions] }
}
