import type { Catalog } from '../domain/catalog.ts'
import type { Cluster } from '../mongo/cluster.ts'
import type { ListedCollection } from './listing.ts'

/**
 * Delays the creation of a collection that has taken the name of another one on a sharded source. Either the collection
 * is new, or reshardCollection has written its documents without events. Its next event shows which is the case: a
 * create event, the event of the reshardCollection, or an event of a document. The destination's collection is not
 * created before that event.
 */
export class ReplacingCollections {
  readonly #source: Cluster
  readonly #catalog: Catalog
  /**
   * The UUIDs of the collections that await an event, by database. They are kept, because on a retry the collections
   * whose names they have taken are no longer in the catalog.
   */
  readonly #awaited = new Map<string, ReadonlySet<string>>()

  constructor(source: Cluster, catalog: Catalog) {
    this.#source = source
    this.#catalog = catalog
  }

  /**
   * Returns the UUIDs of the collections that await an event. Called before the former collections leave the catalog.
   * @param mayAwait returns false for a collection whose event has arrived or that needs none
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
