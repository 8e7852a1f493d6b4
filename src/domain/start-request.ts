/** The body of `POST /api/v1/start` after validation: defaults filled in, aliases resolved. */
export interface StartConfiguration {
  source: 'cluster0' | 'cluster1'
  destination: 'cluster0' | 'cluster1'
  buildIndexes: 'beforeDataCopy' | 'never'
  enableUserWriteBlocking: 'sourceAndDestination' | 'destinationOnly' | 'none'
  /** True if the request contained enableUserWriteBlocking. A pre-6.0 source refuses any explicit value. */
  writeBlockingGiven: boolean
  includeNamespaces: NamespaceFilter[] | null
  excludeNamespaces: NamespaceFilter[] | null
  reversible: boolean
  sharding: ShardingOptions | null
  verification: { enabled: boolean }
  /** What becomes of selected namespaces that exist on the destination. */
  existingData: ExistingData
}

/** `refuse`: they refuse the start. `converge`: they become equal to the source, or are dropped. */
export type ExistingData = 'refuse' | 'converge'

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
  shardingEntries: {
    database: string
    collection: string
    shardCollection: { key: Record<string, number | 'hashed'>[] }
  }[]
}
