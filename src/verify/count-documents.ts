import type { Catalog } from '../domain/catalog.ts'
import { inParallel } from '../domain/in-parallel.ts'
import type { BothClusters } from '../mongo/cluster.ts'
import { documentsOf } from '../mongo/sample.ts'
import { onDestination, onSource } from './recheck-documents.ts'
import type { Side } from './rechecks.ts'

/** The collections that are counted in parallel. */
const collectionsAtOnce = 16

/**
 * The pause between two counts has this length (ms) and `pausePerCollectionMS` for each collection, because a count reads
 * the statistics of every collection.
 */
const basePauseMS = 5_000
const pausePerCollectionMS = 250
/**
 * With more collections than this, a verdict uses the last counts and does not count again, because a count sends
 * commands for each collection.
 */
const verdictCollectionsMax = 100

/**
 * Counts the documents of the collections in the catalog on each cluster, from the server's counters, which are
 * estimates. Leaves out, on both clusters, the collections that the destination does not have yet.
 */
export class DocumentCounts {
  readonly #clusters: BothClusters
  readonly #catalog: () => Catalog
  #latest: Record<Side, number> = { source: 0, destination: 0 }

  constructor(clusters: BothClusters, catalog: () => Catalog) {
    this.#clusters = clusters
    this.#catalog = catalog
  }

  /** The result of the last count; 0 before the first one. */
  get latest(): Readonly<Record<Side, number>> {
    return this.#latest
  }

  /** Pause between two counts, ms. */
  get pauseMS(): number {
    return basePauseMS + pausePerCollectionMS * this.#catalog().entries().length
  }

  /** True if a verdict counts again (`verdictCollectionsMax`). */
  get countsForVerdict(): boolean {
    return this.#catalog().entries().length <= verdictCollectionsMax
  }

  /** Counts again. A collection that cannot be read on a cluster counts as 0 there. */
  async count(): Promise<void> {
    const counts = { source: 0, destination: 0 }
    await inParallel(collectionsAtOnce, this.#catalog().entries(), async (entry) => {
      if (!entry.destinationUUID) return
      const [source, destination] = await Promise.all([
        documentsOf(this.#clusters.source, onSource(entry)).catch(() => null),
        documentsOf(this.#clusters.destination, onDestination(entry)).catch(() => null),
      ])
      counts.source += source ?? 0
      counts.destination += destination ?? 0
    })
    this.#latest = counts
  }
}
