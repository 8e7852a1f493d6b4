import { type Actor, createActor, waitFor } from 'xstate'
import { instanceMachine } from '../../machines/instance.ts'
import type { InstanceContext } from '../../machines/instance-context.ts'
import { PeerCommands } from '../coordination/peer-commands.ts'
import { FatalError, RefusedError } from '../domain/errors.ts'
import type { Finding } from '../domain/finding.ts'
import type { InstancesReport } from '../domain/instances.ts'
import { type LoadLevel, noLimits } from '../domain/limits.ts'
import type { Progress, PublicState } from '../domain/progress.ts'
import type { StartConfiguration } from '../domain/start-request.ts'
import type { AuditStore } from '../mongo/audit-store.ts'
import type { ClusterName } from '../mongo/cluster.ts'
import type { GivenCommand } from '../mongo/command-store.ts'
import type { LeaseLoss } from '../mongo/lease.ts'
import { Metadata, type SyncRecord } from '../mongo/metadata.ts'
import { Throttle } from '../throttle/throttle.ts'
import { type BeginSyncParts, otherStore, refuseOther } from './begin-sync.ts'
import { type CommitRefusal, refusalOfCommit } from './commit-readiness.ts'
import { HeartbeatPublisher } from './heartbeat-publisher.ts'
import { withActors } from './instance-actors.ts'
import { LeasePatience } from './lease-patience.ts'
import { type InstanceSnapshot, idleProgress, publicState, reportProgress } from './report-progress.ts'
import { StoredContext } from './stored-context.ts'
import { swapDirection } from './swap-direction.ts'
import type { CommitPart } from './sync-follower.ts'
import { SyncWork } from './sync-work.ts'

export interface DrivenSyncParts extends BeginSyncParts {
  addresses: Record<ClusterName, string>
  mongosyncID: string
  incarnation: string
  loadLevel: LoadLevel
  atStep: (step: string) => void
  onTransition: (snapshot: InstanceSnapshot) => void
  /** Connections that others on the way could read or change, as far as is known now. */
  transportRisks: () => Finding[]
}

/** The sync that this instance takes part in: the machine says when, SyncWork does the work, what must survive is stored. */
export class DrivenSync {
  readonly #parts: DrivenSyncParts
  readonly throttle: Throttle
  /** What one instance passes on to all. */
  readonly commands: PeerCommands
  readonly #pulse: HeartbeatPublisher
  readonly #stored: StoredContext
  #actor: Actor<typeof instanceMachine>
  #work: SyncWork | null = null
  #metadata: Metadata | null = null
  #turning: Promise<unknown> = Promise.resolve()
  #inherited: StartConfiguration | null = null
  #inheritedIn: PublicState | null = null

  /** @param perform what was passed on to this instance, as if it had come by its own API */
  constructor(parts: DrivenSyncParts, perform: (given: GivenCommand) => Promise<void>) {
    this.#parts = parts
    this.throttle = new Throttle(parts.loadLevel)
    this.commands = new PeerCommands({
      id: parts.mongosyncID,
      incarnation: parts.incarnation,
      work: () => this.#work,
      perform,
      context: parts.context,
    })
    this.#pulse = new HeartbeatPublisher({
      id: parts.mongosyncID,
      incarnation: parts.incarnation,
      work: () => this.#work,
      progress: () => this.progress(),
      look: () => this.commands.look(),
      context: parts.context,
    })
    this.#stored = new StoredContext({
      id: parts.mongosyncID,
      metadata: () => this.#metadata,
      life: () => this.#work?.lease.termSignal ?? null,
      stopped: parts.context.signal,
      onFailure: (failure) => this.#actor.send({ type: 'worker.failed', failure }),
    })
    this.#actor = this.#createActor(null)
    this.#actor.start()
  }

  get actor(): Actor<typeof instanceMachine> {
    return this.#actor
  }

  get state(): Progress['state'] {
    return publicState(this.#actor.getSnapshot())
  }

  /** Null before there is a sync. */
  get work(): SyncWork | null {
    return this.#work
  }

  /** Where the commands of the present direction are written down; null before there is a sync. */
  get audit(): AuditStore | null {
    return this.#metadata?.audit ?? null
  }

  /** Resolves when what the machine has come to is stored, or never will be. */
  get storing(): Promise<void> {
    return this.#stored.storing
  }

  /**
   * The configuration of a sync that a predecessor of this process began: an identical start is answered success, for whoever restarts
   * an instance may send it again. Null once this instance has come to another state.
   */
  get inherited(): StartConfiguration | null {
    return this.#inherited
  }

  progress(): Progress {
    const snapshot = this.#actor.getSnapshot()
    if (!this.#work || publicState(snapshot) === 'IDLE') {
      const warnings = this.#transportWarnings
      return warnings.length === 0 ? idleProgress : { ...idleProgress, warnings }
    }
    const { record } = this.#work
    return reportProgress({
      snapshot,
      stored: this.#stored.latest,
      work: this.#work,
      record,
      sourceLatest: this.#parts.clusters[record.configuration.source].latest,
      addresses: this.#parts.addresses,
      mongosyncID: this.#parts.mongosyncID,
      retrying: this.#parts.context.monitor.current,
      warnings: [...this.#pulse.warnings, ...this.#transportWarnings],
      instances: this.#pulse.instances,
      strandedBytes: this.#pulse.strandedBytes,
      throttle: this.throttle,
      coordinator: this.#pulse.coordinator,
    })
  }

  /** Why a commit is refused though everything is copied and verified once; null where one begins at once. */
  get refusalOfCommit(): CommitRefusal | null {
    if (!this.#work) return null
    return refusalOfCommit({ work: this.#work, lagTimeSeconds: this.progress().lagTimeSeconds })
  }

  get #transportWarnings(): string[] {
    return this.#parts.transportRisks().map(({ message, remedy }) => `${message}; ${remedy}`)
  }

  instances(): Promise<InstancesReport> {
    return this.#pulse.report()
  }

  /**
   * Goes on with the sync that a predecessor of this instance began. What it stored counts only once this process holds
   * its lease: until then the predecessor may still be at work and store more. A sync of other instances is joined by `start`.
   */
  async restore(record: SyncRecord): Promise<void> {
    let standing: SyncRecord | null = record
    while (standing && !(await this.#restore(standing))) standing = await this.#parts.findStored()
  }

  /** False when others have reversed the sync while this instance waited for its lease: then another record counts. */
  async #restore(record: SyncRecord): Promise<boolean> {
    const metadata = new Metadata(this.#parts.clusters[record.configuration.destination], this.#parts.context)
    const stored = await metadata.loadInstances()
    if (stored.size > 0 && !stored.has(this.#parts.mongosyncID)) return true
    const problem = otherStore(record, this.#parts.redis)
    if (problem) throw new FatalError('InstanceMismatch', problem)
    const work = this.#begin(record)
    let context = await this.#stored.load()
    if (!context?.canWrite || context.commitRequested || context.reversing) {
      await work.leadAtLast()
      context = await this.#stored.load()
      if (!(await this.#stands(work))) {
        await this.#abandon()
        return false
      }
    }
    await work.look()
    this.#stored.restored(context)
    this.#actor.stop()
    this.#actor = this.#createActor(context ?? startedContext(record.configuration))
    this.#actor.start()
    this.#inherited = record.configuration
    this.#inheritedIn = this.state
    void this.#pulse.start()
    return true
  }

  /** Takes part in a sync that is on record, whoever began it. */
  async join(record: SyncRecord, configuration: StartConfiguration): Promise<void> {
    refuseOther(record, configuration, this.#parts.redis)
    const patience = new LeasePatience('start')
    try {
      const work = this.#begin(record)
      await patience.bounded(work.leadAtLast(patience.signal), 'this instance takes no part in the sync')
      if (!(await this.#stands(work))) {
        throw new RefusedError(
          'WrongState',
          'another instance has reversed this sync meanwhile; start this one as it is now',
        )
      }
    } catch (error) {
      await this.#abandon()
      throw error
    }
    this.#actor.send({ type: 'sync.start', configuration: record.configuration })
    await this.#stored.storing
    await this.#pulse.start()
  }

  /** After the lease was given back at COMMITTED. Throws RefusedError when another instance has reversed the sync meanwhile. */
  async leadAgain(work: SyncWork): Promise<void> {
    const patience = new LeasePatience('reverse')
    const hasLeft = waitFor(this.#actor, (now) => !now.matches('committed') || now.matches({ committed: 'left' }))
    await patience.bounded(hasLeft, 'nothing was changed')
    try {
      await patience.bounded(work.leadAtLast(patience.signal), 'nothing was changed')
    } catch (error) {
      await work.resign()
      throw error
    }
    if (!(await this.#stands(work))) {
      await work.resign()
      throw new RefusedError('WrongState', 'another instance has reversed this sync; restart this one')
    }
  }

  /** Resolves when this process may write by its lease now; a command is refused by name when that takes too long, or cannot be. */
  async held(patience: LeasePatience): Promise<void> {
    await patience.held({
      work: () => this.#work,
      ended: () => this.#ended(),
      insist: () => this.refuseTakenOver(),
    })
  }

  /** Throws RefusedError WrongState where another process has taken over. */
  refuseTakenOver(): void {
    if (this.#actor.getSnapshot().context.failure?.error !== 'LeaseLost') return
    throw new RefusedError('WrongState', 'another instance has taken over; stop it and restart this one')
  }

  /** Others may reverse the sync while this instance waits for its lease. */
  async #stands(work: SyncWork): Promise<boolean> {
    const standing = await this.#metadata?.loadSync()
    return standing?.generation === work.record.generation
  }

  async #abandon(): Promise<void> {
    await this.#work?.close()
    // The next attempt is this process's too, and would be taken for the same.
    await this.#work?.lease.attemptEnded()
    // What comes next may have this cluster as its source, and another lease.
    const destination = this.#work?.record.configuration.destination
    if (destination) Object.assign(this.#parts.clusters[destination], { fence: () => {}, sessions: null })
    this.#work = null
    this.#metadata = null
    this.#stored.wake()
  }

  async close(): Promise<void> {
    this.#pulse.stop()
    await this.#stored.storing
    this.#actor.stop()
    await this.#work?.close()
  }

  #begin(record: SyncRecord): SyncWork {
    const { work, metadata } = this.#prepare(record)
    this.#metadata = metadata
    this.#work = work
    return work
  }

  #prepare(record: SyncRecord): { work: SyncWork; metadata: Metadata } {
    const { clusters, context, mongosyncID, incarnation, atStep } = this.#parts
    const destination = clusters[record.configuration.destination]
    const metadata = new Metadata(destination, context)
    const work: SyncWork = new SyncWork({
      source: clusters[record.configuration.source],
      destination,
      record,
      owner: { id: mongosyncID, incarnation },
      context,
      liveness: this.#parts.liveness(destination),
      storeDecides: this.#parts.redis,
      throttle: this.throttle,
      atStep,
      dryRun: () => this.#actor.getSnapshot().context.dryRun,
      onLeaseLost: (reason) => this.#leaseLost(work, reason),
    })
    work.lease.onTaken = () => this.#stored.begin()
    return { work, metadata }
  }

  #leaseLost(work: SyncWork, reason: LeaseLoss): void {
    if (work !== this.#work) return
    if (reason === 'taken') {
      this.#stored.end()
      const errorDescription =
        'another process with the same id took the lease on the destination over; this one has stopped'
      this.#actor.send({ type: 'worker.failed', failure: { error: 'LeaseLost', errorDescription } })
    } else this.#actor.send({ type: 'lease.buried' })
  }

  /** Resolves when everything that was left has ended. */
  #ended(): Promise<unknown> {
    return Promise.all([this.#turning, this.#work?.ended])
  }

  async #swapDirection(left: AbortSignal): Promise<void> {
    const [former, from] = [this.#work, this.#metadata]
    if (!former || !from) throw new FatalError('InternalError', 'a reversal without a sync')
    const { clusters, mongosyncID: id, context, atStep } = this.#parts
    const instance = this.#actor.getSnapshot().context
    const prepare = (record: SyncRecord): { work: SyncWork; metadata: Metadata } => this.#prepare(record)
    const turned = await swapDirection({ clusters, former, from, prepare, id, instance, context, atStep }, left)
    this.#metadata = turned.metadata
    this.#work = turned.work
    this.#stored.wake()
  }

  #createActor(context: InstanceContext | null): Actor<typeof instanceMachine> {
    const machine = withActors({
      work: () => this.#work as SyncWork,
      part: () => partOf(this.#actor.getSnapshot()),
      asked: () => this.#actor.getSnapshot().context,
      ended: () => this.#ended(),
      storing: () => this.#stored.storing,
      swapDirection: (left) => {
        // One at a time: what one that was left gives back is the lease that the next one takes.
        const turn = this.#turning.then(() => this.#swapDirection(left))
        this.#turning = turn.catch(() => {})
        return turn
      },
      report: (event) => this.#actor.send(event),
    })
    const actor = createActor(machine, { input: context })
    actor.subscribe((snapshot) => {
      this.#parts.onTransition(snapshot)
      // What an earlier version stored has none.
      this.throttle.set(snapshot.context.limits ?? noLimits)
      if (snapshot.context.configuration) this.#stored.store(snapshot.context)
      this.#pulse.transition(publicState(snapshot), snapshot.context)
      if (publicState(snapshot) !== this.#inheritedIn) this.#inherited = null
    })
    return actor
  }
}

function partOf(snapshot: InstanceSnapshot): CommitPart {
  if (snapshot.matches({ syncing: 'finishing' })) return 'arrived'
  return snapshot.hasTag('COMMITTING') ? 'committing' : null
}

function startedContext(configuration: StartConfiguration): InstanceContext {
  const fresh = createActor(instanceMachine, { input: null }).getSnapshot().context
  return { ...fresh, configuration }
}
