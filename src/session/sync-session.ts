import type { SyncStep } from '../../machines/sync.ts'
import { areWritesBlocked, blocksDestination, unblockSource } from '../commit/write-blocking.ts'
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
import { Heartbeat } from '../mongo/heartbeat.ts'
import { Lease, type LeaseLoss, type LeaseOwner } from '../mongo/lease.ts'
import { Metadata, type SyncRecord } from '../mongo/metadata.ts'
import { type RetryContext, retry } from '../mongo/retry.ts'
import { Selection } from '../mongo/selection.ts'
import { SharedStream } from '../mongo/shared-stream.ts'
import { StoredDocuments } from '../mongo/stored-documents.ts'
import type { Throttle } from '../throttle/throttle.ts'
import { AlertFigures } from './alert-figures.ts'
import { CollectionReports } from './collection-reports.ts'
import { CommitSteps } from './commit-steps.ts'
import { coordinatorSteps, type StepWork } from './coordinator-steps.ts'
import { LeaseTerm } from './lease-term.ts'
import { Replication } from './replication.ts'
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
  /** The liveness store is not the metadata database, and it decides which instances are alive. */
  storeDecides: boolean
  /** Limits the speed of bulk work. */
  throttle: Throttle
  atStep: (step: string) => void
  onLeaseLost: (reason: LeaseLoss) => void
}

/**
 * One sync in this process, in one direction: from the time the instance takes part in it until it ends or is reversed.
 * The lease terms in which it works follow each other inside it, because its figures, the state of the sync as last
 * read and the lease's own history outlive a term. The instance machine's actors call it.
 *
 * The constructor builds everything in the order of its dependencies. `close` ends it as a whole.
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
  /** The stored state, for what may be read and written without the fence of a coordinator's term. */
  readonly metadata: Metadata
  readonly failureDetector: StoreFailureDetector | null
  readonly lease: Lease
  readonly coordination: Coordination
  readonly team: Peers
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
  readonly #term: LeaseTerm
  readonly #heartbeat: Heartbeat
  /** What every replication of this session is built from, except for its context. */
  readonly #replicationParts

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
    this.alerts = new AlertFigures({ source, destination, startTime: record.startTime })
    this.#heartbeat = new Heartbeat(source)

    this.failureDetector = parts.storeDecides ? new StoreFailureDetector(liveness) : null
    const lease = new Lease(destination, OwnershipStore.leaseName(owner.id), owner, context, this.failureDetector)
    this.lease = lease
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
    const store = new SyncStore(destination, term.context, record.generation)
    const barriers = new Barriers(new StoredDocuments(destination, term.context), coordination)
    const selection = new Selection(source, record.configuration)
    this.team = new Peers({ coordination, store, liveness, id: owner.id })
    const { team } = this
    const clusters = { source, destination }
    const sharedStream = new SharedStream()
    const shared = { ...clusters, metadata, selection, sharedStream, throttle, atStep, coordination }
    this.#replicationParts = { ...shared, record, store, barriers, team }
    this.runs = new WorkRuns(context.signal)
    const { runs } = this
    this.figures = new WorkFigures({ ...clusters, metadata, coordination, startTime: record.startTime, runs })
    this.verification = new Verification({ ...shared, context: term.context, runs, figures: this.figures })
    // Built last: the steps use everything above.
    this.commit = new CommitSteps(this)
    this.steps = coordinatorSteps(this)
  }

  /** Resolves when everything that was left has ended. */
  get ended(): Promise<unknown> {
    return this.runs.ended
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
        if (!(error instanceof StoppedError) || this.context.signal.aborted || until?.aborted) throw error
      }
    }
  }

  /** Resolves when this process holds its instance's lease. It does not change whether the instance may coordinate. */
  async hold(): Promise<void> {
    // A new lease term shows that the last one is over, so none of its work may be under way, the verifier's last
    // writes included.
    if (this.#term.isOver) await this.verification.ended
    await this.lease.acquire()
    this.#term.begin()
  }

  /**
   * The replication both workers share; built when the first of them asks. A worker that opens again belongs to the next
   * replication. It may open before it has left this one, because XState stops an actor that is processing an event only
   * afterwards.
   */
  open(worker: Worker): Promise<Replication> {
    if (this.runs.workers.has(worker)) this.left()
    return this.runs.replicate(worker, (signal) => this.#open(signal))
  }

  async #open(signal: AbortSignal): Promise<Replication> {
    await this.lead()
    await this.#untilApplicable(true, signal)
    const replication = await this.load()
    await this.insistOnRecord()
    if (signal.aborted) throw new StoppedError()
    replication.prepare()
    this.coordination.takeWork(true)
    this.#heartbeat.start()
    return replication
  }

  /**
   * The machine has left the replicating state: stops all runs, which are awaited before new ones begin.
   * @param opened what `open` returned: a replication that was left before is ignored; by default the current one
   */
  left(opened = this.runs.opened): void {
    if (!opened || opened !== this.runs.opened) return
    this.figures.leaving()
    this.runs.left()
    this.#heartbeat.stop()
    this.coordination.takeWork(false)
  }

  /**
   * Loads the stored state for the current run.
   * @param current true: a commit works on the loaded replication; false: it only provides figures when none was loaded
   * before
   */
  async load(current = true): Promise<Replication> {
    const { context, runs } = this
    if (context.signal.aborted) throw new StoppedError()
    const loaded = await this.#load(runs.signal)
    if (current) runs.latest = loaded
    else runs.latest ??= loaded
    return loaded
  }

  /** Loads the stored state for work that belongs neither to the current replication nor to a commit. */
  read(signal: AbortSignal): Promise<Replication> {
    return this.#load(AbortSignal.any([this.context.signal, signal]))
  }

  #load(signal: AbortSignal): Promise<Replication> {
    const context = { ...this.context, signal }
    const untilApplicable = (): Promise<void> => this.#untilApplicable(false, signal)
    return new Replication({ ...this.#replicationParts, context, untilApplicable }).load()
  }

  /**
   * Resolves when changes may be applied. If this instance coordinates, it first has the commit's preparation undone.
   * @param restarts true when this instance starts again: then a commit that has not yet applied all changes starts
   * again too, because the source may have been written since
   */
  async #untilApplicable(restarts: boolean, signal: AbortSignal): Promise<void> {
    const { team, coordination } = this
    for (;;) {
      const sync = await team.load()
      if (sync.hasTag('applicable') && !(restarts && coordination.leading)) return
      if (sync.hasTag('decided')) throw new StoppedError()
      if (coordination.leading) {
        const mayBeOpen = sync.context.mayBeOpen && (await this.#isDestinationOpened())
        const after = await team.report({ type: mayBeOpen ? 'commit.foundOpen' : 'commit.renewed' })
        if (after.hasTag('applicable')) return
      }
      await team.wait(signal)
    }
  }

  async #isDestinationOpened(): Promise<boolean> {
    const { destination, record, context } = this
    if (!blocksDestination(record.configuration)) return false
    const blocked = await retry('asking whether the destination is blocked', context, () =>
      areWritesBlocked(destination),
    )
    return blocked === false
  }

  /** Enables user writes on the source again, if a commit blocked them. May be repeated. */
  unblockSource(signal: AbortSignal): Promise<void> {
    const { source, destination, record, context } = this
    const limited = { ...context, signal: AbortSignal.any([context.signal, signal]) }
    return unblockSource(source, destination, record.configuration, limited)
  }

  /**
   * Throws FatalError LeaseLost when another instance has reversed the sync, so that the metadata here is no longer
   * valid. The record is removed first, so an instance that read incomplete metadata notices it here.
   */
  async insistOnRecord(): Promise<void> {
    const stored = await this.#replicationParts.metadata.loadSync()
    if (stored?.generation === this.record.generation) return
    throw new FatalError('LeaseLost', 'another instance has reversed this sync; restart this one')
  }

  /** True while the lease is lost and the next lease term has not begun. */
  get isLeaseLost(): boolean {
    return this.#term.isOver
  }

  /** Gives all partitions back once the work that was under way has ended. The caller no longer applies events. */
  async yieldAll(): Promise<void> {
    await this.runs.ended
    await this.coordination.yieldAll()
  }

  /** Loads the stored state, for the figures of an instance that is not running. */
  async loadFigures(): Promise<void> {
    await this.load(false)
    await this.figures.restore()
    await this.team.load()
    await this.coordination.readHolder()
    await this.verification.loadReport()
  }

  /** Ends the work when the sync is over, and gives the lease back. */
  async resign(): Promise<void> {
    await this.verification.stop()
    await this.coordination.stop()
    await this.lease.release()
  }

  /** Ends everything that the session has begun, in the order of its dependencies, and gives the lease back. */
  async close(): Promise<void> {
    this.alerts.stop()
    this.left()
    this.runs.stop()
    await this.verification.stop()
    await this.runs.ended
    await this.coordination.stop()
    await this.lease.release()
  }
}
