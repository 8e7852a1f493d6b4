import { type ClusterTime, secondsOf } from '../domain/cluster-time.ts'
import type { VerificationSide } from '../domain/progress.ts'

/** How far the verification of one cluster is. */
export interface VerifiedSoFar {
  /** Documents of all catalogued collections, by the server's statistics. */
  documents: number
  /** Documents read by the scan. */
  read: number
  /** The newest cluster time that was heard of, and the time up to which changes are known; 0 before they are followed. */
  latest: ClusterTime
  known: ClusterTime
  /** Null before there is a scan. */
  collections: { scanned: number; total: number } | null
  catalogued: number
  /** Everything has been compared once. */
  scanned: boolean
}

/** One side of `progress.verification`. Once all is scanned and followed, every document counts as hashed. */
export function reportOf(so: VerifiedSoFar): VerificationSide {
  const phase = so.collections === null ? 'not started' : so.scanned ? 'stream hashing' : 'initial hashing'
  return {
    estimatedDocumentCount: so.documents,
    hashedDocumentCount: so.scanned ? so.documents : Math.min(so.documents, so.read),
    lagTimeSeconds: so.known === 0n ? 0 : Math.max(0, secondsOf(so.latest) - secondsOf(so.known)),
    phase,
    scannedCollectionCount: so.collections?.scanned ?? 0,
    totalCollectionCount: so.collections?.total ?? so.catalogued,
  }
}
