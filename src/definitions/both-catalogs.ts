import type { BothClusters } from '../mongo/cluster.ts'
import type { Selection } from '../mongo/selection.ts'
import { type ClusterCatalog, listClusterCatalog, type ShardsRead } from './list-catalog.ts'
import { readCommitted } from './listing.ts'
import { type Distribution, type Placement, readDistributions, readPlacements } from './sharding.ts'

/** The definitions of one cluster. `distributions` and `placements` are empty for a replica set. */
export interface CatalogState {
  catalog: ClusterCatalog
  distributions: Distribution[]
  placements: Placement[]
}

/** The definitions of both clusters, read in parallel. */
export interface BothCatalogs {
  source: CatalogState
  destination: CatalogState
}

/**
 * Reads the source's catalog (majority-committed) and the destination's catalog once each. All checks of a commit use
 * the same read, because reading a large catalog takes long.
 */
export async function readBothCatalogs(
  { source, destination }: BothClusters,
  selection: Selection,
): Promise<BothCatalogs> {
  const [sourceState, destinationState] = await Promise.all([
    readCommitted(source, () => readState(source, selection, 'router')),
    readState(destination, selection, 'everyShard'),
  ])
  return { source: sourceState, destination: destinationState }
}

async function readState(
  cluster: BothClusters['source'],
  selection: Selection,
  shards: ShardsRead,
): Promise<CatalogState> {
  const [catalog, distributions, placements] = await Promise.all([
    listClusterCatalog(cluster, (databases) => selection.databases(databases), shards),
    readDistributions(cluster),
    readPlacements(cluster),
  ])
  return { catalog, distributions, placements }
}
