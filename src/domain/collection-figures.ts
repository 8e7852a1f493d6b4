/** How far a sync is with each of its collections, as `GET /api/v1/collections` shows it. */

export interface CollectionRow {
  namespace: string
  copy: {
    ended: boolean
    estimatedTotalBytes: number
    estimatedCopiedBytes: number
    estimatedDocumentCount: number
    copiedDocumentCount: number
  }
  indexes: IndexCounts
  /** Null where verification is switched off. */
  verification: {
    phase: 'not started' | 'initial hashing' | 'stream hashing'
    hashedDocumentCount: number
    /** Ranges of `_id`, as the copy cut them. */
    hashedRanges: number
    totalRanges: number
  } | null
  /** Differences that the last verdict lists. */
  mismatches: number
}

export interface CollectionsReport {
  collections: CollectionRow[]
  /** All collections of the sync, shown or not. */
  total: number
}

/** Which rows are asked for. */
export interface CollectionsPage {
  limit: number
  /** How many rows to leave out before them. */
  after: number
}

export interface IndexCounts {
  /** What the source has, the `_id` index left out. */
  total: number
  built: number
  /** Waiting for the commit: their `unique`, TTL or `hidden`, or (of two that differ in nothing else) the index itself. */
  heldBack: number
  /** Refused by the destination so far. */
  missing: number
}
