import { firstBatchDocuments } from '../documents/range-reader.ts'
import { openBulkRange, openRange, type RangeBounds } from '../documents/read-documents.ts'
import { nextBatchSize } from '../domain/batch-size.ts'
import type { CatalogEntry } from '../domain/catalog.ts'
import type { ClusterTime } from '../domain/cluster-time.ts'
import { bsonType } from '../domain/raw-bson.ts'
import type { BothClusters } from '../mongo/cluster.ts'
import { compareRange, type RangeComparison } from './compare-range.ts'
import type { ReadAhead } from './read-ahead.ts'
import { followName, onDestination, onSource } from './recheck-documents.ts'

export interface RangeReadParts {
  clusters: BothClusters
  /** Reads include all changes up to these times. The verifier's streams contain all later changes. */
  notBefore: { source: ClusterTime; destination: ClusterTime }
  /** True if secondaries of the source may be read. */
  mayReadSecondaries: boolean
  suspect: (idElement: Buffer) => void
  /** Resolves when there is capacity to read the next batch and to report its suspects. */
  waitForCapacity: (bytesRead: number) => Promise<void>
  /** Returns how much to read at a time now. */
  readAhead: () => ReadAhead
}

const firstBatchMax = 2_500
const maxKeyElement = Buffer.from([bsonType.maxKey, ...Buffer.from('_id\0')])

/**
 * Reads one range of a collection from both clusters and compares it. If the source has renamed the collection, this
 * rejects, and the entry has the new name for the next attempt.
 */
export async function compareRangeOf(
  { clusters, notBefore, mayReadSecondaries, suspect, waitForCapacity, readAhead }: RangeReadParts,
  entry: CatalogEntry,
  bounds: RangeBounds,
): Promise<RangeComparison> {
  const nextBatchBytes = (): number => readAhead().batchBytes
  const open = firstBatchOf(entry, nextBatchBytes())
  const openSource = mayReadSecondaries ? openBulkRange : openRange
  const opened = await Promise.allSettled([
    openSource(clusters.source, onSource(entry), bounds, notBefore.source, open),
    openRange(clusters.destination, onDestination(entry), bounds, notBefore.destination, open),
  ])
  const [source, destination] = opened
  try {
    if (source.status === 'rejected') {
      followName(entry, source.reason)
      throw source.reason
    }
    if (destination.status === 'rejected') throw destination.reason
    // A range with a lower bound but no upper bound ends before `_id` MaxKey. A document with that `_id` is compared
    // separately.
    if (bounds.from && !bounds.to) suspect(maxKeyElement)
    return await compareRange(source.value, destination.value, suspect, waitForCapacity, nextBatchBytes)
  } finally {
    await Promise.all(opened.map((one) => (one.status === 'fulfilled' ? one.value.close() : null)))
  }
}

/**
 * Returns the number of documents in a range's first batch. If the copy has recorded the size of the collection's
 * documents, a larger first batch saves one round trip in each range. The batch aims at half of `bytes`, in case the
 * first documents are larger than the average.
 */
function firstBatchOf({ estimatedBytes, estimatedDocuments }: CatalogEntry, bytes: number): number {
  if (estimatedBytes === 0 || estimatedDocuments === 0) return firstBatchDocuments
  const size = { documents: estimatedDocuments, bytes: estimatedBytes }
  return Math.max(firstBatchDocuments, nextBatchSize(size, { documents: firstBatchMax, bytes: bytes / 2 }, 0))
}
