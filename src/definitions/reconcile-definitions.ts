import { type Catalogue, type CatalogueEntry, newEntry } from '../domain/catalogue.ts'
import type { ChangeEvent } from '../domain/change-event.ts'
import { earlierOf } from '../domain/cluster-time.ts'
import type { IndexSpecification } from '../domain/definition.ts'
import { FatalError } from '../domain/errors.ts'
import { inParallel } from '../domain/in-parallel.ts'
import { isUserCollection, namespace } from '../domain/namespace.ts'
import { isConversion, isTemporary } from '../domain/namespace-filter.ts'
import { buildDocument, type RawFields } from '../domain/raw-bson.ts'
import type { SeenDatabase } from '../domain/seen-database.ts'
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
import { type Look, lookAtDatabase } from './read-database.ts'
import { refuseExpiry, refuseUnsupported, unsupportedConversion } from './refuse-definitions.ts'
import { type Placement, readDistributions, readPlacements } from './sharding.ts'

/**
 * Definitions are reconciled like documents: a DDL event says *which* database and collection changed; what they are
 * now is read from the source, and the destination is made equal. So a replay is harmless, and so is reading ahead of
 * the stream: collections are known by UUID, a UUID never comes back, and its later events find nothing left to do.
 *
 * Called behind a barrier (no document is on its way). Order: drops, views that must make room, renames (swaps by way
 * of a parking name), creations, options and indexes, views.
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
    /** TTL indexes cannot be carried: the verifier would see documents expire on one cluster only. */
    refuseExpiry?: boolean
    /** Which collections of a replica set are to be sharded. */
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
   * @param touched UUIDs whose indexes may have changed; 'all' looks at every collection of the database
   * @param newState 'copying' while the initial catalogue is taken; afterwards every document of a new collection comes
   * through the stream, so it is 'copied' from its creation; 'refused' once every event up to the commit point is
   * applied, since one that is new then was created after it
   * @param aheadMax in a database of no more collections than this the indexes of all of them are looked at, so that events
   * still to come find more of what they tell of followed
   * @returns what the look has shown, all of which is followed now
   */
  async reconcile(
    database: string,
    touched: ReadonlySet<string> | 'all',
    newState: CatalogueEntry['state'] | 'refused',
    aheadMax = 0,
  ): Promise<SeenDatabase> {
    return await retry(`following definitions of ${database}`, this.#context, async (progressed) => {
      // What has this time or an earlier one is committed when the note is, on each shard, and the look shows it. Not later than the
      // note itself: a time that a primary told which was deposed then may be ahead of its successor.
      const { latest } = this.#source
      const time = earlierOf(
        latest,
        operationTimeOf(await appendOplogNote(this.#source, 'before a catalogue read')) ?? latest,
      )
      const look = await readCommitted(this.#source, () => this.#look(database, touched, aheadMax))
      const { listed, indexes } = look
      refuseUnsupported(database, listed)
      refuseUndistributable(database, listed, look.distributions)
      await this.#placements.refuseMoved(database, look, this.#isKnown)
      const collections = listed.filter((one) => one.type === 'collection' && isUserCollection(one.name))
      const views = listed.filter((one) => one.type === 'view')
      const byUuid = new Map(collections.map((one) => [one.uuid, one]))
      if (this.#refuseExpiry) {
        for (const [uuid, found] of indexes) refuseExpiry(database, byUuid.get(uuid)?.name ?? '', found)
      }

      for (const entry of this.#catalogue.inDatabase(database)) {
        if (byUuid.has(entry.uuid)) continue
        const leftAs = look.names.get(entry.uuid)
        if (leftAs !== undefined && !isTemporary(entry.name)) throw renamedOut(database, entry.name, leftAs)
        await this.#drop(entry)
      }
      await this.#dropViewsExcept(database, views)
      for (const entry of this.#catalogue.inDatabase(database)) {
        const name = byUuid.get(entry.uuid)?.name
        if (entry.destinationUUID || !name || name === entry.name) continue
        // Renamed on the source between our intent to create it and its creation.
        await this.#destination.dropUnrecorded(database, entry.name)
        entry.name = name
        entry.sourceName = name
        // Before another one takes the name it was to have: a restart would drop that as what this one had left.
        await this.#metadata.collections.save([entry])
      }
      await moveToNames(
        () => this.#catalogue.inDatabase(database).filter((entry) => entry.destinationUUID),
        (entry) => (byUuid.get(entry.uuid) as ListedCollection).name,
        (entry, name) => this.#move(entry, name),
      )
      const { created, asLooked } = await this.#create(database, collections, look, newState)
      const indexesOf = new Set(asLooked)
      // Once more by what stands there: an option that was set and then not stored may have changed back on the source since.
      const standing = newState === 'refused' ? await this.#destination.standingOptions(database) : null
      for (const one of collections) {
        const known = this.#catalogue.get(one.uuid)
        if (!known) continue
        known.sourceName = one.name
        if (asLooked.has(one.uuid)) continue
        const isAsked = touched === 'all' || touched.has(one.uuid) || created.has(one.uuid)
        let found = indexes.get(one.uuid)
        // Looked at ahead, and as it was: what stands on the destination is not looked at for that.
        if (!isAsked && sameIndexes(found, known.wanted.indexes)) found = undefined
        await this.#follow(known, one, look, found, standing?.get(known.destinationUUID ?? ''))
        if (found) indexesOf.add(one.uuid)
        progressed(false)
      }
      await this.#destination.followViews(database, views)
      return { database, time, indexesOf }
    })
  }

  /** Notes the move of databases in which nothing was cloned; nothing is changed on the destination, so no barrier is needed. */
  async noteMoved(databases: readonly string[]): Promise<void> {
    for (const database of databases) {
      await retry(`looking where ${database} lives`, this.#context, async () => {
        const look = await readCommitted(this.#source, () => this.#look(database, new Set()))
        await this.#placements.noteMoved(database, look, this.#isKnown)
      })
    }
  }

  /** Databases of a sharded source that live elsewhere than is known. */
  moved(placements: Placement[]): Promise<string[]> {
    return this.#placements.changed(placements)
  }

  readonly #isKnown = (uuid: string): boolean => this.#catalogue.get(uuid) !== undefined

  #look(database: string, touched: ReadonlySet<string> | 'all', aheadMax = 0): Promise<Look> {
    const parts = { source: this.#source, selection: this.#selection, catalogue: this.#catalogue }
    return lookAtDatabase(parts, database, touched, aheadMax)
  }

  /**
   * Databases of a sharded source whose collections have another shard key, or which have another primary shard, than is known:
   * 6.0.27 tells no event of refineCollectionShardKey, nor of a movePrimary that has nothing to clone. Throws FatalError UnsupportedChange while a collection is being resharded.
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

  /** Throws FatalError UnsupportedChange when a source that does not tell of them has other definitions than it had. */
  async refuseSilentChanges(withIndexes: boolean): Promise<void> {
    if (this.#source.before6) await refuseSilentChanges(this.#source, this.#catalogue, this.#selection, withIndexes)
  }

  /** Views are told of as little, but hold no documents: they are made equal once the source is at rest. */
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

  /** Throws FatalError UnsupportedChange for what the server does without telling of the documents, or what is not to be followed. */
  async refuseEvent(event: ChangeEvent): Promise<void> {
    if (this.#source.before6) refuseEmittedChange(event)
    const { operationType, database, collection } = event
    if (operationType === 'reshardCollection') throw resharding(database, collection)
    // A filter of names may know the collection converted and not the temporary one, of which only the rename is told then.
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
        `a collection was renamed into database ${database} from another one, which cannot be followed while a replica set is ` +
          'synced to a sharded cluster. Start over with an emptied destination.',
      )
    }
  }

  /** Views that others have on the destination under names that are not selected stay. */
  async #dropViewsExcept(database: string, wanted: ListedCollection[]): Promise<void> {
    const ours = (views: ListedCollection[]): Promise<ListedCollection[]> => this.#selection.among(database, views)
    await this.#destination.dropViewsExcept(database, wanted, ours)
  }

  /** Drops indexes the source no longer has, ahead of the event that says so. True when one was dropped. */
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
   * Creates what is new, and what a crash left between intent and creation. Returns the UUIDs of that, and those of what is as in
   * this look by that already.
   */
  async #create(
    database: string,
    collections: ListedCollection[],
    look: Look,
    state: CatalogueEntry['state'] | 'refused',
  ): Promise<{ created: Set<string>; asLooked: Set<string> }> {
    const unborn: CatalogueEntry[] = []
    const asLooked = new Set<string>()
    for (const one of collections) {
      const known = this.#catalogue.get(one.uuid)
      if (known?.destinationUUID) continue
      if (state === 'refused') {
        throw new FatalError(
          'UnsupportedChange',
          `${namespace(database, one.name)} was created on the source after the commit point. Stop all writes on the source, ` +
            'then send resume.',
        )
      }
      const entry =
        known ?? newEntry(database, one, { options: one.options, indexes: look.indexes.get(one.uuid) ?? [] }, state)
      entry.shardKey = this.#wantedKey(entry, look)
      unborn.push(entry)
      // What was catalogued before may have changed since; and by a shard key the server itself builds an index.
      if (!known && !entry.shardKey) asLooked.add(entry.uuid)
    }
    const created = new Set(unborn.map(({ uuid }) => uuid))
    if (unborn.length === 0) return { created, asLooked }
    // The intent first: a collection created and then forgotten by a crash is recognised as ours.
    await this.#metadata.collections.save(unborn)
    // From here on known: when this is tried again, it may be dropped on the source, or have another name.
    for (const entry of unborn) if (!this.#catalogue.get(entry.uuid)) this.#catalogue.add(entry)
    try {
      await inParallel(atOnce, unborn, async (entry) => {
        await this.#destination.create(entry)
      })
      await this.#metadata.collections.save(unborn)
    } catch (error) {
      // A UUID counts when it is stored; what stands under an unstored one is empty, and created again.
      for (const entry of unborn) entry.destinationUUID = null
      throw error
    }
    return { created, asLooked }
  }

  /** What a collection is to be distributed by: as on the source, or as asked for its name when it is created. */
  #wantedKey(entry: CatalogueEntry, { distributions }: Look): ShardKey | null {
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
    look: Look,
    indexes: IndexSpecification[] | undefined,
    standing?: RawFields,
  ): Promise<void> {
    const optionsChanged = await this.#destination.followOptions(entry, one.options, standing)
    entry.wanted = { options: one.options, indexes: entry.wanted.indexes }
    // Before the indexes, which may take hours and fail meanwhile: what is to be followed next is the difference to this.
    if (optionsChanged) await this.#metadata.collections.save([entry])
    const indexesChanged = indexes ? await this.#destination.followIndexes(entry, indexes) : false
    if (indexes) entry.wanted = { options: one.options, indexes }
    const keyChanged =
      this.#source.sharded && (await this.#destination.sharding?.follow(entry, this.#wantedKey(entry, look)))
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

/** Collections created, or databases read, at a time. */
const atOnce = 8
