import type { Catalog } from '../domain/catalog.ts'
import type { Cluster } from '../mongo/cluster.ts'
import type { ListedCollection } from './listing.ts'

/**
 * New collections of a sharded source that have the name of one that is gone. reshardCollection may have written their
 * documents without events, and only its event says so. A new collection has an event of its creation. One of these
 * events, or one of a document, follows, and says whether the collection must be converged. It is not created before.
 */
export class ReplacingCollections {
  readonly #source: Cluster
  readonly #catalog: Catalog
  /** UUIDs of the collections that are not created yet, by database. A retry does not find the former ones any more. */
  readonly #awaited = new Map<string, ReadonlySet<string>>()

  constructor(source: Cluster, catalog: Catalog) {
    this.#source = source
    this.#catalog = catalog
  }

  /**
   * Returns the UUIDs of the collections that are not created now. Called before the former collections leave the catalog.
   * @param mayAwait false for a collection whose event has arrived, or which needs none
   */
  awaitEvents(
    database: string,
    collections: readonly ListedCollection[],
    mayAwait: (uuid: string) => boolean,
  ): Set<string> {
    if (!this.#source.sharded) return new Set()
    const awaitedBefore = this.#awaited.get(database)
    const present = new Set(collections.map(({ uuid }) => uuid))
    const gone = this.#catalog.inDatabase(database).filter(({ uuid }) => !present.has(uuid))
    const names = new Set(gone.map(({ sourceName }) => sourceName))
    const isReplacing = ({ uuid, name }: ListedCollection): boolean => names.has(name) || !!awaitedBefore?.has(uuid)
    const awaited = collections.filter((one) => !this.#catalog.get(one.uuid) && isReplacing(one) && mayAwait(one.uuid))
    const uuids = new Set(awaited.map(({ uuid }) => uuid))
    this.#awaited.set(database, uuids)
    return uuids
  }
}
