/** The progress of a sync for each of its collections, as `GET /api/v1/collections` shows it. */

export interface CollectionRow {
  /** With the source's name of the database. */
  namespace: string
  /** Present if the database has another name on the destination. */
  destinationNamespace?: string
  copy: {
    ended: boolean
    /** True if the copy compares the collection with that of the destination and writes only the differences. */
    converging: boolean
    estimatedTotalBytes: number
    estimatedCopiedBytes: number
    estimatedDocumentCount: number
    copiedDocumentCount: number
  }
  indexes: IndexCounts
  /** Null if verification is disabled. */
  verification: {
    phase: 'not started' | 'initial hashing' | 'stream hashing'
    hashedDocumentCount: number
    /** Numbers of `_id` ranges. The verifier compares the ranges into which the copy has split the collection. */
    hashedRanges: number
    totalRanges: number
  } | null
  /** Number of differences that the last verdict lists. */
  mismatches: number
}

export interface CollectionsReport {
  collections: CollectionRow[]
  /** Number of all collections of the sync, including those that are not shown. */
  total: number
}

/** The requested rows. */
export interface CollectionsPage {
  limit: number
  /** Number of rows to skip. */
  after: number
}

export interface IndexCounts {
  /** Number of the source's indexes that the sync includes, without the `_id` index. */
  total: number
  built: number
  /**
   * Number of indexes that the commit completes. Either their `unique`, TTL or `hidden` option is deferred, or the whole
   * index is deferred, because it differs from another index only in its name and these options.
   */
  heldBack: number
  /** Number of indexes that the destination has refused so far, or that are built only after the copy. */
  missing: number
}
