import { type Catalog, type CatalogEntry, newEntry } from '../domain/catalog.ts'
import type { ClusterTime } from '../domain/cluster-time.ts'
import { type IndexSpecification, sameIndexes } from '../domain/definition.ts'
import { UnfollowedError } from '../domain/errors.ts'
import { inParallel } from '../domain/in-parallel.ts'
import { isUserCollection, namespace } from '../domain/namespace.ts'
import { isTemporary } from '../domain/namespace-filter.ts'
import type { ObservedDatabase } from '../domain/observed-database.ts'
import type { RawFields } from '../domain/raw-bson.ts'
import type { ShardKey } from '../domain/shard-key.ts'
import type { Cluster } from '../mongo/cluster.ts'
import type { Metadata } from '../mongo/metadata.ts'
import type { Progressed, RetryContext } from '../mongo/retry.ts'
import type { Selection } from '../mongo/selection.ts'
import type { DestinationDefinitions } from './destination-definitions.ts'
import type { SourcePlacements } from './follow-sharding.ts'
import type { ListedCollection } from './listing.ts'
import { moveToNames } from './move-to-names.ts'
import type { DatabaseSnapshot } from './read-database.ts'
import { changedAfterCommitPoint, refuseExpiry, refuseUnsupported } from './refuse-definitions.ts'
import { ReplacingCollections } from './replacing-collections.ts'
import { awaitsShardKey, type ShardingEntries, wantedShardKey } from './sharding.ts'

/** The UUIDs of this many new collections are stored together. An interruption makes tandem create at most these again. */
const createdTogether = 500
/** The same on a sharded destination, where `shardCollection` and the distribution of chunks take much longer. */
const createdTogetherSharded = 32
/** Number of collections whose changes are followed in parallel: the server's default of `maxNumActiveUserIndexBuilds`. */
const followedAtOnce = 3

export type NewState = CatalogEntry['state'] | 'refused'

export interface FollowSnapshotParts {
  source: Cluster
  catalog: Catalog
  metadata: Metadata
  selection: Selection
  destination: DestinationDefinitions
  context: RetryContext
  /** True if TTL indexes are refused, because documents would expire on one cluster only. */
  refuseExpiry: boolean
  /** The collections of a replica set that become sharded on the destination. */
  shardingEntries: ShardingEntries
  placements: SourcePlacements
}

/** See the parameters of `DefinitionReconciler.reconcile`. */
interface Reconciled {
  database: string
  touched: ReadonlySet<string> | 'all'
  newState: NewState | ((uuid: string) => NewState)
  progressed: Progressed
}

/**
 * Makes the destination equal to a snapshot, one read of the definitions of a source database. The order is: drops of
 * collections, drops of views, renames (swaps use a temporary name), creations, options and indexes, views.
 */
export class SnapshotFollower {
  readonly #source: Cluster
  readonly #catalog: Catalog
  readonly #metadata: Metadata
  readonly #selection: Selection
  readonly #destination: DestinationDefinitions
  readonly #context: RetryContext
  readonly #refuseExpiry: boolean
  readonly #shardingEntries: ShardingEntries
  readonly #placements: SourcePlacements
  readonly #replacing: ReplacingCollections
  /** Entries by database that have changed and are not stored yet. A database is followed by one caller at a time. */
  readonly #changed = new Map<string, Set<CatalogEntry>>()

  constructor(parts: FollowSnapshotParts) {
    this.#source = parts.source
    this.#catalog = parts.catalog
    this.#metadata = parts.metadata
    this.#selection = parts.selection
    this.#destination = parts.destination
    this.#context = parts.context
    this.#refuseExpiry = parts.refuseExpiry
    this.#shardingEntries = parts.shardingEntries
    this.#placements = parts.placements
    this.#replacing = new ReplacingCollections(parts.source, parts.catalog)
  }

  /** True if the catalog has the collection with this UUID on the source. */
  readonly isKnown = (uuid: string): boolean => this.#catalog.get(uuid) !== undefined

  /**
   * Makes the destination equal to a snapshot of the source.
   * @param time the time up to which the snapshot shows every change
   */
  async follow(
    { database, touched, newState, progressed }: Reconciled,
    snapshot: DatabaseSnapshot,
    existingViews: ListedCollection[],
    time: ClusterTime,
  ): Promise<ObservedDatabase> {
    const { listed, indexes } = snapshot
    refuseUnsupported(database, listed, this.#destination.names)
    const clones = await this.#placements.findClones(database, snapshot, this.isKnown)
    if (clones.size > 0 && (newState === 'copied' || newState === 'refused')) throw new UnfollowedError(clones)
    const collections = listed.filter((one) => one.type === 'collection' && isUserCollection(one.name))
    const views = listed.filter((one) => one.type === 'view')
    const byUuid = new Map(collections.map((one) => [one.uuid, one]))
    if (this.#refuseExpiry) {
      for (const [uuid, found] of indexes) refuseExpiry(database, byUuid.get(uuid)?.name ?? '', found)
    }

    // The copy of a clone reads all of its documents, also those that movePrimary cloned without events.
    const stateOf = (uuid: string): NewState => {
      if (typeof newState !== 'function') return newState
      return clones.has(uuid) ? 'copying' : newState(uuid)
    }
    await this.#separate(database, byUuid, newState)
    const awaited = this.#replacing.awaitEvents(database, collections, (uuid) => {
      return stateOf(uuid) === 'copied' && (touched === 'all' || !touched.has(uuid))
    })
    const present = collections.filter(({ uuid }) => !awaited.has(uuid))

    for (const entry of this.#catalog.inDatabase(database)) {
      if (byUuid.has(entry.uuid)) continue
      const newName = snapshot.names.get(entry.uuid)
      const isRenamedOut = newName !== undefined && !isTemporary(entry.name)
      if (isRenamedOut && newState === 'refused') throw changedAfterCommitPoint(database, entry.name, 'renamed')
      await this.#drop(entry)
      const dropped = namespace(database, entry.name)
      const logged = { ...this.#destination.names.differing(dropped), fate: 'not selected any more' }
      if (isRenamedOut) this.#context.journal?.('existing namespace dropped', { namespace: dropped, ...logged })
    }
    await this.dropViewsExcept(database, views, existingViews)
    for (const entry of this.#catalog.inDatabase(database)) {
      const name = byUuid.get(entry.uuid)?.name
      if (entry.destinationUUID || !name || name === entry.name) continue
      // The source renamed the collection after its entry was stored and before the destination's UUID was stored.
      await this.#destination.dropUnrecorded(database, entry.name)
      entry.name = name
      entry.sourceName = name
      // Stored before another collection takes the old name. Otherwise a restart would drop that one as unrecorded.
      await this.#metadata.collections.save([entry])
    }
    const nameOf = (entry: CatalogEntry): string => {
      const { name } = byUuid.get(entry.uuid) as ListedCollection
      const destination = { sharded: this.#destination.sharding !== null }
      if (!awaitsShardKey(this.#source, destination, this.#shardingEntries, entry, name)) return name
      if (newState === 'refused') throw changedAfterCommitPoint(database, name, 'renamed')
      return entry.name
    }
    await moveToNames(
      () => this.#catalog.inDatabase(database).filter((entry) => entry.destinationUUID),
      nameOf,
      (entry, name) => this.#move(entry, name),
    )
    const { created, upToDate } = await this.#create(database, present, snapshot, stateOf)
    // This is stored after the clones are in the catalog, because a read finds clones only while the former placement
    // is stored.
    await this.#placements.record(database, snapshot)
    const indexesOf = new Set(upToDate)
    // At commit, options are compared with those of the destination's collections: an option may have been set on the
    // destination but not stored in the catalog, and then changed back on the source.
    const existingOptions = newState === 'refused' ? await this.#destination.existingOptions(database) : null
    // Another attempt finds no change in what this one has made equal, so the changed entries are kept until they are stored.
    const changed = this.#changed.get(database) ?? new Set()
    this.#changed.set(database, changed)
    await inParallel(this.#destination.sharding ? 1 : followedAtOnce, collections, async (one) => {
      const known = this.#catalog.get(one.uuid)
      if (!known) return
      known.sourceName = one.name
      // Event application has ended and no longer builds the awaited indexes, so `#followCollection` builds them.
      if (newState === 'refused') known.awaitsIndexes = false
      if (upToDate.has(one.uuid)) return
      const isTouched = touched === 'all' || touched.has(one.uuid) || created.has(one.uuid)
      const shardKey = this.#source.sharded ? this.#wantedKey(known, snapshot) : known.shardKey
      const all = indexes.get(one.uuid)
      let found = all && this.#destination.indexes.included(all, shardKey)
      // The indexes were only prefetched and have not changed, so the destination's indexes need not be read.
      if (!isTouched && found && sameIndexes(found, known.wanted.indexes)) found = undefined
      const optionsThere = existingOptions?.get(known.destinationUUID ?? '')
      if (await this.#followCollection(known, one, shardKey, found, optionsThere)) changed.add(known)
      // A refused index is built again when the event of its collection is read: the documents may be others by then.
      if (found && known.refusedIndexes.length === 0) indexesOf.add(one.uuid)
      progressed(false)
    })
    await this.#metadata.collections.save([...changed].filter((entry) => this.#catalog.get(entry.uuid) === entry))
    this.#changed.delete(database)
    await this.#destination.followViews(database, views)
    // The time is 0 if a collection was left out, so that its event leads to another read.
    return { database, time: present.length < collections.length ? 0n : time, indexesOf }
  }

  /**
   * Handles the collections that the source has renamed to a name that belongs to another database of the destination, or
   * from such a name (`namespaceRemap`). They are created and copied again. While the initial catalog is built, and for a
   * collection whose convergence is being planned, nothing has been copied that counts, so the destination's collection is
   * dropped here.
   * @throws UnfollowedError if a convergence must be requested first, or planned for more collections
   */
  async #separate(
    database: string,
    byUuid: ReadonlyMap<string, ListedCollection>,
    newState: Reconciled['newState'],
  ): Promise<void> {
    const { names } = this.#destination
    if (!names.hasCollections) return
    const separated = this.#catalog.inDatabase(database).flatMap((entry) => {
      const name = byUuid.get(entry.uuid)?.name
      return name !== undefined && entry.destinationUUID && names.separates(database, entry.name, name)
        ? [{ entry, name }]
        : []
    })
    const [first] = separated
    if (!first) return
    if (newState === 'refused') throw changedAfterCommitPoint(database, first.entry.name, 'renamed')
    const open = separated.filter(({ entry }) => newState === 'copied' || entry.state !== 'copying' || entry.planned)
    if (open.length > 0)
      throw new UnfollowedError(new Map(open.map(({ entry, name }) => [entry.uuid, namespace(database, name)])))
    for (const { entry, name } of separated) {
      await this.#destination.drop(entry)
      // `converging` stays as it is stored: the new collection is then compared like an existing one that is empty.
      Object.assign(entry, { destinationUUID: null, name, sourceName: name })
      await this.#metadata.collections.save([entry])
    }
  }

  /** Drops the destination's views that are not wanted, except those that the filter does not select. */
  async dropViewsExcept(database: string, wanted: ListedCollection[], existing: ListedCollection[]): Promise<void> {
    await this.#destination.dropViewsExcept(database, wanted, await this.#selection.among(database, existing))
  }

  async #drop(entry: CatalogEntry): Promise<void> {
    await this.#destination.drop(entry)
    await this.#metadata.collections.remove(entry.uuid)
    this.#catalog.remove(entry.uuid)
  }

  /**
   * Creates new collections, and those whose creation was interrupted by a crash. For the latter, the catalog has an
   * intent, which is an entry without a destination UUID. Returns the UUIDs of the created collections, and of those
   * whose definition already matches this snapshot.
   */
  async #create(
    database: string,
    collections: ListedCollection[],
    snapshot: DatabaseSnapshot,
    stateOf: (uuid: string) => NewState,
  ): Promise<{ created: Set<string>; upToDate: Set<string> }> {
    const intents: CatalogEntry[] = []
    const upToDate = new Set<string>()
    for (const one of collections) {
      const known = this.#catalog.get(one.uuid)
      if (known?.destinationUUID) continue
      const state = stateOf(one.uuid)
      // A source older than 6.0 emits no create events, so events of the collection's documents may have been skipped.
      // The collection is converged instead.
      if (this.#source.before6 && state === 'copied' && !known) continue
      if (state === 'refused') {
        throw changedAfterCommitPoint(database, one.name, 'created')
      }
      const entry =
        known ?? newEntry(database, one, { options: one.options, indexes: snapshot.indexes.get(one.uuid) ?? [] }, state)
      entry.shardKey = this.#wantedKey(entry, snapshot)
      entry.wanted.indexes = this.#destination.indexes.included(entry.wanted.indexes, entry.shardKey)
      entry.awaitsIndexes = entry.state === 'copying' && this.#destination.indexes.afterCopy
      intents.push(entry)
      // The other collections are compared once more: an earlier intent may have an outdated definition, and the server
      // may have built an index for a shard key by itself.
      if (!known && !entry.shardKey) upToDate.add(entry.uuid)
    }
    const created = new Set(intents.map(({ uuid }) => uuid))
    if (intents.length === 0) return { created, upToDate }
    // The intent is stored first, so that a collection created right before a crash is recognized as tandem's.
    await this.#metadata.collections.save(intents)
    // The intents enter the catalog now, because a retry may find these collections dropped or renamed on the source.
    for (const entry of intents) if (!this.#catalog.get(entry.uuid)) this.#catalog.add(entry)
    const size = this.#destination.sharding ? createdTogetherSharded : createdTogether
    for (let from = 0; from < intents.length; from += size) {
      const together = intents.slice(from, from + size)
      try {
        await this.#destination.create(database, together)
        await this.#metadata.collections.save(together)
      } catch (error) {
        // A UUID counts only when it is stored. A collection whose UUID is not stored is empty and is created again.
        for (const entry of together) entry.destinationUUID = null
        throw error
      }
    }
    return { created, upToDate }
  }

  /** Returns the wanted shard key. A collection of a replica set keeps the key with which it was created. */
  #wantedKey(entry: CatalogEntry, { distributions }: DatabaseSnapshot): ShardKey | null {
    if (!this.#destination.sharding) return null
    if (!this.#source.sharded && entry.shardKey) return entry.shardKey
    return wantedShardKey(this.#source, distributions, this.#shardingEntries, entry)
  }

  /** Returns true if the entry has changed after it was stored. The caller stores it. */
  async #followCollection(
    entry: CatalogEntry,
    one: ListedCollection,
    shardKey: ShardKey | null,
    indexes: IndexSpecification[] | undefined,
    existing?: RawFields,
  ): Promise<boolean> {
    const optionsChanged = await this.#destination.followOptions(entry, one.options, existing)
    entry.wanted = { options: one.options, indexes: entry.wanted.indexes }
    // Stored before the indexes are built, because a build may take hours and fail.
    if (optionsChanged) await this.#metadata.collections.save([entry])
    const indexesChanged = indexes ? await this.#destination.indexes.followIndexes(entry, indexes, shardKey) : false
    if (indexes) entry.wanted = { options: one.options, indexes }
    const keyChanged = this.#source.sharded && (await this.#destination.sharding?.follow(entry, shardKey))
    return indexesChanged || keyChanged === true
  }

  async #move(entry: CatalogEntry, name: string): Promise<void> {
    await this.#destination.rename(entry, name)
    entry.name = name
    await this.#metadata.collections.save([entry])
  }
}
