import type { SyncStep } from '../../machines/sync.ts'
import type { SyncSnapshot } from '../../machines/sync-view.ts'
import { unblockSource } from '../commit/write-blocking.ts'
import { Barriers, barriersVersion } from '../coordination/barriers.ts'
import { Coordination } from '../coordination/coordination.ts'
import { StoreFailureDetector } from '../coordination/failure-detector.ts'
import type { Liveness } from '../coordination/liveness.ts'
import { OwnershipStore } from '../coordination/ownership-store.ts'
import { Peers } from '../coordination/peers.ts'
import { SyncStore } from '../coordination/sync-store.ts'
import type { ClusterTime } from '../domain/cluster-time.ts'
import { FatalError, StoppedError } from '../domain/errors.ts'
import { currentFilters, sameFilters } from '../domain/filter-request.ts'
import { all } from '../domain/in-parallel.ts'
import { NamespaceRemap, noRemap } from '../domain/namespace-remap.ts'
import { notLost } from '../domain/not-lost.ts'
import type { Cluster } from '../mongo/cluster.ts'
import { CollectionFigures } from '../mongo/collection-figures.ts'
import { CommandStore } from '../mongo/command-store.ts'
import { Heartbeat } from '../mongo/heartbeat.ts'
import { Lease, type LeaseOwner } from '../mongo/lease.ts'
import type { LeaseLoss } from '../mongo/lease-watch.ts'
import { Metadata, type SyncRecord } from '../mongo/metadata.ts'
import type { RetryContext } from '../mongo/retry.ts'
import { Selection } from '../mongo/selection.ts'
import { SharedStream } from '../mongo/shared-stream.ts'
import { StoredDocuments } from '../mongo/stored-documents.ts'
import type { Throttle } from '../throttle/throttle.ts'
import { AlertFigures } from './alert-figures.ts'
import { CollectionReports } from './collection-reports.ts'
import { CommitSteps } from './commit-steps.ts'
import { coordinatorSteps, type StepWork } from './coordinator-steps.ts'
import { InitialisedReplication } from './initialised-replication.ts'
import { LeaseTerm } from './lease-term.ts'
import { MetadataIndexes } from './metadata-indexes.ts'
import { OtherSyncs } from './other-syncs.ts'
import { PreloadedState } from './preloaded-state.ts'
import { Replication } from './replication.ts'
import { RestoredReplication } from './restored-replication.ts'
import { untilApplicable } from './until-applicable.ts'
import { Verification } from './verification.ts'
import { WorkFigures } from './work-figures.ts'
import { type Worker, WorkRuns } from './work-runs.ts'

export interface SessionParts {
  source: Cluster
  destination: Cluster
  record: SyncRecord
  owner: LeaseOwner
  context: RetryContext
  liveness: Liveness
  /** True when the liveness store is not the metadata database and decides which instances are alive. */
  storeDecides: boolean
  /** Limits the speed of bulk work. */
  throttle: Throttle
  atStep: (step: string) => void
  onLeaseLost: (reason: LeaseLoss) => void
}

/**
 * One sync in this process, in one direction, from the time the instance takes part in it until it ends or is reversed.
 * A session outlives its lease terms, because its figures, the last read state of the sync and the history of the lease
 * must survive the end of a term. The instance machine's actors call it. The constructor builds everything in the
 * order of its dependencies. `close` ends the session as a whole.
 */
export class SyncSession {
  readonly source: Cluster
  readonly destination: Cluster
  readonly record: SyncRecord
  /** Context of work that does not depend on the lease. */
  readonly context: RetryContext
  readonly liveness: Liveness
  /** Limits the speed of bulk work. */
  readonly throttle: Throttle
  readonly atStep: (step: string) => void
  /** The stored state, for reads and writes that the coordinator's term need not fence. */
  readonly metadata: Metadata
  readonly failureDetector: StoreFailureDetector | null
  readonly lease: Lease
  readonly coordination: Coordination
  readonly peers: Peers
  readonly runs: WorkRuns
  readonly figures: WorkFigures
  /** The embedded verifier. It also exists when verification is switched off, and then reports nothing. */
  readonly verification: Verification
  readonly commit: CommitSteps
  /** The coordinator's work for each step that the sync machine's states name. */
  readonly steps: Record<SyncStep, StepWork>
  readonly alerts: AlertFigures
  /** The figures of each collection. */
  readonly collections: CollectionReports
  /** Commands that one instance passes on to all. */
  readonly commands: CommandStore
  readonly otherSyncs: OtherSyncs
  readonly #term: LeaseTerm
  readonly metadataIndexes: MetadataIndexes
  readonly #heartbeat: Heartbeat
  /** The parts that all replications of this session share. Each replication has its own context. */
  readonly #replicationParts
  #selection: Selection
  readonly #preloaded: PreloadedState
  readonly #initialised: InitialisedReplication
  readonly #restored: RestoredReplication

  constructor(parts: SessionParts) {
    const { source, destination, owner, context, liveness, record, throttle, atStep } = parts
    this.source = source
    this.destination = destination
    this.record = record
    this.context = context
    this.throttle = throttle
    this.liveness = liveness
    this.atStep = atStep
    this.metadata = new Metadata(destination, context)
    this.commands = new CommandStore(destination)
    this.collections = new CollectionReports(new CollectionFigures(destination), record.configuration)
    const selection = (): Selection => this.selection
    this.alerts = new AlertFigures({ source, destination, startTime: record.startTime, selection })
    this.otherSyncs = new OtherSyncs({ source, destination, record, context, selection })
    this.#heartbeat = new Heartbeat(source)

    this.failureDetector = parts.storeDecides ? new StoreFailureDetector(liveness) : null
    const lease = new Lease(destination, OwnershipStore.leaseName(owner.id), owner, context, this.failureDetector)
    this.lease = lease
    source.names = noRemap
    destination.names = new NamespaceRemap(record.configuration.namespaceRemap)
    destination.fence = () => lease.fence()
    destination.sessions = lease.sessions
    const term = new LeaseTerm(context)
    this.#term = term
    this.coordination = new Coordination({
      destination,
      lease,
      id: owner.id,
      partitions: record.partitions,
      context,
      liveness,
      failureDetector: this.failureDetector,
      onLeaseLost: (reason) => {
        term.end()
        parts.onLeaseLost(reason)
      },
    })

    const { coordination } = this
    const metadata = new Metadata(destination, term.context, coordination)
    this.metadataIndexes = new MetadataIndexes({ metadata, coordination, context: term.context })
    const store = new SyncStore(destination, term.context, record.generation)
    const barriers = new Barriers(new StoredDocuments(destination, term.context, barriersVersion), coordination)
    this.#selection = new Selection(source, record.configuration, record.configuration.timeseries)
    this.peers = new Peers({ coordination, store, liveness, id: owner.id })
    const { peers } = this
    coordination.mayRest = () => peers.sync.matches('replicating')
    this.#preloaded = new PreloadedState(peers, lease)
    const clusters = { source, destination }
    const sharedStream = new SharedStream()
    const shared = { ...clusters, metadata, sharedStream, throttle, atStep, coordination }
    const startTime = (): ClusterTime => BigInt(peers.sync.context.startTime ?? record.startTime)
    this.#replicationParts = { ...shared, record, store, barriers, peers, startTime }
    this.runs = new WorkRuns(context.signal)
    const { runs } = this
    this.#initialised = new InitialisedReplication({ lease, coordination, peers, runs })
    this.#restored = new RestoredReplication({ lease, coordination, peers, runs, selection, stored: this })
    const meter = context.meter ?? null
    this.figures = new WorkFigures({ ...clusters, metadata, coordination, startTime: record.startTime, runs, meter })
    this.verification = new Verification({
      ...shared,
      peers,
      selection,
      compareMethod: record.configuration.verification.initialCompareMethod,
      context: term.context,
      runs,
      figures: this.figures,
    })
    // These are created last, because the steps use everything above.
    this.commit = new CommitSteps(this)
    this.steps = coordinatorSteps(this)
  }

  /** The namespaces that are synced, according to the filters in the state of the sync that this instance last loaded. */
  get selection(): Selection {
    return this.#selectionOf(this.peers.sync)
  }

  /** Returns the same object as long as the filters are the same, because it caches answers of the source. */
  #selectionOf({ context }: SyncSnapshot): Selection {
    const filters = currentFilters(this.record.configuration, context.filters)
    if (!sameFilters(this.#selection.filters, filters)) {
      this.#selection = new Selection(this.source, filters, this.record.configuration.timeseries)
    }
    return this.#selection
  }

  /** Resolves when the work of every replication that was left, and of the commit steps after it, has ended. */
  get ended(): Promise<unknown> {
    return this.runs.ended
  }

  /** Resolves when this process holds its instance's lease and knows which instance coordinates. */
  async joinElection(): Promise<void> {
    await this.hold()
    this.coordination.engage(true)
    await this.coordination.start()
  }

  /**
   * Like `joinElection`, but retries when the lease is lost in the meantime. For callers that no state machine
   * restarts.
   * @param until when it is aborted, the call makes no further attempt and rejects with StoppedError. It then cannot
   * take the lease again after the caller has given it back
   */
  async joinElectionWithRetries(until?: AbortSignal): Promise<void> {
    for (;;) {
      try {
        return await this.joinElection()
      } catch (error) {
        if (!(error instanceof StoppedError) || this.context.signal.aborted || until?.aborted) throw error
      }
    }
  }

  /** Reads the state of the sync ahead of its first use in this lease term. Call it while the lease is held. */
  preload(): Promise<void> {
    return this.#preloaded.load()
  }

  /** Returns the state of the sync: what a recent read has returned, or what is stored now. */
  async firstState(): Promise<SyncSnapshot> {
    const isRead = this.#preloaded.use() || this.peers.isCurrent
    return isRead ? this.peers.sync : await this.peers.load()
  }

  /** Resolves when this process holds its instance's lease. Does not change whether the instance may coordinate. */
  async hold(): Promise<void> {
    // A new lease term may begin only when all work of the last term has ended, including the verifier's last writes.
    if (this.#term.isOver) await this.verification.ended
    await this.lease.acquire()
    this.#term.begin()
  }

  /**
   * Returns the replication that both workers share; the first worker that opens it creates it. If a worker calls this
   * again, the present replication is left, and the worker gets the next one. The actor of its first call may not have
   * been stopped yet, because XState stops an actor that is processing an event only after that event.
   */
  open(worker: Worker): Promise<Replication> {
    if (this.runs.workers.has(worker)) this.leaveReplication()
    return this.runs.replicate(worker, (signal) => this.#open(signal))
  }

  async #open(signal: AbortSignal): Promise<Replication> {
    await this.joinElection()
    const initialised = this.#initialised.take()
    const loadedInTerm = this.#coordinatorTerm
    const replication = initialised ?? (await this.#loadApplicable(signal))
    if (signal.aborted) throw new StoppedError()
    replication.prepare(this.#coordinatorTerm === loadedInTerm ? loadedInTerm : null)
    this.coordination.takeWork(true)
    this.#heartbeat.start()
    return replication
  }

  async #loadApplicable(signal: AbortSignal): Promise<Replication> {
    const sync = await this.#untilApplicable(true, signal)
    // Use the filters of this state. Filters that replaced them since then apply only after a new plan.
    return this.#restored.take() ?? (await this.load(true, sync, () => this.ensureNotReversed()))
  }

  /** The term in which this instance coordinates; null while another instance does. */
  get #coordinatorTerm(): number | null {
    return this.coordination.leading ? this.coordination.coordinatorEpoch : null
  }

  /** Called by the coordinator with the replication that has created all collections, before it reports this. */
  initialisedBy(replication: Replication): void {
    this.#initialised.keep(replication)
  }

  /**
   * Called when the machine has left the replicating state. Stops all runs, which are awaited before new ones begin.
   * @param opened the result of `open`, by default of the last call; a replication that was left before is ignored
   */
  leaveReplication(opened = this.runs.opened): void {
    if (!opened || opened !== this.runs.opened) return
    this.figures.leaving()
    this.runs.leaveReplication()
    this.#heartbeat.stop()
    this.coordination.takeWork(false)
  }

  /**
   * Loads the stored state for the current run.
   * @param current true: the loaded replication becomes the one on which a commit works; false: it only provides
   * figures, and only if no other was loaded before
   * @param sync the state whose filters apply
   * @param check called when all of the stored state is loaded; rejects if it is not valid
   */
  async load(current = true, sync = this.peers.sync, check?: () => Promise<void>): Promise<Replication> {
    const { context, runs } = this
    if (context.signal.aborted) throw new StoppedError()
    const loaded = await this.#load(runs.signal, sync, check)
    if (current) runs.latest = loaded
    else runs.latest ??= loaded
    return loaded
  }

  /** Loads the stored state for work that belongs neither to the current replication nor to a commit. */
  read(signal: AbortSignal): Promise<Replication> {
    return this.#load(AbortSignal.any([this.context.signal, signal]), this.peers.sync)
  }

  #load(signal: AbortSignal, sync: SyncSnapshot, check?: () => Promise<void>): Promise<Replication> {
    const context = { ...this.context, signal }
    const parts = { selection: this.#selectionOf(sync), untilApplicable: () => this.#untilApplicable(false, signal) }
    return new Replication({ ...this.#replicationParts, ...parts, context }).load(check)
  }

  /** See `untilApplicable`. */
  #untilApplicable(restarts: boolean, signal: AbortSignal): ReturnType<typeof untilApplicable> {
    const { peers, coordination, destination, record, context } = this
    const parts = { peers, coordination, destination, record, context, preloaded: this.#preloaded }
    return untilApplicable(parts, restarts, signal)
  }

  /** Enables user writes on the source again, if a commit blocked them. Calling it again is harmless. */
  unblockSource(signal: AbortSignal): Promise<void> {
    const { source, destination, record, context } = this
    const limited = { ...context, signal: AbortSignal.any([context.signal, signal]) }
    return unblockSource(source, destination, record.configuration, limited)
  }

  /**
   * Throws FatalError LeaseLost when another instance has reversed the sync, so that the metadata here is no longer
   * valid. A reversal removes the record first, so an instance that has read incomplete metadata finds no record here.
   */
  async ensureNotReversed(): Promise<void> {
    const stored = await this.#replicationParts.metadata.loadSync()
    if (stored?.generation === this.record.generation) return
    throw new FatalError(
      'LeaseLost',
      `reading the stored sync: another instance has reversed it, and this one has stopped. Restart this process, which then joins the reversed sync. ${notLost.progress}`,
    )
  }

  /** True while the lease is lost and the next lease term has not begun. */
  get isLeaseLost(): boolean {
    return this.#term.isOver
  }

  /**
   * Waits until `ended` resolves, and then releases all partitions. Call it only when this instance no longer applies
   * events.
   */
  async yieldAll(): Promise<void> {
    await this.runs.ended
    await this.coordination.yieldAll()
  }

  /**
   * Waits until all work that this instance began before a convergence has ended, and then declares this to the
   * coordinator, which can then plan the convergence. Call it only while this instance does not replicate.
   * @param signal aborted when this instance may replicate again
   */
  async stopFor(convergence: number, signal: AbortSignal): Promise<void> {
    const { runs, verification, coordination, lease } = this
    if (!lease.held || (coordination.stoppedFor === convergence && coordination.held.size === 0)) return
    await Promise.all([runs.ended, verification.ended])
    if (signal.aborted || !lease.held) return
    await coordination.stopFor(convergence)
  }

  /** Loads the stored state, for the figures of an instance that is not running. */
  async loadFigures(): Promise<void> {
    await all([
      this.#restored.load(),
      this.figures.restore(),
      this.coordination.readHolder(),
      this.verification.loadReport(),
    ])
  }

  /** Ends the work when the sync is over, and gives the lease back. */
  async resign(): Promise<void> {
    await this.verification.stop()
    await this.coordination.stop()
    await this.lease.release()
  }

  /** Ends all work that the session has begun, in the order of its dependencies, and gives the lease back. */
  async close(): Promise<void> {
    this.alerts.stop()
    this.otherSyncs.end()
    this.leaveReplication()
    this.runs.stop()
    await this.verification.stop()
    await this.runs.ended
    await this.coordination.stop()
    await this.lease.release()
  }
}
