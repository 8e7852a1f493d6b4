import type { SyncStep } from '../../machines/sync.ts'
import type { CoordinatorReport } from '../../machines/sync-context.ts'
import { Barriers } from '../coordination/barriers.ts'
import { Coordination } from '../coordination/coordination.ts'
import { StoreFailureDetector } from '../coordination/failure-detector.ts'
import type { Liveness } from '../coordination/liveness.ts'
import { OwnershipStore } from '../coordination/ownership-store.ts'
import { Peers } from '../coordination/peers.ts'
import { SyncStore } from '../coordination/sync-store.ts'
import { FatalError, StoppedError } from '../domain/errors.ts'
import type { Cluster } from '../mongo/cluster.ts'
import { CollectionFigures } from '../mongo/collection-figures.ts'
import { CommandStore } from '../mongo/command-store.ts'
import { Lease, type LeaseLoss, type LeaseOwner } from '../mongo/lease.ts'
import { Metadata, type SyncRecord } from '../mongo/metadata.ts'
import type { RetryContext } from '../mongo/retry.ts'
import { Selection } from '../mongo/selection.ts'
import { StoredDocuments } from '../mongo/stored-documents.ts'
import type { Throttle } from '../throttle/throttle.ts'
import { AlertFigures } from './alert-figures.ts'
import { CollectionReports } from './collection-reports.ts'
import { CommitSteps } from './commit-steps.ts'
import { SharedReplication } from './shared-replication.ts'
import type { StepWork } from './sync-follower.ts'
import { Verification } from './verification.ts'
import { WorkFigures } from './work-figures.ts'
import { WorkRuns } from './work-runs.ts'

export interface SyncWorkParts {
  source: Cluster
  destination: Cluster
  record: SyncRecord
  owner: LeaseOwner
  context: RetryContext
  liveness: Liveness
  /** The liveness store is not the metadata database, and it decides which instances are alive. */
  storeDecides: boolean
  /** Limits the speed of bulk work. */
  throttle: Throttle
  atStep: (step: string) => void
  /** The commit that this instance was asked for is a rehearsal. */
  dryRun: () => boolean
  onLeaseLost: (reason: LeaseLoss) => void
}

/** The work of one sync in this process. The instance machine's actors call it. */
export class SyncWork {
  readonly lease: Lease
  readonly coordination: Coordination
  readonly failureDetector: StoreFailureDetector | null
  readonly team: Peers
  /** The embedded verifier. It also exists when verification is switched off, and then reports nothing. */
  readonly verification: Verification
  readonly replication: SharedReplication
  readonly commit: CommitSteps
  readonly figures: WorkFigures
  /** The figures of each collection. */
  readonly collections: CollectionReports
  /** Commands that one instance passes on to all. */
  readonly commands: CommandStore
  readonly #parts: SyncWorkParts
  /**
   * Context of writes under the lease. They are not retried once the lease is lost: the next lease term waits until the
   * writes of the last one have ended, and only then may this process write again.
   */
  readonly #leaseContext: RetryContext
  readonly #metadata: Metadata
  /** Aborted when the lease is lost. */
  #leaseLost = new AbortController()
  /** Aborted when the lease is lost or the process stops. */
  #leaseTerm: AbortSignal
  readonly alerts: AlertFigures
  readonly #runs: WorkRuns

  constructor(parts: SyncWorkParts) {
    this.#parts = parts
    const { source, destination, owner, context, liveness, record, atStep, onLeaseLost } = parts
    this.#leaseTerm = AbortSignal.any([context.signal, this.#leaseLost.signal])
    const leaseTerm = (): AbortSignal => this.#leaseTerm
    this.#leaseContext = {
      ...context,
      get signal() {
        return leaseTerm()
      },
    }
    this.#metadata = new Metadata(destination, this.#leaseContext)
    this.#metadata.term = () => this.coordination.term
    this.#runs = new WorkRuns(context.signal)
    this.commands = new CommandStore(destination)
    const selection = new Selection(source, record.configuration)
    this.failureDetector = parts.storeDecides ? new StoreFailureDetector(liveness) : null
    const lease = new Lease(destination, OwnershipStore.leaseName(owner.id), owner, context, this.failureDetector)
    this.lease = lease
    destination.fence = () => lease.fence()
    destination.sessions = lease.sessions
    const { partitions } = record
    this.coordination = new Coordination({
      destination,
      lease,
      id: owner.id,
      partitions,
      context,
      liveness,
      failureDetector: this.failureDetector,
      onLeaseLost: (reason) => {
        this.#leaseLost.abort()
        onLeaseLost(reason)
      },
    })
    const stored = new StoredDocuments(destination, this.#leaseContext)
    const store = new SyncStore(destination, this.#leaseContext, record.generation)
    this.team = new Peers({ coordination: this.coordination, store, liveness, id: owner.id })
    this.verification = new Verification({
      source,
      destination,
      metadata: this.#metadata,
      context: this.#leaseContext,
      selection,
      throttle: parts.throttle,
      atStep,
      epoch: () => this.coordination.coordinatorEpoch,
      catalogue: () => this.commit.finishing.catalogue,
      appliedTime: () => this.figures.everywhereApplied,
    })
    this.replication = new SharedReplication({
      source,
      destination,
      metadata: this.#metadata,
      record,
      context,
      selection,
      coordination: this.coordination,
      store,
      barriers: new Barriers(stored, () => this.coordination.term),
      throttle: parts.throttle,
      atStep,
      team: this.team,
      runs: this.#runs,
      lead: () => this.lead(),
      leaving: () => this.figures.leaving(),
      insistOnRecord: () => this.insistOnRecord(),
    })
    this.commit = new CommitSteps({
      source,
      destination,
      configuration: record.configuration,
      context,
      coordination: this.coordination,
      team: this.team,
      verification: this.verification,
      runs: this.#runs,
      replication: this.replication,
      dryRun: parts.dryRun,
      lead: () => this.lead(),
      hold: () => this.hold(),
      applied: (time) => this.figures.applied(time),
      atStep,
    })
    this.figures = new WorkFigures({
      source,
      destination,
      metadata: this.#metadata,
      coordination: this.coordination,
      startTime: record.startTime,
      replication: this.replication,
    })
    const { startTime } = record
    this.alerts = new AlertFigures({ source, destination, startTime })
    this.collections = new CollectionReports(new CollectionFigures(destination), record.configuration)
  }

  get record(): SyncRecord {
    return this.#parts.record
  }

  /** Resolves when everything that was left has ended. */
  get ended(): Promise<unknown> {
    return this.#runs.ended
  }

  get context(): RetryContext {
    return this.#parts.context
  }

  get liveness(): Liveness {
    return this.#parts.liveness
  }

  get throttle(): Throttle {
    return this.#parts.throttle
  }

  /** Resolves when this process holds its instance's lease and knows who coordinates. */
  async lead(): Promise<void> {
    await this.hold()
    this.coordination.engage(true)
    await this.coordination.start()
  }

  /**
   * Like `lead`, for callers without a machine that would start again: it retries when the lease is lost in the
   * meantime.
   * @param until stops the retries, also once the lease is given back; it then rejects with StoppedError
   */
  async leadAtLast(until?: AbortSignal): Promise<void> {
    for (;;) {
      try {
        return await this.lead()
      } catch (error) {
        if (!(error instanceof StoppedError) || this.#parts.context.signal.aborted || until?.aborted) throw error
      }
    }
  }

  /** Resolves when this process holds its instance's lease. It does not change whether the instance may coordinate. */
  async hold(): Promise<void> {
    // A new lease term shows that the last one is over, so none of its work may be under way, the verifier's last
    // writes included.
    if (this.#leaseLost.signal.aborted) await this.verification.ended
    await this.lease.acquire()
    if (this.#leaseLost.signal.aborted) this.#beginLeaseTerm()
  }

  #beginLeaseTerm(): void {
    this.#leaseLost = new AbortController()
    this.#leaseTerm = AbortSignal.any([this.#parts.context.signal, this.#leaseLost.signal])
  }

  /** Ends the work when the sync is over, and gives the lease back. */
  async resign(): Promise<void> {
    await this.verification.stop()
    await this.coordination.stop()
    await this.lease.release()
  }

  /** The coordinator's work for each step that the sync machine's states name. */
  readonly steps: Record<SyncStep, StepWork> = {
    initialise: (left) => this.#initialise(left),
    gather: (left) => this.commit.gather(left),
    takePoint: (left) => this.commit.takePoint(left),
    applyAll: (left) => this.commit.applyAll(left),
    prepare: (left) => this.commit.prepare(left),
    verify: (left) => this.commit.verify(left),
    decide: (left) => this.commit.decide(left),
    open: (left) => this.commit.open(left),
    convert: (left) => this.commit.convert(left),
    undo: (left) => this.commit.undo(left),
    adapt: (left) => this.#adapt(left),
  }

  async #initialise(left: AbortSignal): Promise<CoordinatorReport> {
    await this.#runs.finish(left, async () => {
      this.#runs.renew()
      await this.lead()
      const replication = await this.replication.load()
      await this.insistOnRecord()
      await replication.initialise()
    })
    return { type: 'initialised' }
  }

  /** Prepares the new destination, which is the second half of a reversal. */
  async #adapt(left: AbortSignal): Promise<CoordinatorReport> {
    await this.#runs.finish(left, async () => {
      this.#runs.renew()
      await this.lead()
      // From here on, writes on both clusters are fenced by the lease of this direction.
      this.#parts.source.fence = () => this.lease.fence()
      this.#parts.source.sessions = null
      await (await this.replication.load()).adapt()
    })
    return { type: 'reversal.adapted' }
  }

  /** Gives all partitions back once the work that was under way has ended. The caller no longer applies events. */
  async yieldAll(): Promise<void> {
    await this.#runs.ended
    await this.coordination.yieldAll()
  }

  /**
   * Throws FatalError LeaseLost when another instance has reversed the sync, so that the metadata here is no longer
   * valid. The record is removed first, so an instance that read incomplete metadata notices it here.
   */
  async insistOnRecord(): Promise<void> {
    const stored = await this.#metadata.loadSync()
    if (stored?.generation === this.record.generation) return
    throw new FatalError('LeaseLost', 'another instance has reversed this sync; restart this one')
  }

  /** True while the lease is lost and the next lease term has not begun. */
  get isLeaseLost(): boolean {
    return this.#leaseLost.signal.aborted
  }

  /** Loads the stored state, for the figures of an instance that is not running. */
  async loadFigures(): Promise<void> {
    await this.replication.load(false)
    await this.figures.restore()
    await this.team.load()
    await this.coordination.readHolder()
    await this.verification.loadReport()
  }

  async close(): Promise<void> {
    this.alerts.stop()
    this.replication.left()
    this.#runs.stop()
    await this.verification.stop()
    await this.#runs.ended
    await this.coordination.stop()
    await this.lease.release()
  }
}
