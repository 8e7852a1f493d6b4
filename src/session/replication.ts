import { DefinitionFollower } from '../apply/follow-definitions.ts'
import { OwnedPartitions } from '../apply/owned-partitions.ts'
import { SharedCatalog } from '../apply/shared-catalog.ts'
import { type CommitParts, databasesOf, deferAgain } from '../commit/finish-commit.ts'
import { type Repaired, repairDifferences, repairedMax } from '../commit/repair.ts'
import { ReversePosition } from '../commit/reverse-position.ts'
import { blocksDestination, setWriteBlocking } from '../commit/write-blocking.ts'
import type { Barriers } from '../coordination/barriers.ts'
import type { Coordination } from '../coordination/coordination.ts'
import type { Peers } from '../coordination/peers.ts'
import type { SyncStore } from '../coordination/sync-store.ts'
import { CollectionCopy } from '../copy/collection-copy.ts'
import { CopyOrder } from '../copy/copy-order.ts'
import { planConvergence } from '../copy/plan-convergence.ts'
import { DeferredOptions } from '../definitions/deferred-options.ts'
import { DestinationDefinitions } from '../definitions/destination-definitions.ts'
import { DestinationSharding } from '../definitions/destination-sharding.ts'
import { IncompleteCollections } from '../definitions/incomplete-collections.ts'
import { DefinitionReconciler } from '../definitions/reconcile-definitions.ts'
import { DocumentWriter } from '../documents/write-identities.ts'
import type { Catalog, CatalogEntry } from '../domain/catalog.ts'
import type { ClusterTime } from '../domain/cluster-time.ts'
import { deferred } from '../domain/deferred.ts'
import { StoppedError } from '../domain/errors.ts'
import type { FilterChange } from '../domain/filter-request.ts'
import { both } from '../domain/in-parallel.ts'
import { TrackedWork } from '../domain/tracked-work.ts'
import { restoreBalancer } from '../mongo/balancer.ts'
import type { Cluster } from '../mongo/cluster.ts'
import { Metadata, type SyncRecord } from '../mongo/metadata.ts'
import { type RetryContext, retry } from '../mongo/retry.ts'
import { Selection } from '../mongo/selection.ts'
import type { SharedStream } from '../mongo/shared-stream.ts'
import type { VerificationStore } from '../mongo/verification-store.ts'
import { prepareDestination } from '../reverse/prepare-destination.ts'
import type { Throttle } from '../throttle/throttle.ts'
import { isAnyDifferent } from '../verify/recheck-documents.ts'
import { convergeUnfollowed } from './converge-unfollowed.ts'
import { createCatalog, type ReadAhead } from './create-catalog.ts'

export interface ReplicationParts {
  source: Cluster
  destination: Cluster
  metadata: Metadata
  record: SyncRecord
  context: RetryContext
  selection: Selection
  sharedStream: SharedStream
  coordination: Coordination
  store: SyncStore
  peers: Peers
  /** Collections are read from the source at this time or later. */
  startTime: () => ClusterTime
  /** Resolves when no commit prevents changes from being applied. */
  untilApplicable: () => Promise<unknown>
  barriers: Barriers
  throttle: Throttle
  atStep: (step: string) => void
}

/** The components that work on one sync between two pauses, built from the stored state. */
export class Replication {
  readonly catalog: Catalog
  readonly commit: CommitParts
  readonly #parts: ReplicationParts
  readonly #shared: SharedCatalog
  readonly #definitions: DefinitionReconciler
  readonly #writer: DocumentWriter
  readonly #follower: DefinitionFollower
  readonly #barriersOver = new AbortController()
  readonly #barriers = new TrackedWork(this.#barriersOver.signal)
  readonly #eventsEnded = deferred<void>()
  #highestOrder = Date.now() * 1_000
  events: OwnedPartitions | null = null
  copy: CollectionCopy | null = null

  constructor(parts: ReplicationParts) {
    this.#parts = parts
    const { source, destination, metadata, record, context, selection, coordination, store, barriers, atStep } = parts
    this.#shared = new SharedCatalog({ source, destination, metadata, selection, coordination, context })
    this.catalog = this.#shared.catalog
    const { buildIndexes } = record.configuration
    const shardingEntries = record.configuration.sharding?.shardingEntries ?? []
    const requested = { shardingEntries, buildsIndexes: buildIndexes !== 'never' }
    const sharding = destination.sharded ? new DestinationSharding(destination, source, context, requested) : null
    const destinationDefinitions = new DestinationDefinitions(destination, buildIndexes, sharding)
    this.#definitions = new DefinitionReconciler({
      source,
      catalog: this.catalog,
      metadata,
      selection,
      destination: destinationDefinitions,
      context,
      shardingEntries,
      refuseExpiry: record.configuration.verification.enabled && buildIndexes === 'never',
    })
    this.#follower = new DefinitionFollower({
      shared: this.#shared,
      definitions: this.#definitions,
      metadata,
      coordination,
      store,
      barriers,
      partitionCount: record.partitions,
      context,
      events: () => this.events,
      converge: this.#converge,
      atStep,
    })
    const dropVanishedIndexes = (entry: CatalogEntry): Promise<boolean> => this.#definitions.dropVanishedIndexes(entry)
    this.#writer = new DocumentWriter(destination, dropVanishedIndexes, context.meter ?? null)
    this.commit = {
      source,
      destination,
      selection,
      catalog: this.catalog,
      definitions: this.#definitions,
      destinationDefinitions,
      deferredOptions: new DeferredOptions(destination, context),
      writer: this.#writer,
      context,
      reversePosition: record.configuration.reversible
        ? new ReversePosition({
            destination,
            metadata,
            peers: parts.peers,
            context,
            coordination,
          })
        : null,
      restoreBalancer: () => restoreBalancer(destination, metadata),
      atStep,
    }
  }

  /**
   * Loads the stored state, and the current namespace of each collection on the destination.
   * @param loaded called when all of the stored state is loaded; rejects if it is not valid
   */
  async load(loaded: () => Promise<void> = async () => {}): Promise<this> {
    const { metadata } = this.#parts
    // Orders of tombstones must increase even when the clock was set back since the last run.
    const [, highestOrder] = await both(this.#shared.load(), metadata.tombstones.highestOrder())
    this.#highestOrder = Math.max(this.#highestOrder, highestOrder)
    const entries = this.catalog.entries()
    // A copied collection has tombstones if their removal was interrupted.
    const recorded = highestOrder > 0 ? await metadata.tombstones.recorded(entries.map(({ uuid }) => uuid)) : new Set()
    for (const entry of entries) entry.hasTombstones = recorded.has(entry.uuid)
    await both(this.#shared.findNames(), loaded())
    return this
  }

  /**
   * Blocks the destination, creates every collection with its options deferred, and stores the first positions.
   * @param ahead the reads of the source that began while the stored state was loaded
   * @param current rejects if the sync was reversed; nothing is written before it resolves
   */
  async initialise(ahead: ReadAhead, current: Promise<void>): Promise<void> {
    const { metadata, record } = this.#parts
    const correctNames = (): Promise<void> => this.#shared.correctNames()
    const blockDestination = (): Promise<void> => this.#blockDestination(current)
    await createCatalog({ commit: this.commit, metadata, record, blockDestination, correctNames }, ahead, current)
  }

  /**
   * Prepares collections to be converged again. The caller owns all partitions. Returns the time at or after which the
   * collections are read from the source.
   * @param scope UUIDs on the source, or 'all'
   * @param change the change of the filters that is planned together with the convergence; null if there is none
   */
  async replan(
    scope: ReadonlySet<string> | 'all',
    change: FilterChange | null,
    discardVerified: (uuids: readonly string[] | 'all') => Promise<void>,
  ): Promise<ClusterTime> {
    const { source, record, coordination, barriers, metadata } = this.#parts
    const epochs = new Map(coordination.held)
    if (epochs.size < record.partitions) throw new StoppedError()
    await this.#blockDestination()
    await barriers.takeOver()
    // A coordinator that died may have renamed collections since they were stored.
    await this.#shared.correctNames()
    const databases = (): Promise<ReadonlySet<string>> => databasesOf(this.commit)
    const replaced = change && {
      before: change.before.map((filters) => new Selection(source, filters, record.configuration.timeseries)),
      dropExcluded: change.dropExcluded,
    }
    const shardingEntries = record.configuration.sharding?.shardingEntries ?? []
    const stored = { metadata, barriers, databases, epochs, shardingEntries }
    const parts = { ...this.commit, ...stored, replaced, discardVerified }
    return await planConvergence(parts, scope)
  }

  /**
   * Defers the options that an ended commit attempt restored, and blocks writes on the destination again. The
   * coordinator may have died after it enabled writes on the destination and before it stored that they are enabled.
   */
  async undoPreparation(): Promise<void> {
    await this.#blockDestination()
    await deferAgain(this.commit)
  }

  async #blockDestination(allowed?: Promise<void>): Promise<void> {
    const { destination, record, context } = this.#parts
    if (!blocksDestination(record.configuration)) return
    await retry('blocking writes on the destination', context, () =>
      setWriteBlocking(destination, true, destination, allowed),
    )
  }

  /**
   * Repairs the differences that a verdict lists: documents by identity, definitions by database.
   * @param differencesMax the number of differences above which the collections that differ are to be converged instead
   */
  async repair(store: VerificationStore, differencesMax = repairedMax): Promise<Repaired> {
    const { source, destination, metadata, context } = this.#parts
    const documents = { source, destination, metadata, writer: this.#writer, nextOrder: this.#nextOrder, context }
    const differs = (entry: CatalogEntry, idElements: readonly Buffer[]): Promise<boolean> =>
      retry(`comparing ${entry.database}.${entry.name}`, context, () =>
        isAnyDifferent({ source, destination }, entry, idElements, source.latest),
      )
    return await repairDifferences({ ...this.commit, store, documents, differs }, differencesMax)
  }

  /**
   * Prepares the former source as the destination after a reversal. Returns true when all collections must be
   * converged.
   */
  async prepareDestination(): Promise<boolean> {
    const { source, destination, metadata, record, context } = this.#parts
    await this.#shared.correctNames()
    return await prepareDestination({
      commit: this.commit,
      metadata,
      record,
      superseded: new Metadata(source, context),
      documents: { source, destination, metadata, writer: this.#writer, nextOrder: this.#nextOrder },
    })
  }

  readonly #converge = (collections: ReadonlyMap<string, string>, stopped: AbortSignal): Promise<never> => {
    const { peers, context } = this.#parts
    return convergeUnfollowed({ peers, context }, collections, stopped)
  }

  readonly #nextOrder = (count: number): number => {
    const first = this.#highestOrder + 1
    this.#highestOrder += count
    return first
  }

  /**
   * Creates the workers for events and for the copy without starting them.
   * @param loadedInTerm the coordinator term of this instance in which the stored state was loaded; null without one
   */
  prepare(loadedInTerm: number | null = null): void {
    const { source, destination, metadata, record, context, coordination, selection } = this.#parts
    const nextOrder = this.#nextOrder
    const reload = (): Promise<void> => this.#shared.reload()
    const locate = (entry: CatalogEntry): Promise<boolean> => this.#shared.locate(entry)
    const shardingEntries = record.configuration.sharding?.shardingEntries ?? []
    const parts = { source, catalog: this.catalog, selection, shardingEntries, context }
    const incomplete = new IncompleteCollections(parts)
    const events = new OwnedPartitions({
      source,
      metadata,
      catalog: this.catalog,
      documents: {
        source,
        destination,
        metadata,
        writer: this.#writer,
        nextOrder,
        locate,
      },
      context,
      coordination,
      partitionCount: record.partitions,
      selection,
      sharedStream: this.#parts.sharedStream,
      reload: () => this.#reloadClaimed(),
      follow: (...reached) => this.#follower.follow(...reached),
      incompleteAfter: (event) => incomplete.after(event),
      converge: this.#converge,
      isOnSource: (database, uuid) => incomplete.isOnSource(database, uuid),
    })
    this.events = events
    this.copy = new CollectionCopy({
      source,
      destination,
      metadata,
      catalog: this.catalog,
      coordination,
      order: new CopyOrder({ source, destination }, record.configuration),
      partitionCount: record.partitions,
      throttle: this.#parts.throttle,
      context,
      startTime: this.#parts.startTime(),
      nextOrder,
      reload,
      loadedInTerm,
      locate,
      copyEnded: (entry) => events.copyEnded(entry),
      loadCopiedBytes: () => this.loadCopiedBytes(),
    })
  }

  /**
   * Called before events of newly claimed partitions are applied, because new tombstones must have higher orders than
   * those of the former owner.
   */
  async #reloadClaimed(): Promise<void> {
    // One check after the claim is enough. A coordinator takes all partitions before it enables writes on the
    // destination, so this instance may apply changes as long as it owns these partitions.
    await this.#parts.untilApplicable()
    await this.#shared.reload()
    if (this.#parts.coordination.isAlone) return
    this.#highestOrder = Math.max(this.#highestOrder, await this.#parts.metadata.tombstones.highestOrder())
  }

  /** Does the coordinator's work at each barrier while this instance coordinates, until event application is closed. */
  leadBarriers(): Promise<void> {
    return this.#barriers.run(() => {
      const ended = AbortSignal.any([this.#barriersOver.signal, this.#parts.context.signal])
      return this.#follower.leadBarriers(ended)
    })
  }

  /** Drains event application. Resolves when it has ended: with the failure that ended it, or with null. */
  async closeEvents(): Promise<unknown> {
    try {
      const failure = await this.events?.close()
      this.#barriersOver.abort()
      await this.#barriers.ended()
      await this.#follower.idle()
      return failure ?? this.#barriers.failure
    } finally {
      this.#eventsEnded.resolve()
    }
  }

  /** Resolves when event application is closed. */
  get eventsEnded(): Promise<void> {
    return this.#eventsEnded.promise
  }

  /** Loads the catalog that the coordinator has stored. */
  reloadCatalog(): Promise<void> {
    return this.#shared.reload()
  }

  /** Loads from the stored segments how many bytes of each collection this instance has copied. */
  loadCopiedBytes(): Promise<void> {
    return this.#shared.loadCopiedBytes()
  }

  /** The namespaces of collections that are being resharded on the source, as of the last poll. */
  get resharding(): readonly string[] {
    return this.#follower.resharding
  }

  /** Partitions that have not reached the next barrier. The definition change at the barrier waits for them. */
  get barrierWaitsFor(): number[] {
    return this.#follower.barrierWaitsFor
  }
}
