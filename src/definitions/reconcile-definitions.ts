import type { Catalog, CatalogEntry } from '../domain/catalog.ts'
import { earlierOf } from '../domain/cluster-time.ts'
import { both, inParallel } from '../domain/in-parallel.ts'
import { namespace } from '../domain/namespace.ts'
import type { ObservedDatabase } from '../domain/observed-database.ts'
import { sameShardKey } from '../domain/shard-key.ts'
import { type Cluster, operationTimeOf } from '../mongo/cluster.ts'
import { appendOplogNote } from '../mongo/oplog-note.ts'
import { type RetryContext, retry } from '../mongo/retry.ts'
import type { Selection } from '../mongo/selection.ts'
import type { DestinationDefinitions } from './destination-definitions.ts'
import { SourcePlacements } from './follow-sharding.ts'
import { type FollowSnapshotParts, type NewState, SnapshotFollower } from './follow-snapshot.ts'
import { listCollections, listDatabases, listIndexes, readCommitted, readUnproven } from './listing.ts'
import { type DatabaseSnapshot, readDatabase } from './read-database.ts'
import { type Placement, readDistributions, readPlacements } from './sharding.ts'
import { findSilentChanges, type SilentChanges } from './silent-definitions.ts'

/** Number of databases that are read in parallel. */
const atOnce = 8

/** What the creation of the initial catalog knows ahead, so that its reads need not wait. */
export interface Creation {
  /** The result of `electionOf`, which was requested before the read of the definitions; undefined through mongos. */
  election: Promise<string> | undefined
  /** Nothing is written on the destination before this resolves. The definitions of the source are read meanwhile. */
  prepared: Promise<void>
}

type DefinitionReconcilerParts = Omit<FollowSnapshotParts, 'refuseExpiry' | 'shardingEntries' | 'placements'> &
  Partial<Pick<FollowSnapshotParts, 'refuseExpiry' | 'shardingEntries'>>

/**
 * Reconciles definitions in the same way as documents: a DDL event says *which* database and collection changed. Their
 * current definitions are read from the source, and the destination is made equal. A replay is therefore harmless. It
 * is also harmless to read definitions that are newer than the event: collections are identified by UUID, and later
 * events find that nothing is left to do. A collection that was dropped and created again with its UUID is converged
 * (`src/apply/created-again.ts`).
 *
 * Called behind a barrier, when no document writes are in flight. `SnapshotFollower` makes the destination equal.
 */
export class DefinitionReconciler {
  readonly #source: Cluster
  readonly #catalog: Catalog
  readonly #selection: Selection
  readonly #destination: DestinationDefinitions
  readonly #context: RetryContext
  readonly #placements: SourcePlacements
  readonly #snapshots: SnapshotFollower

  constructor(parts: DefinitionReconcilerParts) {
    this.#source = parts.source
    this.#catalog = parts.catalog
    this.#selection = parts.selection
    this.#destination = parts.destination
    this.#context = parts.context
    this.#placements = new SourcePlacements(parts.metadata)
    const { refuseExpiry = false, shardingEntries = [] } = parts
    this.#snapshots = new SnapshotFollower({ ...parts, refuseExpiry, shardingEntries, placements: this.#placements })
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
      // If both fail, the first is reported. The preparation has ended then, and another attempt must not wait for it.
      const [existingViews, { result: snapshot, proven }] = await both(listing, reading)
      // Nothing is dropped or renamed because of a read that may be rolled back. A collection that such a read shows is
      // created only in the catalog and on the destination, and the next attempt drops it.
      const isFirst = this.#catalog.inDatabase(database).length === 0 && existingViews.length === 0
      if (!creation || !isFirst) await proven
      const reconciled = { database, touched, newState, progressed }
      return await provenBeside(proven, () => this.#snapshots.follow(reconciled, snapshot, existingViews, time))
    })
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
        const found = await this.#placements.findClones(database, snapshot, this.#snapshots.isKnown)
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
      await this.#snapshots.dropViewsExcept(database, views, await this.#destination.views(database))
      await this.#destination.followViews(database, views)
    })
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
}

/** Runs `work` while the read on which it depends is proven. Fails if the proof fails, whatever the work has done. */
async function provenBeside<T>(proven: Promise<void>, work: () => Promise<T>): Promise<T> {
  const [proof, done] = await Promise.allSettled([proven, work()])
  if (proof.status === 'rejected') throw proof.reason
  if (done.status === 'rejected') throw done.reason
  return done.value
}
