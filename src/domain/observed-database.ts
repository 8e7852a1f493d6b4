import type { ClusterTime } from './cluster-time.ts'

/** A completed read of a database's catalog. It covers every change in the database up to `time`. */
export interface ObservedDatabase {
  database: string
  time: ClusterTime
  /** UUIDs of the collections whose indexes were read and reconciled on the destination. */
  indexesOf: ReadonlySet<string>
}
