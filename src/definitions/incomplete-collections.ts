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
import { type ListedCollection, listCollections, readCommitted } from './listing.ts'
import { isUnfinishedConversion } from './read-database.ts'
import type { ShardingEntries } from './sharding.ts'

export interface IncompleteCollectionsParts {
  source: Cluster
  catalog: Catalog
  selection: Selection
  /** The collections of a replica set that become sharded on the destination. */
  shardingEntries: ShardingEntries
  context: RetryContext
}

/**
 * Finds collections that have documents on the source for which the change stream delivered no events. These
 * collections must be converged. There are four causes:
 *
 * - A rename gives a collection a selected name, and its former name was not selected. The stream did not deliver
 *   changes made under the former name. `$out`, mapReduce and a rename from another database end with such a rename if
 *   the filter does not select their temporary names.
 * - A rename ends convertToCapped. The server writes the converted collection without change events.
 * - cloneCollectionAsCapped has created a collection, which has an event, and has written its documents without events.
 * - reshardCollection has ended, or since 8.0 moveCollection or unshardCollection. The server writes the new
 *   collection, which has another UUID, without change events.
 *
 * A rename from another database can also require a convergence although no event is missing: if the start request has
 * a shard key for the new name, the destination has created the collection under the temporary name and without that
 * key. The convergence creates the collection again. Until then, the collection keeps its temporary name on the
 * destination, even if the source renames it once more.
 *
 * While a collection is being resharded, the former collection remains complete: its changes have events with its UUID,
 * and the server refuses writes during the switch to the new one. Until the switch, the new collection is named
 * `system.resharding.<UUID>`: change streams do not report its changes, and it is not listed. Once it is listed, it is
 * complete, and later changes have events with its UUID. Its convergence begins after it was listed, so it reads
 * everything that was written without events.
 *
 * The event of a reshardCollection is written after the switch (before it in releases later than 7.0), so document
 * events of the new collection may come first. They request its convergence too (`EventApplication`). In that case, the
 * event of the reshardCollection does not request it again.
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
    const addsDocuments = await this.#addsDocuments(event)
    // An event of a source older than 6.0 has no UUID.
    if (event.uuid === '') return await this.#afterRename(event, addsDocuments)
    if (!addsDocuments || this.#isConvergedSince(event.uuid, event.time, event.to.collection)) return []
    return (await this.isOnSource(event.to.database, event.uuid)) ? [event.uuid] : []
  }

  /** Returns true if the source has a collection with this UUID under a selected name. */
  async isOnSource(database: string, uuid: string): Promise<boolean> {
    return (await this.#selected(database)).some((one) => one.uuid === uuid)
  }

  async #afterResharding({ database, uuid, reshardedUuid }: ChangeEvent): Promise<string[]> {
    const { catalog, context } = this.#parts
    const wasConverged = typeof catalog.get(reshardedUuid)?.convergedFrom === 'bigint'
    if (wasConverged) return []
    return await retry(`waiting for the end of a resharding in ${database}`, context, async () => {
      // This must be a single read. If the shards switched between two reads, these could show neither collection.
      const uuids = new Set((await this.#selected(database)).map((one) => one.uuid))
      if (uuids.has(reshardedUuid)) return [reshardedUuid]
      // Releases later than 7.0 write the event before the shards switch to the new collection.
      if (uuids.has(uuid)) throw new TransientReplyError('the shards still have the former collection')
      return []
    })
  }

  /**
   * Returns the collection if cloneCollectionAsCapped created it. This command holds an exclusive lock on the database
   * until all documents are copied (measured on 6.0.27), and the listing waits for that lock. A capped collection that
   * an application created and filled is not converged.
   */
  async #afterCappedCreation({ database, collection, uuid, time }: ChangeEvent): Promise<string[]> {
    const { source, context } = this.#parts
    if (isConversion(collection) || this.#isConvergedSince(uuid, time, collection)) return []
    return await retry(`following definitions of ${database}`, context, async () => {
      const found = (await this.#listSelected(database)).find((one) => one.uuid === uuid)
      if (!found || !(await hasDocuments(source, database, found))) return []
      return (await isFilledByClient(source, uuid, time)) ? [] : [uuid]
    })
  }

  /** Returns true if this rename gives a selected name to a collection that may have documents without events. */
  async #addsDocuments({ database, collection, uuid, to }: ChangeEvent): Promise<boolean> {
    const { selection, catalog, context } = this.#parts
    const isSelected = (of: string, name: string): Promise<boolean> =>
      retry(`following definitions of ${of}`, context, () => selection.selects(of, name))
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
   * concern any collection of the database. A collection that is not in the catalog is always converged. Events of a
   * collection that needs one lane are assigned to partitions by the collection's name. If the catalog was read before
   * the event of a rename, some events may have gone to another partition, so the collection is converged too. A
   * collection that lacks the shard key of its new name (`#lacksKey`) is also converged.
   */
  async #afterRename({ database, collection, to, time }: ChangeEvent, addsDocuments: boolean): Promise<string[]> {
    const wasTemporary = isTemporary(collection) || isConversion(collection)
    const mayLackDocuments = ({ uuid, name }: ListedCollection): boolean => {
      const entry = this.#parts.catalog.get(uuid)
      if (!entry || (addsDocuments && !wasTemporary) || this.#lacksKey(entry, name)) return true
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

  async #selected(database: string): Promise<ListedCollection[]> {
    return await retry(`listing ${database}`, this.#parts.context, () => this.#listSelected(database))
  }

  async #listSelected(database: string): Promise<ListedCollection[]> {
    const { source, selection } = this.#parts
    return await readCommitted(source, async () => selection.among(database, await listCollections(source, database)))
  }
}

/** Returns true if a collection has documents. Throws TransientReplyError if it was dropped or renamed after the listing. */
async function hasDocuments(source: Cluster, database: string, { name, uuid }: ListedCollection): Promise<boolean> {
  try {
    const found = { find: name, collectionUUID: toUuid(uuid), limit: 1, singleBatch: true, projection: { _id: 1 } }
    return ((await source.read(database, found))['cursor'].firstBatch as unknown[]).length > 0
  } catch (error) {
    if (codeOf(error) !== code.collectionUUIDMismatch) throw error
    throw new TransientReplyError('a collection was dropped or renamed while it was read')
  }
}
