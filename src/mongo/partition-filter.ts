import type { Document } from 'mongodb'

/** Some of a sync's partitions. */
export interface PartitionFilter {
  partitions: readonly number[]
  /** Of how many. */
  count: number
}

/**
 * An expression that tells whether the `_id` at `path` belongs to one of these partitions. $toHashedIndexKey gives equal
 * numbers of any type one hash (measured on 6.0.27), so a document whose `_id` is spelled anew stays in its partition.
 */
export function isIn({ partitions, count }: PartitionFilter, path: string): Document {
  return { $in: [{ $abs: { $mod: [{ $toHashedIndexKey: path }, count] } }, partitions] }
}
