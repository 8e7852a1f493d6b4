/** The progress of a sync for each of its collections, as `GET /api/v1/collections` shows it. */

export interface CollectionRow {
  namespace: string
  copy: {
    ended: boolean
    /** The copy compares the collection with what existed on the destination, and writes only what differs. */
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
    /** Ranges of `_id`. The copy and the verifier use the same split. */
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
   * Number of indexes of which something is deferred until the commit: their `unique`, TTL or `hidden` option, or the
   * index itself if another index differs only in these options.
   */
  heldBack: number
  /** Number of indexes that the destination has refused so far, or that are built after the copy. */
  missing: number
}
