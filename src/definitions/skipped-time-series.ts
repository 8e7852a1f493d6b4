import { inParallel } from '../domain/in-parallel.ts'
import { namespace } from '../domain/namespace.ts'
import type { Cluster } from '../mongo/cluster.ts'
import type { Selection } from '../mongo/selection.ts'
import { listCollections, listDatabases } from './listing.ts'

/** Number of databases whose collections are listed in parallel. */
const atOnce = 4

/**
 * Returns the namespaces of the source's time-series collections that the filters select but the sync skips, in
 * alphabetical order. Returns an empty list if the sync does not skip time-series collections.
 */
export async function findSkippedTimeSeries(source: Cluster, selection: Selection): Promise<string[]> {
  if (!selection.skipsTimeSeries) return []
  const found: string[] = []
  await inParallel(atOnce, await selection.databases(await listDatabases(source)), async (database) => {
    const skipped = await selection.skipped(database, await listCollections(source, database))
    found.push(...skipped.map(({ name }) => namespace(database, name)))
  })
  return found.sort()
}
