import type { CatalogEntry } from '../../src/domain/catalog.ts'
import type { InitialCompareMethod } from '../../src/domain/compare-method.ts'
import type { BothClusters } from '../../src/mongo/cluster.ts'
import { appendOplogNote } from '../../src/mongo/oplog-note.ts'
import type { RangeComparison } from '../../src/verify/compare-range.ts'
import { FallbackLog } from '../../src/verify/fallback-log.ts'
import { compareRangeOf } from '../../src/verify/read-range.ts'

/**
 * Compares a whole collection as the first pass compares one range.
 * @param fallbacks logs that the range is compared as bytes instead of hashes
 */
export async function compareBy(
  clusters: BothClusters,
  compareMethod: InitialCompareMethod,
  entry: CatalogEntry,
  fallbacks = new FallbackLog({}),
): Promise<RangeComparison & { suspects: Buffer[]; charged: number }> {
  for (const cluster of [clusters.source, clusters.destination]) await appendOplogNote(cluster, 'test')
  const suspects: Buffer[] = []
  let charged = 0
  const comparison = await compareRangeOf(
    {
      clusters,
      notBefore: { source: clusters.source.latest, destination: clusters.destination.latest },
      mayReadSecondaries: false,
      suspect: (idElement) => suspects.push(Buffer.from(idElement)),
      waitForCapacity: async (bytes) => {
        charged += bytes
      },
      readAhead: () => ({ ranges: 1, batchBytes: 2 * 1024 * 1024 }),
      compareMethod,
      fallbacks,
    },
    entry,
    { from: null, to: null },
  )
  return { ...comparison, suspects, charged }
}
