import type { Catalog } from '../domain/catalog.ts'
import { inParallel } from '../domain/in-parallel.ts'
import type { BothClusters } from '../mongo/cluster.ts'
import { sizeOf } from '../mongo/sample.ts'
import { onDestination, onSource } from './recheck-documents.ts'
import type { Side } from './rechecks.ts'

const atOnce = 16

/**
 * Interval between counts. It grows by `countCollectionMS` per collection, because a count reads each one's statistics.
 */
const countMS = 5_000
const countCollectionMS = 250
/**
 * With more collections than this, a verdict does not count again but uses the last counts, because a count sends
 * commands for each collection.
 */
const countedAtVerdict = 100

/**
 * Counts the documents of the collections in the catalog on each cluster, from the server's statistics. Leaves out
 * collections that the destination does not have yet.
 */
export class DocumentCounts {
  readonly #clusters: BothClusters
  readonly #catalog: () => Catalog
  #latest: Record<Side, number> = { source: 0, destination: 0 }

  constructor(clusters: BothClusters, catalog: () => Catalog) {
    this.#clusters = clusters
    this.#catalog = catalog
  }

  /** The result of the last count. */
  get latest(): Readonly<Record<Side, number>> {
    return this.#latest
  }

  /** Pause between two counts, ms. */
  get intervalMS(): number {
    return countMS + countCollectionMS * this.#catalog().entries().length
  }

  /** True while there are few enough collections to count their documents for a verdict. */
  get isQuick(): boolean {
    return this.#catalog().entries().length <= countedAtVerdict
  }

  /** Counts again. Collections that cannot be read count as 0. */
  async count(): Promise<void> {
    const counts = { source: 0, destination: 0 }
    await inParallel(atOnce, this.#catalog().entries(), async (entry) => {
      if (!entry.destinationUUID) return
      const [source, destination] = await Promise.all([
        sizeOf(this.#clusters.source, onSource(entry)).catch(() => null),
        sizeOf(this.#clusters.destination, onDestination(entry)).catch(() => null),
      ])
      counts.source += source?.documents ?? 0
      counts.destination += destination?.documents ?? 0
    })
    this.#latest = counts
  }
}
