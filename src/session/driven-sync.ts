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
  /** Findings about connections that others on the network could read or change, as far as is known now. */
  transportRisks: () => Finding[]
}

/**
 * The sync that this instance takes part in. The instance machine decides when work begins and ends, SyncWork does the
 * work, and StoredContext stores what must survive a restart.
 */
export class DrivenSync {
  readonly #parts: DrivenSyncParts
  readonly throttle: Throttle
  /** Commands that one instance passes on to all. */
  readonly commands: PeerCommands
  readonly #heartbeats: HeartbeatPublisher
  readonly #stored: StoredContext
  #actor: Actor<typeof instanceMachine>
  #work: SyncWork | null = null
  #metadata: Metadata | null = null
  #swapping: Promise<unknown> = Promise.resolve()
  #inherited: StartConfiguration | null = null
  #inheritedIn: PublicState | null = null

  /** @param perform performs a command from another instance as if it had arrived through this instance's own API */
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
    this.#heartbeats = new HeartbeatPublisher({
      id: parts.mongosyncID,
      incarnation: parts.incarnation,
      work: () => this.#work,
      progress: () => this.progress(),
      poll: () => this.commands.poll(),
      context: parts.context,
    })
    this.#stored = new StoredContext({
      id: parts.mongosyncID,
      metadata: () => this.#metadata,
      leaseTerm: () => this.#work?.lease.termSignal ?? null,
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

  /** Null before the sync exists. */
  get work(): SyncWork | null {
    return this.#work
  }

  /** Stores the commands of the current direction; null before the sync exists. */
  get audit(): AuditStore | null {
    return this.#metadata?.audit ?? null
  }

  /** Resolves when the machine's current context is stored, or never will be. */
  get storing(): Promise<void> {
    return this.#stored.storing
  }

  /**
   * The configuration of a sync that a predecessor of this process began. An identical start succeeds, because scripts
   * that restart an instance may send it again. Null once the state of this instance has changed.
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
      warnings: [...this.#heartbeats.warnings, ...this.#transportWarnings],
      instances: this.#heartbeats.instances,
      orphanedBytes: this.#heartbeats.orphanedBytes,
      throttle: this.throttle,
      coordinator: this.#heartbeats.coordinator,
    })
  }

  /** Why a commit is refused although everything is copied and verified once; null when a commit can begin at once. */
  get refusalOfCommit(): CommitRefusal | null {
    if (!this.#work) return null
    return refusalOfCommit({ work: this.#work, lagTimeSeconds: this.progress().lagTimeSeconds })
  }

  get #transportWarnings(): string[] {
    return this.#parts.transportRisks().map(({ message, remedy }) => `${message}; ${remedy}`)
  }

  instances(): Promise<InstancesReport> {
    return this.#heartbeats.report()
  }

  /**
   * Continues the sync that a predecessor of this instance began. Its stored context is read again once this process
   * holds the lease, because until then the predecessor may still be at work and store more. `start` joins a sync of
   * other instances.
   */
  async restore(record: SyncRecord): Promise<void> {
    let existing: SyncRecord | null = record
    while (existing && !(await this.#restore(existing))) existing = await this.#parts.findStored()
  }

  /** False when others reversed the sync while this instance waited for its lease: then another record is valid. */
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
      if (!(await this.#isCurrent(work))) {
        await this.#abandon()
        return false
      }
    }
    await work.loadFigures()
    this.#stored.restored(context)
    this.#actor.stop()
    this.#actor = this.#createActor(context ?? startedContext(record.configuration))
    this.#actor.start()
    this.#inherited = record.configuration
    this.#inheritedIn = this.state
    void this.#heartbeats.start()
    return true
  }

  /** Takes part in a sync that is on record, no matter which instance began it. */
  async join(record: SyncRecord, configuration: StartConfiguration): Promise<void> {
    refuseOther(record, configuration, this.#parts.redis)
    const patience = new LeasePatience('start')
    try {
      const work = this.#begin(record)
      await patience.bounded(work.leadAtLast(patience.signal), 'this instance takes no part in the sync')
      if (!(await this.#isCurrent(work))) {
        throw new RefusedError(
          'WrongState',
          'another instance has reversed this sync in the meantime; send start with the new direction',
        )
      }
    } catch (error) {
      await this.#abandon()
      throw error
    }
    this.#actor.send({ type: 'sync.start', configuration: record.configuration })
    await this.#stored.storing
    await this.#heartbeats.start()
  }

  /**
   * Takes the lease again after it was given back at COMMITTED. Throws RefusedError WrongState when another instance
   * has reversed the sync in the meantime.
   */
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
    if (!(await this.#isCurrent(work))) {
      await work.resign()
      throw new RefusedError('WrongState', 'another instance has reversed this sync; restart this one')
    }
  }

  /**
   * Resolves when this process may write under its lease. Rejects with the command's refusal when that takes too long
   * or is impossible.
   */
  async held(patience: LeasePatience): Promise<void> {
    await patience.held({
      work: () => this.#work,
      ended: () => this.#ended(),
      insist: () => this.refuseTakenOver(),
    })
  }

  /** Throws RefusedError WrongState when another process has taken over. */
  refuseTakenOver(): void {
    if (this.#actor.getSnapshot().context.failure?.error !== 'LeaseLost') return
    throw new RefusedError('WrongState', 'another instance has taken over; stop it and restart this one')
  }

  /** False when other instances reversed the sync while this one waited for its lease. */
  async #isCurrent(work: SyncWork): Promise<boolean> {
    const stored = await this.#metadata?.loadSync()
    return stored?.generation === work.record.generation
  }

  async #abandon(): Promise<void> {
    await this.#work?.close()
    // The next attempt has this process's incarnation too, so the server could not distinguish their writes.
    await this.#work?.lease.attemptEnded()
    // The next sync may have this cluster as its source and use another lease.
    const destination = this.#work?.record.configuration.destination
    if (destination) Object.assign(this.#parts.clusters[destination], { fence: () => {}, sessions: null })
    this.#work = null
    this.#metadata = null
    this.#stored.wake()
  }

  async close(): Promise<void> {
    this.#heartbeats.stop()
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
    return Promise.all([this.#swapping, this.#work?.ended])
  }

  async #swapDirection(left: AbortSignal): Promise<void> {
    const [former, from] = [this.#work, this.#metadata]
    if (!former || !from) throw new FatalError('InternalError', 'a reversal without a sync')
    const { clusters, mongosyncID: id, context, atStep } = this.#parts
    const instance = this.#actor.getSnapshot().context
    const prepare = (record: SyncRecord): { work: SyncWork; metadata: Metadata } => this.#prepare(record)
    const swapped = await swapDirection({ clusters, former, from, prepare, id, instance, context, atStep }, left)
    this.#metadata = swapped.metadata
    this.#work = swapped.work
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
        // One swap at a time: the next one takes the lease that an abandoned one gives back.
        const swap = this.#swapping.then(() => this.#swapDirection(left))
        this.#swapping = swap.catch(() => {})
        return swap
      },
      report: (event) => this.#actor.send(event),
    })
    const actor = createActor(machine, { input: context })
    actor.subscribe((snapshot) => {
      this.#parts.onTransition(snapshot)
      // A context stored by an earlier release has no limits.
      this.throttle.set(snapshot.context.limits ?? noLimits)
      if (snapshot.context.configuration) this.#stored.store(snapshot.context)
      this.#heartbeats.transition(publicState(snapshot), snapshot.context)
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
