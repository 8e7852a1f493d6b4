import { type Catalog, type CatalogEntry, newEntry } from '../domain/catalog.ts'
import { type ClusterTime, earlierOf } from '../domain/cluster-time.ts'
import { type IndexSpecification, sameIndexes } from '../domain/definition.ts'
import { UnfollowedError } from '../domain/errors.ts'
import { both, inParallel } from '../domain/in-parallel.ts'
import { isUserCollection, namespace } from '../domain/namespace.ts'
import { isTemporary } from '../domain/namespace-filter.ts'
import type { ObservedDatabase } from '../domain/observed-database.ts'
import type { RawFields } from '../domain/raw-bson.ts'
import { type ShardKey, sameShardKey } from '../domain/shard-key.ts'
import { type Cluster, operationTimeOf } from '../mongo/cluster.ts'
import type { Metadata } from '../mongo/metadata.ts'
import { appendOplogNote } from '../mongo/oplog-note.ts'
import { type Progressed, type RetryContext, retry } from '../mongo/retry.ts'
import type { Selection } from '../mongo/selection.ts'
import type { DestinationDefinitions } from './destination-definitions.ts'
import { SourcePlacements } from './follow-sharding.ts'
import {
  type ListedCollection,
  listCollections,
  listDatabases,
  listIndexes,
  readCommitted,
  readUnproven,
} from './listing.ts'
import { moveToNames } from './move-to-names.ts'
import { type DatabaseSnapshot, readDatabase } from './read-database.ts'
import { changedAfterCommitPoint, refuseExpiry, refuseUnsupported } from './refuse-definitions.ts'
import { ReplacingCollections } from './replacing-collections.ts'
import {
  awaitsShardKey,
  type Placement,
  readDistributions,
  readPlacements,
  type ShardingEntries,
  wantedShardKey,
} from './sharding.ts'
import { findSilentChanges, type SilentChanges } from './silent-definitions.ts'

/** Number of collections that are created, or databases that are read, in parallel. */
const atOnce = 8
/** Number of collections whose changes are followed in parallel: the server's default of `maxNumActiveUserIndexBuilds`. */
const followedAtOnce = 3
type NewState = CatalogEntry['state'] | 'refused'

/** What the creation of the initial catalog knows ahead, so that its reads need not wait. */
export interface Creation {
  /** The result of `electionOf`, which was requested before the read of the definitions; undefined through mongos. */
  election: Promise<string> | undefined
  /** Nothing is written before this resolves. The definitions of the source are read meanwhile. */
  prepared: Promise<void>
}

interface Reconciled {
  database: string
  touched: ReadonlySet<string> | 'all'
  newState: NewState | ((uuid: string) => NewState)
  progressed: Progressed
}

/**
 * Reconciles definitions in the same way as documents: a DDL event says *which* database and collection changed. Their
 * current definitions are read from the source, and the destination is made equal. A replay is therefore harmless. It
 * is also harmless to read definitions that are newer than the event: collections are identified by UUID, and later
 * events find that nothing is left to do. A collection that was dropped and created again with its UUID is converged
 * (`src/apply/created-again.ts`).
 *
 * Called behind a barrier, when no document writes are in flight. The order is: drops of collections, drops of views,
 * renames (swaps use a temporary name), creations, options and indexes, views.
 */
export class DefinitionReconciler {
  readonly #source: Cluster
  readonly #catalog: Catalog
  readonly #metadata: Metadata
  readonly #selection: Selection
  readonly #destination: DestinationDefinitions
  readonly #context: RetryContext
  readonly #refuseExpiry: boolean
  readonly #shardingEntries: ShardingEntries
  #placements: SourcePlacements
  readonly #replacing: ReplacingCollections

  constructor(parts: {
    source: Cluster
    catalog: Catalog
    metadata: Metadata
    selection: Selection
    destination: DestinationDefinitions
    context: RetryContext
    /** True if TTL indexes are refused, because documents would expire on one cluster only. */
    refuseExpiry?: boolean
    /** The collections of a replica set that become sharded on the destination. */
    shardingEntries?: ShardingEntries
  }) {
    this.#source = parts.source
    this.#catalog = parts.catalog
    this.#metadata = parts.metadata
    this.#selection = parts.selection
    this.#destination = parts.destination
    this.#context = parts.context
    this.#refuseExpiry = parts.refuseExpiry ?? false
    this.#shardingEntries = parts.shardingEntries ?? []
    this.#placements = new SourcePlacements(parts.metadata)
    this.#replacing = new ReplacingCollections(parts.source, parts.catalog)
    this.#destination.indexes.isStopped = () => this.#context.signal.aborted
    this.#destination.isOurs = (uuid) => this.#catalog.entries().some((entry) => entry.destinationUUID === uuid)
  }

  /**
   * @param touched UUIDs of the collections whose indexes may have changed; 'all' reads the indexes of every collection
   * @param newState the state of new collections: 'copying' while the initial catalog is built, and for those that
   * are converged; 'copied' afterwards, because every document of a new collection then arrives through the stream, or
   * an event follows that makes the collection converge (`IncompleteCollections`); 'refused' once every event up to the
   * commit timestamp is applied, because a collection that is still new was created after it
   * @param prefetches true if the changed indexes of all other collections are read and made equal too, so that fewer of
   * the later events need a barrier
   * @param creation given while the initial catalog is built
   * @returns the definitions that were read and made equal; with `creation`, its time is 0
   * @throws UnfollowedError for collections that movePrimary cloned, if new collections are not copied
   */
  async reconcile(
    database: string,
    touched: ReadonlySet<string> | 'all',
    newState: NewState | ((uuid: string) => NewState),
    prefetches = false,
    creation: Creation | null = null,
  ): Promise<ObservedDatabase> {
    let election = creation?.election
    return await retry(`following definitions of ${database}`, this.#context, async (progressed) => {
      // Once the oplog no-op is committed, everything up to this time is committed on each shard, and the read below
      // shows it. The time is limited to that of the no-op, because a deposed primary may have reported a later time
      // than its successor has reached.
      const { latest } = this.#source
      let time = creation ? 0n : latest
      const appendNote = async (): Promise<void> => {
        const reply = await appendOplogNote(this.#source, 'before a catalog read')
        time = earlierOf(latest, operationTimeOf(reply) ?? latest)
      }
      const read = (): Promise<DatabaseSnapshot> => this.#readDatabase(database, touched, prefetches)
      const reading = readUnproven(this.#source, read, creation ? undefined : appendNote, election)
      election = undefined // Another attempt needs its own.
      // Users can create no view once the destination is blocked.
      const listing = Promise.resolve(creation?.prepared).then(() => this.#destination.views(database))
      const [{ result: snapshot, proven }, existingViews] = await both(reading, listing)
      // Nothing is dropped or renamed because of a read that may be rolled back. A collection that such a read shows is
      // created only in the catalog and on the destination, and the next attempt drops it.
      const isFirst = this.#catalog.inDatabase(database).length === 0 && existingViews.length === 0
      if (!creation || !isFirst) await proven
      const reconciled = { database, touched, newState, progressed }
      return await provenBeside(proven, () => this.#makeEqual(reconciled, snapshot, existingViews, time))
    })
  }

  /** Makes the destination equal to a snapshot of the source (see `reconcile`). */
  async #makeEqual(
    { database, touched, newState, progressed }: Reconciled,
    snapshot: DatabaseSnapshot,
    existingViews: ListedCollection[],
    time: ClusterTime,
  ): Promise<ObservedDatabase> {
    const { listed, indexes } = snapshot
    refuseUnsupported(database, listed, this.#destination.names)
    const clones = await this.#placements.findClones(database, snapshot, this.#isKnown)
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
    await this.#dropViewsExcept(database, views, existingViews)
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
    const changed: CatalogEntry[] = []
    try {
      await inParallel(this.#destination.sharding ? 1 : followedAtOnce, collections, async (one) => {
        const known = this.#catalog.get(one.uuid)
        if (!known) return
        known.sourceName = one.name
        // Event application has ended and no longer builds the awaited indexes, so `#follow` builds them.
        if (newState === 'refused') known.awaitsIndexes = false
        if (upToDate.has(one.uuid)) return
        const isTouched = touched === 'all' || touched.has(one.uuid) || created.has(one.uuid)
        const shardKey = this.#source.sharded ? this.#wantedKey(known, snapshot) : known.shardKey
        const all = indexes.get(one.uuid)
        let found = all && this.#destination.indexes.included(all, shardKey)
        // The indexes were only prefetched and have not changed, so the destination's indexes need not be read.
        if (!isTouched && found && sameIndexes(found, known.wanted.indexes)) found = undefined
        const optionsThere = existingOptions?.get(known.destinationUUID ?? '')
        if (await this.#follow(known, one, shardKey, found, optionsThere)) changed.push(known)
        // A refused index is built again when the event of its collection is read: the documents may be others by then.
        if (found && (isTouched || known.refusedIndexes.length === 0)) indexesOf.add(one.uuid)
        progressed(false)
      })
    } catch (error) {
      // The entries are stored also after a failure, because the next attempt finds no change. The failure is reported
      // rather than another one of this write.
      await this.#metadata.collections.save(changed).catch(() => {})
      throw error
    }
    await this.#metadata.collections.save(changed)
    await this.#destination.followViews(database, views)
    // The time is 0 if a collection was left out, so that its event leads to another read.
    return { database, time: present.length < collections.length ? 0n : time, indexesOf }
  }

  /**
   * Stores the new placements of those databases that have no cloned collections. The destination does not change, so no
   * barrier is needed. Returns the cloned collections of the other databases, by UUID, each with its namespace.
   */
  async recordMoved(databases: readonly string[]): Promise<Map<string, string>> {
    const all = new Map<string, string>()
    for (const database of databases) {
      const clones = await retry(`reading the primary shard of ${database}`, this.#context, async () => {
        const snapshot = await readCommitted(this.#source, () => this.#readDatabase(database, new Set()))
        const found = await this.#placements.findClones(database, snapshot, this.#isKnown)
        // From now on, collections that appear in this database count as new and not as clones.
        if (found.size === 0) await this.#placements.record(database, snapshot)
        return found
      })
      for (const [uuid, name] of clones) all.set(uuid, name)
    }
    return all
  }

  /** Returns the databases of a sharded source whose placement differs from the stored one. */
  moved(placements: Placement[]): Promise<string[]> {
    return this.#placements.changed(placements)
  }

  readonly #isKnown = (uuid: string): boolean => this.#catalog.get(uuid) !== undefined

  #readDatabase(database: string, touched: ReadonlySet<string> | 'all', prefetches = false): Promise<DatabaseSnapshot> {
    const followsKeys = this.#source.sharded && this.#destination.sharding !== null
    const { included } = this.#destination.indexes
    const parts = { source: this.#source, selection: this.#selection, catalog: this.#catalog, followsKeys, included }
    return readDatabase(parts, database, touched, prefetches)
  }

  /**
   * Returns the databases of a sharded source whose placement differs from the stored one, and those with a collection
   * whose shard key differs from the catalog's. 6.0.27 emits no event for refineCollectionShardKey, nor for a
   * movePrimary that has no collections to clone. Also returns the namespaces of the collections in the catalog that
   * are being resharded.
   */
  async silentlyResharded(): Promise<{ databases: string[]; resharding: string[] }> {
    if (!this.#source.sharded) return { databases: [], resharding: [] }
    const changed = new Set(await this.#placements.changed(await readPlacements(this.#source)))
    const resharding: string[] = []
    for (const { uuid, name, key, resharding: isResharding } of await readDistributions(this.#source)) {
      const entry = this.#catalog.get(uuid)
      if (!entry) continue
      if (isResharding) resharding.push(name)
      const isOther = this.#destination.sharding !== null && !sameShardKey(entry.shardKey, key)
      if (isOther) changed.add(entry.database)
    }
    return { databases: [...changed], resharding }
  }

  /** Returns the definitions of a source older than 6.0 that differ from the catalog. Returns nothing for later releases. */
  async silentChanges(withIndexes: boolean): Promise<SilentChanges> {
    if (!this.#source.before6) return { unknown: new Map(), changed: new Map() }
    const included = withIndexes ? this.#destination.indexes.included : null
    return await findSilentChanges(this.#source, this.#catalog, this.#selection, included)
  }

  /**
   * Makes the destination's views equal if the source is older than 6.0, which emits no events for views. Views hold no
   * documents, so it is enough to run this once, after writes have stopped.
   */
  async followSilentViews(): Promise<void> {
    if (!this.#source.before6) return
    const selected = await this.#selection.databases(await listDatabases(this.#source))
    const databases = new Set([...selected, ...this.#catalog.databases()])
    await inParallel(atOnce, [...databases], async (database) => {
      const all = await readCommitted(this.#source, () => listCollections(this.#source, database))
      const listed = await this.#selection.among(database, all)
      const views = listed.filter((one) => one.type === 'view')
      await this.#dropViewsExcept(database, views, await this.#destination.views(database))
      await this.#destination.followViews(database, views)
    })
  }

  /** Drops the destination's views that are not wanted, except those that the filter does not select. */
  async #dropViewsExcept(database: string, wanted: ListedCollection[], existing: ListedCollection[]): Promise<void> {
    await this.#destination.dropViewsExcept(database, wanted, await this.#selection.among(database, existing))
  }

  /**
   * Drops indexes that the source no longer has, without waiting for their events. Called when the destination refuses
   * a document. Returns true if it dropped one.
   */
  async dropVanishedIndexes(entry: CatalogEntry): Promise<boolean> {
    const indexes = await readCommitted(this.#source, () => listIndexes(this.#source, entry.database, entry.uuid))
    if (!indexes) return false
    // This includes indexes that the sync otherwise leaves unchanged, because one of them may have caused the refusal.
    return await this.#destination.indexes.dropIndexesExcept(entry, indexes)
  }

  /**
   * Builds the indexes of a collection whose copy has ended, if they were left out until now. During the build, the
   * collection's definition must not be reconciled, but its documents may be written.
   */
  async buildAwaited(entry: CatalogEntry): Promise<void> {
    const name = namespace(entry.database, entry.name)
    await retry(`building the indexes of ${name}`, this.#context, () => this.#destination.indexes.buildAwaited(entry))
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
    try {
      await inParallel(atOnce, intents, async (entry) => {
        await this.#destination.create(entry)
      })
      await this.#metadata.collections.save(intents)
    } catch (error) {
      // A UUID counts only when it is stored. A collection whose UUID is not stored is empty and is created again.
      for (const entry of intents) entry.destinationUUID = null
      throw error
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
  async #follow(
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

/** Runs `work` while the read on which it depends is proven. Fails if the proof fails, whatever the work has done. */
async function provenBeside<T>(proven: Promise<void>, work: () => Promise<T>): Promise<T> {
  const [proof, done] = await Promise.allSettled([proven, work()])
  if (proof.status === 'rejected') throw proof.reason
  if (done.status === 'rejected') throw done.reason
  return done.value
}
