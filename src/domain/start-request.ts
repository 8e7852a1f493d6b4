import type { BuildIndexes } from './build-indexes.ts'
import type { InitialCompareMethod } from './compare-method.ts'

/** The body of `POST /api/v1/start` after validation, with defaults set and aliases resolved. */
export interface StartConfiguration {
  source: 'cluster0' | 'cluster1'
  destination: 'cluster0' | 'cluster1'
  buildIndexes: BuildIndexes
  enableUserWriteBlocking: 'sourceAndDestination' | 'destinationOnly' | 'none'
  /** True if the request contained enableUserWriteBlocking. With a source before 6.0, any explicit value is refused. */
  writeBlockingGiven: boolean
  includeNamespaces: readonly NamespaceFilter[] | null
  excludeNamespaces: readonly NamespaceFilter[] | null
  reversible: boolean
  sharding: ShardingOptions | null
  verification: { enabled: boolean; initialCompareMethod: InitialCompareMethod }
  /** How to treat selected namespaces that exist on the destination. */
  existingData: ExistingData
  /** How to treat selected time-series collections of the source. */
  timeseries: TimeSeries
  /** Collections that are copied in natural order; null if none is requested. */
  copyInNaturalOrder: readonly NaturalSelection[] | null
  /** True if large collections of a replica set are also copied in natural order if their `_id`s are random. */
  detectRandomId: boolean
  /** The databases and collections that have other names on the destination; null if there are none. */
  namespaceRemap: readonly NamespaceRename[] | null
}

/**
 * One element of `namespaceRemap`, in the form of mongosync, which renames whole databases only. With `collection` in both
 * names, it renames one collection.
 */
export interface NamespaceRename {
  /** The name on the source. */
  from: { database: string; collection?: string | undefined }
  /** The name on the destination. */
  to: { database: string; collection?: string | undefined }
}

/** The collections of a database that are copied in natural order: all of them, if `collections` is absent. */
export interface NaturalSelection {
  /** A name; `.` stands for all databases. */
  database: string
  collections?: string[] | undefined
}

/**
 * `refuse`: the start is refused. `converge`: tandem keeps a namespace that it can make equal to that of the source in
 * place. It drops any other namespace, and creates and copies it if the source has it.
 */
export type ExistingData = 'refuse' | 'converge'

export const timeSeriesModes = ['refuse', 'skip'] as const

/**
 * `refuse`: the start is refused, and the sync fails if a time-series collection appears later. `skip`: time-series
 * collections are left out on both clusters, like namespaces that the filters exclude.
 */
export type TimeSeries = (typeof timeSeriesModes)[number]

export interface NamespacePattern {
  pattern: string
  options?: string | undefined
}

export interface NamespaceFilter {
  database?: string | undefined
  databaseRegex?: NamespacePattern | undefined
  collections?: string[] | undefined
  collectionsRegex?: NamespacePattern | undefined
}

export interface ShardingOptions {
  createSupportingIndexes: boolean
  shardingEntries: ShardingEntry[]
}

/** Requests that a collection of a source that is a replica set is sharded on the destination. */
export interface ShardingEntry {
  database: string
  collection: string
  /**
   * The key, and options of shardCollection
   * (https://www.mongodb.com/docs/manual/reference/command/shardCollection/). A missing option is false, or the
   * server's choice.
   */
  shardCollection: {
    key: Record<string, number | 'hashed'>[]
    unique?: boolean | undefined
    numInitialChunks?: number | undefined
    presplitHashedZones?: boolean | undefined
  }
}

/** True if the entry has an option that earlier releases do not know and would ignore. */
export function hasShardingOptions({ shardCollection }: ShardingEntry): boolean {
  const { unique, numInitialChunks, presplitHashedZones } = shardCollection
  return unique === true || numInitialChunks !== undefined || presplitHashedZones === true
}
