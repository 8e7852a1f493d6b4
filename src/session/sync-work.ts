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
import { verifyWhileLeading } from './verify-while-leading.ts'
import { WorkFigures } from './work-figures.ts'
import { WorkRuns } from './work-runs.ts'

export interface SyncWorkParts {
  source: Cluster
  destination: Cluster
  record: SyncRecord
  owner: LeaseOwner
  context: RetryContext
  liveness: Liveness
  /** The liveness store is not the metadata database, and decides who is alive. */
  storeDecides: boolean
  /** How fast what is done in bulk may be. */
  throttle: Throttle
  atStep: (step: string) => void
  /** The commit that this instance was asked for is a rehearsal. */
  dryRun: () => boolean
  onLeaseLost: (reason: LeaseLoss) => void
}

/** One sync's work in this process: what the instance machine's actors do. */
export class SyncWork {
  readonly lease: Lease
  readonly coordination: Coordination
  readonly failureDetector: StoreFailureDetector | null
  readonly team: Peers
  /** The embedded verifier, also where it is switched off: then it has nothing to say. */
  readonly verification: Verification
  readonly replication: SharedReplication
  readonly commit: CommitSteps
  readonly figures: WorkFigures
  /** The same collection by collection. */
  readonly collections: CollectionReports
  /** Commands that one instance passes on to all. */
  readonly commands: CommandStore
  readonly #parts: SyncWorkParts
  /**
   * What is stored under the lease is not tried again once the lease is lost: the next life waits for what the last one had
   * under way, and only the next one may write again.
   */
  readonly #lifeContext: RetryContext
  readonly #metadata: Metadata
  /** Aborted when the lease is lost. */
  #dead = new AbortController()
  #life: AbortSignal
  readonly alerts: AlertFigures
  readonly #runs: WorkRuns

  constructor(parts: SyncWorkParts) {
    this.#parts = parts
    const { source, destination, owner, context, liveness, record, atStep, onLeaseLost } = parts
    this.#life = AbortSignal.any([context.signal, this.#dead.signal])
    const life = (): AbortSignal => this.#life
    this.#lifeContext = {
      ...context,
      get signal() {
        return life()
      },
    }
    this.#metadata = new Metadata(destination, this.#lifeContext)
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
        this.#dead.abort()
        onLeaseLost(reason)
      },
    })
    const stored = new StoredDocuments(destination, this.#lifeContext)
    const store = new SyncStore(destination, this.#lifeContext, record.generation)
    this.team = new Peers({ coordination: this.coordination, store, liveness, id: owner.id })
    this.verification = new Verification({
      source,
      destination,
      metadata: this.#metadata,
      context: this.#lifeContext,
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

  /** Resolves when this process holds its instance's lease and knows who coordinates. */
  async lead(): Promise<void> {
    await this.hold()
    this.coordination.engage(true)
    await this.coordination.start()
  }

  /**
   * The same where no machine begins anew when the lease is lost meanwhile.
   * @param until gives it up once the lease is given back: rejects with StoppedError then
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

  /** Resolves when this process holds its instance's lease again; it is no more eligible to coordinate than it was. */
  async hold(): Promise<void> {
    // Taken again, the lease says that its last life is over: nothing of that may be under way, the verifier's last words neither.
    if (this.#dead.signal.aborted) await this.verification.ended
    await this.lease.acquire()
    if (this.#dead.signal.aborted) this.#live()
  }

  #live(): void {
    this.#dead = new AbortController()
    this.#life = AbortSignal.any([this.#parts.context.signal, this.#dead.signal])
  }

  /** The sync is over: nobody writes any more. */
  async resign(): Promise<void> {
    await this.verification.stop()
    await this.coordination.stop()
    await this.lease.release()
  }

  /** What the coordinator does in each state of the sync machine. */
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

  /** The reversal's second half. */
  async #adapt(left: AbortSignal): Promise<CoordinatorReport> {
    await this.#runs.finish(left, async () => {
      this.#runs.renew()
      await this.lead()
      // From here on this direction's lease is what allows writes on either cluster.
      this.#parts.source.fence = () => this.lease.fence()
      this.#parts.source.sessions = null
      await (await this.replication.load()).adapt()
    })
    return { type: 'reversal.adapted' }
  }

  /** Nothing is applied here any more: gives all partitions back, once what was under way has ended. */
  async yieldAll(): Promise<void> {
    await this.#runs.ended
    await this.coordination.yieldAll()
  }

  /**
   * Throws where another instance has reversed the sync: what is stored here counts no more. Its record is the first thing to
   * go, so whoever missed something that stood beside it finds that here.
   */
  async insistOnRecord(): Promise<void> {
    const standing = await this.#metadata.loadSync()
    if (standing?.generation === this.record.generation) return
    throw new FatalError('LeaseLost', 'another instance has reversed this sync; restart this one')
  }

  /**
   * Verifies while this instance coordinates; else only tells how far the coordinator is. Works until stopped, rejects on a
   * failure.
   */
  verify(report: (what: 'hashed' | 'restarted') => void, stopped: AbortSignal): Promise<void> {
    const { coordination, team, verification } = this
    const { configuration } = this.record
    const isDead = (): boolean => this.#dead.signal.aborted
    const parts = { configuration, coordination, team, verification, isDead }
    return verifyWhileLeading(parts, report, stopped)
  }

  /** Loads what is stored, for the figures of an instance that is not running. */
  async look(): Promise<void> {
    await this.replication.load(false)
    await this.figures.look()
    await this.team.load()
    await this.coordination.readHolder()
    await this.verification.look()
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
