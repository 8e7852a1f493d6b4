import { type Catalog, type CatalogEntry, needsOneLane } from '../domain/catalog.ts'
import type { ChangeEvent } from '../domain/change-event.ts'
import type { ClusterTime } from '../domain/cluster-time.ts'
import { isConversion, isRenamedAcrossDatabases, isTemporary } from '../domain/namespace-filter.ts'
import type { Cluster } from '../mongo/cluster.ts'
import { code, codeOf, TransientReplyError } from '../mongo/errors.ts'
import { isFilledByClient } from '../mongo/first-insert.ts'
import { type RetryContext, retry } from '../mongo/retry.ts'
import type { Selection } from '../mongo/selection.ts'
import { toUuid } from '../mongo/uuid.ts'
import { type ListedCollection, listByUuid, listCollections, readCommitted } from './listing.ts'
import { isUnfinishedConversion } from './read-database.ts'
import type { ShardingEntries } from './sharding.ts'

export interface IncompleteCollectionsParts {
  source: Cluster
  catalog: Catalog
  selection: Selection
  /** The collections that the start request shards on the destination of a replica set. */
  shardingEntries: ShardingEntries
  context: RetryContext
}

/**
 * Finds collections that have documents on the source for which the change stream delivered no events. These
 * collections must be converged: tandem compares the destination's documents with them and writes what differs
 * (`planConvergence`). There are four causes:
 *
 * - A rename gives a collection a selected name, and its former name was not selected. The stream did not deliver
 *   changes made under the former name. `$out`, mapReduce and a rename from another database end with such a rename if
 *   the filter does not select their temporary names.
 * - convertToCapped ends with a rename. The server writes the converted collection without change events.
 * - cloneCollectionAsCapped creates a collection and copies documents into it. Only the creation has a change event.
 * - reshardCollection ends, or (since 8.0) moveCollection or unshardCollection. The server writes the documents into a
 *   new collection, which has another UUID, without change events.
 *
 * A rename from another database can also require a convergence although no event is missing: if the start request has
 * a shard key for the new name, tandem has created the collection on the destination under the temporary name and
 * without that key. The convergence creates the collection again. Until then, the collection keeps its temporary name
 * on the destination, even if the source renames it once more.
 *
 * While a collection is being resharded, the former collection remains complete: its changes have events with its UUID,
 * and the server blocks writes during the switch to the new collection. Until the switch, the new collection is named
 * `system.resharding.<UUID>`. Change streams do not report its changes, and `listCollections` omits this name. Once the
 * new collection is listed under its final name, it is complete, and later changes have events with its UUID. The
 * convergence begins after that, so it reads everything that was written without events.
 *
 * The server writes the reshardCollection event after the switch (before it in releases later than 7.0), so document
 * events of the new collection may come first. Such a document event already causes the convergence
 * (`EventApplication`). The reshardCollection event then causes no second one.
 *
 * A rename out of the selection needs no convergence. The source then has no selected collection with this UUID, so the
 * reconciliation of definitions drops the destination's collection, as after a drop.
 */
export class IncompleteCollections {
  readonly #parts: IncompleteCollectionsParts

  constructor(parts: IncompleteCollectionsParts) {
    this.#parts = parts
  }

  /**
   * Returns the UUIDs of the collections that must be converged because of this DDL event. It omits collections whose
   * convergence began after the event. It also omits collections that no longer exist or are no longer selected,
   * because a later event reports this.
   */
  async after(event: ChangeEvent): Promise<string[]> {
    if (event.reshardedUuid !== '') return await this.#afterResharding(event)
    if (event.createsCapped) return await this.#afterCappedCreation(event)
    if (!event.to) return []
    const isIncomplete = await this.#leavesIncomplete(event)
    // An event of a source older than 6.0 has no UUID.
    if (event.uuid === '') return await this.#afterRename(event, isIncomplete)
    if (!isIncomplete || this.#isConvergedSince(event.uuid, event.time, event.to.collection)) return []
    return (await this.isOnSource(event.to.database, event.uuid)) ? [event.uuid] : []
  }

  /** Returns true if the source has a collection with this UUID under a selected name. */
  async isOnSource(database: string, uuid: string): Promise<boolean> {
    return (await this.#selected(database, [uuid])).length > 0
  }

  async #afterResharding({ database, uuid, reshardedUuid }: ChangeEvent): Promise<string[]> {
    const { catalog, context } = this.#parts
    const wasConverged = typeof catalog.get(reshardedUuid)?.convergedFrom === 'bigint'
    if (wasConverged) return []
    return await retry(`waiting for the end of a resharding in ${database}`, context, async () => {
      // One listing must show both collections. If the shards switched between two listings, each could show neither.
      const selected = await this.#selected(database, [uuid, reshardedUuid])
      const uuids = new Set(selected.map((one) => one.uuid))
      if (uuids.has(reshardedUuid)) return [reshardedUuid]
      // Releases later than 7.0 write the event before the shards switch to the new collection.
      if (uuids.has(uuid)) throw new TransientReplyError('the shards still have the former collection')
      return []
    })
  }

  /**
   * Returns the collection's UUID if cloneCollectionAsCapped created the collection. This command holds an exclusive
   * lock on the database until all documents are copied (measured on 6.0.27). The listing waits for that lock, so the
   * listed collection is complete. A capped collection that an application created and filled is not converged, unless
   * the oplog does not show who filled it (`isFilledByClient`).
   */
  async #afterCappedCreation({ database, collection, uuid, time }: ChangeEvent): Promise<string[]> {
    const { source, context } = this.#parts
    if (isConversion(collection) || this.#isConvergedSince(uuid, time, collection)) return []
    return await retry(`following definitions of ${database}`, context, async () => {
      const [found] = await this.#listSelected(database, [uuid])
      if (!found || !(await hasDocuments(source, database, found))) return []
      return (await isFilledByClient(source, uuid, time)) ? [] : [uuid]
    })
  }

  /**
   * Returns true if this rename gives a selected name to a collection that may have documents without events, or that
   * must be created again on the destination with the shard key of the new name.
   */
  async #leavesIncomplete({ database, collection, uuid, to }: ChangeEvent): Promise<boolean> {
    const { selection, catalog, context } = this.#parts
    const isSelected = (inDatabase: string, name: string): Promise<boolean> =>
      retry(`following definitions of ${inDatabase}`, context, () => selection.selects(inDatabase, name))
    if (!to || !(await isSelected(to.database, to.collection))) return false
    const entry = catalog.get(uuid)
    if (isRenamedAcrossDatabases(collection) && this.#hasRequestedKey(to.database, to.collection)) return true
    if (entry && this.#lacksKey(entry, to.collection)) return true
    // The temporary name of a conversion counts as selected if its final name is, but its inserts have no events.
    return isConversion(collection) || !(await isSelected(database, collection))
  }

  /** Returns true if the start request has a shard key for this name. */
  #hasRequestedKey(database: string, collection: string): boolean {
    const { shardingEntries } = this.#parts
    return shardingEntries.some((one) => one.database === database && one.collection === collection)
  }

  /** True if the start request has a shard key for the source's name, and the destination's collection has a temporary name. */
  #lacksKey({ database, name }: CatalogEntry, sourceName: string): boolean {
    return isRenamedAcrossDatabases(name) && this.#hasRequestedKey(database, sourceName)
  }

  /**
   * Implements `after` for a rename on a source older than 6.0, whose events have no UUID. The rename may therefore
   * concern any collection of the database, and these collections are converged:
   *
   * - a collection that is not in the catalog
   * - every collection of the database if the rename may have left one incomplete (`#leavesIncomplete`), except after a
   *   rename from a temporary name, because the renamed collection is then not in the catalog
   * - a collection that lacks the shard key of its new name (`#lacksKey`)
   * - a collection that needs one lane and now has the new name. Its events are assigned to partitions by its name. If
   *   the catalog was read before the event of the rename, some events may have gone to another partition.
   */
  async #afterRename({ database, collection, to, time }: ChangeEvent, isIncomplete: boolean): Promise<string[]> {
    const wasTemporary = isTemporary(collection) || isConversion(collection)
    const mayLackDocuments = ({ uuid, name }: ListedCollection): boolean => {
      const entry = this.#parts.catalog.get(uuid)
      if (!entry || (isIncomplete && !wasTemporary) || this.#lacksKey(entry, name)) return true
      return name === to?.collection && needsOneLane(entry)
    }
    const listed = await this.#selected(to?.database ?? database)
    return listed
      .filter((one) => one.type === 'collection' && !isUnfinishedConversion(one) && mayLackDocuments(one))
      .filter(({ uuid, name }) => !this.#isConvergedSince(uuid, time, name))
      .map(({ uuid }) => uuid)
  }

  /**
   * Returns true if the convergence of the collection began at this time or later. Returns false for a collection that
   * lacks its shard key: if it was renamed while the convergence was planned, the convergence may not have given it
   * that key.
   */
  #isConvergedSince(uuid: string, time: ClusterTime, sourceName: string): boolean {
    const entry = this.#parts.catalog.get(uuid)
    if (!entry || entry.convergedFrom === null || this.#lacksKey(entry, sourceName)) return false
    return time <= entry.convergedFrom
  }

  /** @param uuids the collections to list; by default all of the database */
  async #selected(database: string, uuids?: readonly string[]): Promise<ListedCollection[]> {
    return await retry(`listing ${database}`, this.#parts.context, () => this.#listSelected(database, uuids))
  }

  async #listSelected(database: string, uuids?: readonly string[]): Promise<ListedCollection[]> {
    const { source, selection } = this.#parts
    return await readCommitted(source, async () => {
      const listed = await (uuids ? listByUuid(source, database, uuids) : listCollections(source, database))
      return await selection.among(database, listed)
    })
  }
}

/** Returns true if the collection has documents. Throws TransientReplyError if it was dropped or renamed after the listing. */
async function hasDocuments(source: Cluster, database: string, { name, uuid }: ListedCollection): Promise<boolean> {
  try {
    const found = { find: name, collectionUUID: toUuid(uuid), limit: 1, singleBatch: true, projection: { _id: 1 } }
    return ((await source.read(database, found))['cursor'].firstBatch as unknown[]).length > 0
  } catch (error) {
    if (codeOf(error) !== code.collectionUUIDMismatch) throw error
    throw new TransientReplyError('a collection was dropped or renamed while it was read')
  }
}
