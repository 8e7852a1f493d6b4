import { type Catalogue, type CatalogueEntry, newEntry } from '../domain/catalogue.ts'
import type { ChangeEvent } from '../domain/change-event.ts'
import { earlierOf } from '../domain/cluster-time.ts'
import type { IndexSpecification } from '../domain/definition.ts'
import { FatalError } from '../domain/errors.ts'
import { inParallel } from '../domain/in-parallel.ts'
import { isUserCollection, namespace } from '../domain/namespace.ts'
import { isConversion, isTemporary } from '../domain/namespace-filter.ts'
import { notLost } from '../domain/not-lost.ts'
import type { ObservedDatabase } from '../domain/observed-database.ts'
import { buildDocument, type RawFields } from '../domain/raw-bson.ts'
import { askedShardKey, type ShardKey, sameShardKey } from '../domain/shard-key.ts'
import type { ShardingOptions } from '../domain/start-request.ts'
import { type Cluster, operationTimeOf } from '../mongo/cluster.ts'
import type { Metadata } from '../mongo/metadata.ts'
import { appendOplogNote } from '../mongo/oplog-note.ts'
import { type RetryContext, retry } from '../mongo/retry.ts'
import type { Selection } from '../mongo/selection.ts'
import type { DestinationDefinitions } from './destination-definitions.ts'
import { isFollowed, refuseCrossing, renamedOut } from './filter-edge.ts'
import { refuseUndistributable, resharding, SourcePlacements } from './follow-sharding.ts'
import { refuseEmittedChange, refuseSilentChanges } from './frozen-definitions.ts'
import { type ListedCollection, listCollections, listDatabases, listIndexes, readCommitted } from './listing.ts'
import { moveToNames } from './move-to-names.ts'
import { type DatabaseSnapshot, readDatabase } from './read-database.ts'
import { refuseExpiry, refuseUnsupported, unsupportedConversion } from './refuse-definitions.ts'
import { type Placement, readDistributions, readPlacements } from './sharding.ts'

/**
 * Reconciles definitions like documents: a DDL event says *which* database and collection changed; their current
 * definitions are read from the source, and the destination is made equal. A replay is therefore harmless. Reading
 * ahead of the stream is harmless, too: collections are identified by UUID, a UUID is never reused, and later events
 * find nothing left to do.
 *
 * Called behind a barrier (no document writes are in flight). Order: drops, dropped views whose names are needed,
 * renames (swaps use a temporary name), creations, options and indexes, views.
 */
export class DefinitionReconciler {
  readonly #source: Cluster
  readonly #catalogue: Catalogue
  readonly #metadata: Metadata
  readonly #selection: Selection
  readonly #destination: DestinationDefinitions
  readonly #context: RetryContext
  readonly #refuseExpiry: boolean
  readonly #shardingEntries: ShardingOptions['shardingEntries']
  #placements: SourcePlacements

  constructor(parts: {
    source: Cluster
    catalogue: Catalogue
    metadata: Metadata
    selection: Selection
    destination: DestinationDefinitions
    context: RetryContext
    /** TTL indexes are refused, because the verifier would see documents expire on one cluster only. */
    refuseExpiry?: boolean
    /** The collections of a replica set that become sharded on the destination. */
    shardingEntries?: ShardingOptions['shardingEntries']
  }) {
    this.#source = parts.source
    this.#catalogue = parts.catalogue
    this.#metadata = parts.metadata
    this.#selection = parts.selection
    this.#destination = parts.destination
    this.#context = parts.context
    this.#refuseExpiry = parts.refuseExpiry ?? false
    this.#shardingEntries = parts.shardingEntries ?? []
    this.#placements = new SourcePlacements(parts.metadata)
    this.#destination.isStopped = () => this.#context.signal.aborted
    this.#destination.isOurs = (uuid) => this.#catalogue.entries().some((entry) => entry.destinationUUID === uuid)
  }

  /**
   * @param touched UUIDs whose indexes may have changed; 'all' reads the indexes of every collection of the database
   * @param newState the state of new collections: 'copying' while the initial catalogue is built; 'copied' afterwards,
   * because every document of a new collection then arrives through the stream; 'refused' once every event up to the
   * commit timestamp is applied, because a collection that is still new was created after it
   * @param prefetchMax when the database has at most this many collections, the indexes of all of them are read, so
   * that more of the later events find their change already followed
   * @returns what was read, all of which has been followed
   */
  async reconcile(
    database: string,
    touched: ReadonlySet<string> | 'all',
    newState: CatalogueEntry['state'] | 'refused',
    prefetchMax = 0,
  ): Promise<ObservedDatabase> {
    return await retry(`following definitions of ${database}`, this.#context, async (progressed) => {
      // Once the oplog no-op is committed, everything up to this time is committed on each shard, and the read below
      // shows it. The time is never later than the no-op, because a deposed primary may report a time ahead of its
      // successor.
      const { latest } = this.#source
      const time = earlierOf(
        latest,
        operationTimeOf(await appendOplogNote(this.#source, 'before a catalogue read')) ?? latest,
      )
      const snapshot = await readCommitted(this.#source, () => this.#readDatabase(database, touched, prefetchMax))
      const { listed, indexes } = snapshot
      refuseUnsupported(database, listed)
      refuseUndistributable(database, listed, snapshot.distributions)
      await this.#placements.refuseMoved(database, snapshot, this.#isKnown)
      const collections = listed.filter((one) => one.type === 'collection' && isUserCollection(one.name))
      const views = listed.filter((one) => one.type === 'view')
      const byUuid = new Map(collections.map((one) => [one.uuid, one]))
      if (this.#refuseExpiry) {
        for (const [uuid, found] of indexes) refuseExpiry(database, byUuid.get(uuid)?.name ?? '', found)
      }

      for (const entry of this.#catalogue.inDatabase(database)) {
        if (byUuid.has(entry.uuid)) continue
        const leftAs = snapshot.names.get(entry.uuid)
        if (leftAs !== undefined && !isTemporary(entry.name)) throw renamedOut(database, entry.name, leftAs)
        await this.#drop(entry)
      }
      await this.#dropViewsExcept(database, views)
      for (const entry of this.#catalogue.inDatabase(database)) {
        const name = byUuid.get(entry.uuid)?.name
        if (entry.destinationUUID || !name || name === entry.name) continue
        // The source renamed the collection after its intent was stored and before it was created on the destination.
        await this.#destination.dropUnrecorded(database, entry.name)
        entry.name = name
        entry.sourceName = name
        // Stored before another collection takes the old name, which a restart would otherwise drop as unrecorded.
        await this.#metadata.collections.save([entry])
      }
      await moveToNames(
        () => this.#catalogue.inDatabase(database).filter((entry) => entry.destinationUUID),
        (entry) => (byUuid.get(entry.uuid) as ListedCollection).name,
        (entry, name) => this.#move(entry, name),
      )
      const { created, upToDate } = await this.#create(database, collections, snapshot, newState)
      const indexesOf = new Set(upToDate)
      // At the commit, options are compared with those that exist on the destination: an option may have been set but
      // not stored, and then changed back on the source.
      const existingOptions = newState === 'refused' ? await this.#destination.existingOptions(database) : null
      for (const one of collections) {
        const known = this.#catalogue.get(one.uuid)
        if (!known) continue
        known.sourceName = one.name
        if (upToDate.has(one.uuid)) continue
        const isAsked = touched === 'all' || touched.has(one.uuid) || created.has(one.uuid)
        let found = indexes.get(one.uuid)
        // The indexes were only prefetched and are unchanged, so the destination's indexes need no read.
        if (!isAsked && sameIndexes(found, known.wanted.indexes)) found = undefined
        await this.#follow(known, one, snapshot, found, existingOptions?.get(known.destinationUUID ?? ''))
        if (found) indexesOf.add(one.uuid)
        progressed(false)
      }
      await this.#destination.followViews(database, views)
      return { database, time, indexesOf }
    })
  }

  /**
   * Records the move of databases without cloned collections. The destination does not change, so no barrier is needed.
   */
  async recordMoved(databases: readonly string[]): Promise<void> {
    for (const database of databases) {
      await retry(`reading the primary shard of ${database}`, this.#context, async () => {
        const snapshot = await readCommitted(this.#source, () => this.#readDatabase(database, new Set()))
        await this.#placements.recordMoved(database, snapshot, this.#isKnown)
      })
    }
  }

  /** Databases of a sharded source whose primary shard is not the stored one. */
  moved(placements: Placement[]): Promise<string[]> {
    return this.#placements.changed(placements)
  }

  readonly #isKnown = (uuid: string): boolean => this.#catalogue.get(uuid) !== undefined

  #readDatabase(database: string, touched: ReadonlySet<string> | 'all', prefetchMax = 0): Promise<DatabaseSnapshot> {
    const parts = { source: this.#source, selection: this.#selection, catalogue: this.#catalogue }
    return readDatabase(parts, database, touched, prefetchMax)
  }

  /**
   * Databases of a sharded source whose primary shard, or the shard key of one of their collections, is not the stored
   * one. 6.0.27 emits no event for refineCollectionShardKey, nor for a movePrimary without collections to clone. Throws
   * FatalError UnsupportedChange while a collection is being resharded.
   */
  async silentlyChanged(): Promise<string[]> {
    await this.refuseSilentChanges(false)
    if (!this.#source.sharded) return []
    const changed = new Set(await this.#placements.changed(await readPlacements(this.#source)))
    for (const { uuid, name, key, resharding: isResharding } of await readDistributions(this.#source)) {
      const entry = this.#catalogue.get(uuid)
      if (!entry) continue
      if (isResharding) throw resharding(entry.database, name.slice(entry.database.length + 1))
      if (!sameShardKey(entry.shardKey, key)) changed.add(entry.database)
    }
    return [...changed]
  }

  /**
   * Throws FatalError UnsupportedChange when definitions changed on a source older than 6.0, which emits no such
   * events.
   */
  async refuseSilentChanges(withIndexes: boolean): Promise<void> {
    if (this.#source.before6) await refuseSilentChanges(this.#source, this.#catalogue, this.#selection, withIndexes)
  }

  /**
   * A source older than 6.0 emits no events for views. Views hold no documents, so this runs once the writes have
   * stopped.
   */
  async followSilentViews(): Promise<void> {
    if (!this.#source.before6) return
    const selected = await this.#selection.databases(await listDatabases(this.#source))
    const databases = new Set([...selected, ...this.#catalogue.databases()])
    await inParallel(atOnce, [...databases], async (database) => {
      const all = await readCommitted(this.#source, () => listCollections(this.#source, database))
      const listed = await this.#selection.among(database, all)
      const views = listed.filter((one) => one.type === 'view')
      await this.#dropViewsExcept(database, views)
      await this.#destination.followViews(database, views)
    })
  }

  /** Throws FatalError UnsupportedChange for a DDL event whose documents have no events, or that cannot be followed. */
  async refuseEvent(event: ChangeEvent): Promise<void> {
    if (this.#source.before6) refuseEmittedChange(event)
    const { operationType, database, collection } = event
    if (operationType === 'reshardCollection') throw resharding(database, collection)
    // A filter by name may select the converted collection but not the temporary one; then only its rename is emitted.
    if (isConversion(collection) && (operationType === 'create' || operationType === 'rename')) {
      if (await isFollowed(this.#selection, database, collection, this.#context)) {
        throw unsupportedConversion(database, collection)
      }
    }
    if (operationType === 'rename') await refuseCrossing(event, this.#selection, this.#context)
    if (operationType !== 'create') return
    if (this.#destination.sharding && !this.#source.sharded && /^tmp.{5}\.renameCollection$/.test(collection)) {
      throw new FatalError(
        'UnsupportedChange',
        `following DDL: a collection was renamed into database ${database} from another one, which tandem cannot follow from a replica set to ` +
          `a sharded cluster. Start over with an emptied destination. ${notLost.source}`,
      )
    }
  }

  /** Keeps the destination's views whose names the filter does not select. */
  async #dropViewsExcept(database: string, wanted: ListedCollection[]): Promise<void> {
    const ours = (views: ListedCollection[]): Promise<ListedCollection[]> => this.#selection.among(database, views)
    await this.#destination.dropViewsExcept(database, wanted, ours)
  }

  /** Drops indexes that the source no longer has, before their event arrives. Returns true when one was dropped. */
  async dropVanishedIndexes(entry: CatalogueEntry): Promise<boolean> {
    const indexes = await readCommitted(this.#source, () => listIndexes(this.#source, entry.database, entry.uuid))
    if (!indexes) return false
    return await this.#destination.dropIndexesExcept(entry, indexes)
  }

  async #drop(entry: CatalogueEntry): Promise<void> {
    await this.#destination.drop(entry)
    await this.#metadata.collections.remove(entry.uuid)
    this.#catalogue.remove(entry.uuid)
  }

  /**
   * Creates new collections, and those that a crash left as an intent without a collection. Returns the UUIDs of the
   * created collections, and of those whose definition already matches this snapshot.
   */
  async #create(
    database: string,
    collections: ListedCollection[],
    snapshot: DatabaseSnapshot,
    state: CatalogueEntry['state'] | 'refused',
  ): Promise<{ created: Set<string>; upToDate: Set<string> }> {
    const intents: CatalogueEntry[] = []
    const upToDate = new Set<string>()
    for (const one of collections) {
      const known = this.#catalogue.get(one.uuid)
      if (known?.destinationUUID) continue
      if (state === 'refused') {
        throw new FatalError(
          'UnsupportedChange',
          `${namespace(database, one.name)} was created on the source after the commit timestamp, while the commit prepared the destination. Stop all writes on the source, ` +
            `then send resume. ${notLost.progress}`,
        )
      }
      const entry =
        known ?? newEntry(database, one, { options: one.options, indexes: snapshot.indexes.get(one.uuid) ?? [] }, state)
      entry.shardKey = this.#wantedKey(entry, snapshot)
      intents.push(entry)
      // An older intent may have an outdated definition, and the server itself builds an index for a shard key.
      if (!known && !entry.shardKey) upToDate.add(entry.uuid)
    }
    const created = new Set(intents.map(({ uuid }) => uuid))
    if (intents.length === 0) return { created, upToDate: upToDate }
    // The intent is stored first, so that a collection created right before a crash is recognized as ours.
    await this.#metadata.collections.save(intents)
    // The catalogue has the entries from here on, because a retry may find them dropped or renamed on the source.
    for (const entry of intents) if (!this.#catalogue.get(entry.uuid)) this.#catalogue.add(entry)
    try {
      await inParallel(atOnce, intents, async (entry) => {
        await this.#destination.create(entry)
      })
      await this.#metadata.collections.save(intents)
    } catch (error) {
      // A UUID counts only when it is stored. A collection with an unstored UUID is empty and is created again.
      for (const entry of intents) entry.destinationUUID = null
      throw error
    }
    return { created, upToDate: upToDate }
  }

  /** The wanted shard key: the source's, or the one that the start request gives for this name. */
  #wantedKey(entry: CatalogueEntry, { distributions }: DatabaseSnapshot): ShardKey | null {
    if (!this.#destination.sharding) return null
    if (this.#source.sharded) return distributions.get(entry.uuid)?.key ?? null
    const asked = this.#shardingEntries.find(
      ({ database, collection }) => database === entry.database && collection === entry.name,
    )
    return asked ? askedShardKey(asked.shardCollection.key) : null
  }

  async #follow(
    entry: CatalogueEntry,
    one: ListedCollection,
    snapshot: DatabaseSnapshot,
    indexes: IndexSpecification[] | undefined,
    existing?: RawFields,
  ): Promise<void> {
    const optionsChanged = await this.#destination.followOptions(entry, one.options, existing)
    entry.wanted = { options: one.options, indexes: entry.wanted.indexes }
    // Stored before the indexes are built, which may take hours and fail. The next change is compared with these
    // options.
    if (optionsChanged) await this.#metadata.collections.save([entry])
    const indexesChanged = indexes ? await this.#destination.followIndexes(entry, indexes) : false
    if (indexes) entry.wanted = { options: one.options, indexes }
    const keyChanged =
      this.#source.sharded && (await this.#destination.sharding?.follow(entry, this.#wantedKey(entry, snapshot)))
    if (indexesChanged || keyChanged) await this.#metadata.collections.save([entry])
  }

  async #move(entry: CatalogueEntry, name: string): Promise<void> {
    await this.#destination.rename(entry, name)
    entry.name = name
    await this.#metadata.collections.save([entry])
  }
}

function sameIndexes(found: IndexSpecification[] | undefined, known: IndexSpecification[]): boolean {
  if (!found) return true
  const bytesOf = (one: IndexSpecification | undefined): Buffer => (one ? buildDocument(one) : Buffer.alloc(0))
  return found.length === known.length && found.every((one, at) => bytesOf(one).equals(bytesOf(known[at])))
}

/** Collections created, or databases read, in parallel. */
const atOnce = 8
