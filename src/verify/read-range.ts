import { openBulkRange, openRange, type RangeBounds } from '../documents/read-documents.ts'
import type { CatalogEntry } from '../domain/catalog.ts'
import type { ClusterTime } from '../domain/cluster-time.ts'
import type { InitialCompareMethod } from '../domain/compare-method.ts'
import { bsonType } from '../domain/raw-bson.ts'
import type { BothClusters } from '../mongo/cluster.ts'
import { renamedTo } from '../mongo/collection-name.ts'
import { codeOf, isOwnTimeLimit, isTransient, isUnanswered, ranOutOfTime } from '../mongo/errors.ts'
import { compareRange, type RangeComparison } from './compare-range.ts'
import type { FallbackLog } from './fallback-log.ts'
import type { ReadAhead } from './read-ahead.ts'
import { type ReadForm, readForms } from './read-form.ts'
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
  compareMethod: InitialCompareMethod
  fallbacks: FallbackLog
}

const maxKeyElement = Buffer.from([bsonType.maxKey, ...Buffer.from('_id\0')])

/**
 * Reads one range of a collection from both clusters and compares it. If the source has renamed the collection, this
 * rejects, and the entry has the new name for the next attempt. If a server cannot hash a document of the range, or not in
 * time, the range is compared as bytes.
 */
export async function compareRangeOf(
  parts: RangeReadParts,
  entry: CatalogEntry,
  bounds: RangeBounds,
): Promise<RangeComparison> {
  const form = readForms[parts.compareMethod]
  try {
    return await compareIn(form, parts, entry, bounds)
  } catch (error) {
    if (form === readForms.binary || !mayBeOfHash(error)) throw error
    parts.fallbacks.record(entry, error)
    return await compareIn(readForms.binary, parts, entry, bounds)
  }
}

/**
 * True for an error that a read of bytes may not have. If it has it too, the caller gets it then. A time limit is such an
 * error: few bytes of hashes may need many large documents, and a retry by hashes would reach the limit again.
 */
function mayBeOfHash(error: unknown): boolean {
  if (ranOutOfTime(error) || isOwnTimeLimit(error) || isUnanswered(error)) return true
  return codeOf(error) !== undefined && !isTransient(error) && renamedTo(error) === undefined
}

async function compareIn(
  form: ReadForm,
  { clusters, notBefore, mayReadSecondaries, suspect, waitForCapacity, readAhead }: RangeReadParts,
  entry: CatalogEntry,
  bounds: RangeBounds,
): Promise<RangeComparison> {
  const nextBatchBytes = (): number => readAhead().batchBytes
  const open = form.firstBatch(entry, nextBatchBytes())
  const openSource = mayReadSecondaries ? openBulkRange : openRange
  const opened = await Promise.allSettled([
    openSource(clusters.source, onSource(entry), bounds, notBefore.source, open, form.shape),
    openRange(clusters.destination, onDestination(entry), bounds, notBefore.destination, open, form.shape),
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
    return await compareRange(source.value, destination.value, suspect, waitForCapacity, nextBatchBytes, form)
  } finally {
    await Promise.all(opened.map((one) => (one.status === 'fulfilled' ? one.value.close() : null)))
  }
}
