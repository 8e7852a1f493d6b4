import type { ClusterTime } from './cluster-time.ts'

/** What a look at a database has shown: everything that had changed in it up to a time. */
export interface SeenDatabase {
  database: string
  time: ClusterTime
  /** UUIDs of the collections whose indexes were looked at, and made so on the destination. */
  indexesOf: ReadonlySet<string>
}
