import type { Catalogue } from '../domain/catalogue.ts'
import { inParallel } from '../domain/in-parallel.ts'
import type { BothClusters } from '../mongo/cluster.ts'
import { sizeOf } from '../mongo/sample.ts'
import { onDestination, onSource } from './recheck-documents.ts'
import type { Side } from './rechecks.ts'

const atOnce = 16

/** Counts the documents of all collections in the catalogue by server statistics. Unreadable collections count as 0. */
export async function countDocuments(clusters: BothClusters, catalogue: Catalogue): Promise<Record<Side, number>> {
  const counts = { source: 0, destination: 0 }
  await inParallel(atOnce, catalogue.entries(), async (entry) => {
    if (!entry.destinationUUID) return
    const [source, destination] = await Promise.all([
      sizeOf(clusters.source, onSource(entry)).catch(() => null),
      sizeOf(clusters.destination, onDestination(entry)).catch(() => null),
    ])
    counts.source += source?.documents ?? 0
    counts.destination += destination?.documents ?? 0
  })
  return counts
}
