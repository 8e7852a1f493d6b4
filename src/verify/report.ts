import { type ClusterTime, secondsOf } from '../domain/cluster-time.ts'
import type { VerificationSide } from '../domain/progress.ts'

/** The progress of the verification on one cluster. */
export interface VerifiedSoFar {
  /** Number of documents in the collections of the catalog that the destination has, from the server's statistics. */
  documents: number
  /** Number of documents that the scan has read. */
  read: number
  /** The newest known cluster time. */
  latest: ClusterTime
  /** The time up to which changes are recorded; 0 before the verification has begun. */
  known: ClusterTime
  /** Null before the scan starts. */
  collections: { scanned: number; total: number } | null
  /** Number of collections in the catalog. */
  cataloged: number
  /** True when everything has been compared once. */
  scanned: boolean
}

/** One side of `progress.verification`. After the scan, `hashedDocumentCount` includes every document. */
export function reportOf(progress: VerifiedSoFar): VerificationSide {
  const phase = progress.collections === null ? 'not started' : progress.scanned ? 'stream hashing' : 'initial hashing'
  return {
    estimatedDocumentCount: progress.documents,
    hashedDocumentCount: progress.scanned ? progress.documents : Math.min(progress.documents, progress.read),
    lagTimeSeconds: progress.known === 0n ? 0 : Math.max(0, secondsOf(progress.latest) - secondsOf(progress.known)),
    phase,
    scannedCollectionCount: progress.collections?.scanned ?? 0,
    totalCollectionCount: progress.collections?.total ?? progress.cataloged,
  }
}
