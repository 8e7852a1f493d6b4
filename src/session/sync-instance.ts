import { type Actor, createActor, waitFor } from 'xstate'
import { instanceMachine } from '../../machines/instance.ts'
import { completed, type InstanceContext } from '../../machines/instance-context.ts'
import type { WorkerReport } from '../../machines/protocol.ts'
import { asRefusal } from '../checks/check.ts'
import { OwnershipStore } from '../coordination/ownership-store.ts'
import { PeerCommands, type PeerCommandsParts } from '../coordination/peer-commands.ts'
import { SyncStore } from '../coordination/sync-store.ts'
import { addCircumstances } from '../domain/circumstances.ts'
import { errorDetails } from '../domain/error-details.ts'
import { causeOfFailure, FatalError, RefusedError, toFailure } from '../domain/errors.ts'
import { currentFilters } from '../domain/filter-request.ts'
import type { Finding } from '../domain/finding.ts'
import { both } from '../domain/in-parallel.ts'
import { type InstancesReport, totalsOf } from '../domain/instances.ts'
import type { LoadLevel } from '../domain/load-level.ts'
import type { NamespaceFilters } from '../domain/namespace-filter.ts'
import { noRemap } from '../domain/namespace-remap.ts'
import { notLost } from '../domain/not-lost.ts'
import type { Progress, PublicState } from '../domain/progress.ts'
import type { StartConfiguration } from '../domain/start-request.ts'
import type { ClusterName } from '../mongo/cluster.ts'
import type { LeaseLoss } from '../mongo/lease-watch.ts'
import { Metadata, type SyncRecord } from '../mongo/metadata.ts'
import { readAhead } from '../mongo/stored-lease.ts'
import { Throttle } from '../throttle/throttle.ts'
import { type BeginSyncParts, type Begun, otherStore, reachBoth, refuseOther } from './begin-sync.ts'
import { CurrentSession } from './current-session.ts'
import { HeartbeatPublisher, rowOf } from './heartbeat-publisher.ts'
import { withActors } from './instance-actors.ts'
import { LeasePatience } from './lease-patience.ts'
import { type InstanceSnapshot, idleProgress, publicState, reportProgress } from './report-progress.ts'
import { isCurrent, isCurrentWhenHeld } from './still-current.ts'
import { StoredContext } from './stored-context.ts'
import { swapDirection } from './swap-direction.ts'
import type { CommitPart } from './sync-follower.ts'
import { SyncSession } from './sync-session.ts'

export interface SyncInstanceParts extends BeginSyncParts {
  addresses: Record<ClusterName, string>
  mongosyncID: string
  incarnation: string
  loadLevel: LoadLevel
  atStep: (step: string) => void
  onTransition: (snapshot: InstanceSnapshot) => void
  /** Findings about connections that other hosts on the network could read or modify, as far as they are known now. */
  transportRisks: () => Finding[]
  /** Performs a command from another instance as if it had arrived through this instance's own API. */
  perform: PeerCommandsParts['perform']
}

/**
 * One instance that is connected to both clusters. Its machine decides when work begins and ends, and the session does
 * the work. The machine's context is stored, so that it survives a restart.
 */
export class SyncInstance {
  readonly parts: SyncInstanceParts
  readonly throttle: Throttle
  /** Commands that one instance passes on to all. */
  readonly commands: PeerCommands
  readonly #current = new CurrentSession()
  readonly #heartbeats: HeartbeatPublisher
  readonly #stored: StoredContext
  #actor: Actor<typeof instanceMachine>
  #inherited: StartConfiguration | null = null
  #inheritedIn: PublicState | null = null
  #part: CommitPart = null

  constructor(parts: SyncInstanceParts) {
    this.parts = parts
    const { mongosyncID: id, incarnation, context, perform } = parts
    const current = this.#current
    this.throttle = new Throttle(parts.loadLevel)
    this.commands = new PeerCommands({ id, incarnation, current, perform, context })
    this.#heartbeats = new HeartbeatPublisher({
      id,
      incarnation,
      current,
      reporter: this,
      commands: this.commands,
      context,
    })
    this.#stored = new StoredContext({
      id,
      current,
      stopped: context.signal,
      onFailure: (failure) => this.#report({ type: 'worker.failed', failure }),
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
  get session(): SyncSession | null {
    return this.#current.session
  }

  /** Resolves when all direction swaps and the work of all states that the machine has left have ended. */
  get ended(): Promise<unknown> {
    return this.#current.ended
  }

  /** Resolves when the machine's current context is stored, or will not be stored any more. */
  get storing(): Promise<unknown> {
    return this.#stored.storing
  }

  /**
   * The configuration, with its current filters, of a sync that a predecessor of this process began. A `start` with the
   * same configuration succeeds, because scripts that restart an instance may send it again. Null once the state of
   * this instance has changed.
   */
  get inherited(): StartConfiguration | null {
    const { session } = this.#current
    if (!this.#inherited || !session) return this.#inherited
    return { ...this.#inherited, ...currentFilters(this.#inherited, session.peers.sync.context.filters) }
  }

  progress(): Progress {
    const snapshot = this.#actor.getSnapshot()
    const { session } = this.#current
    if (!session || publicState(snapshot) === 'IDLE') {
      const warnings = this.#transportWarnings
      return warnings.length === 0 ? idleProgress : { ...idleProgress, warnings }
    }
    const { record } = session
    return reportProgress({
      snapshot,
      stored: this.#stored.latest,
      session,
      record,
      sourceLatest: session.source.latest,
      addresses: this.parts.addresses,
      mongosyncID: this.parts.mongosyncID,
      retrying: this.parts.context.monitor.current,
      warnings: [...this.#heartbeats.warnings, ...this.#transportWarnings],
      instances: this.#heartbeats.instances,
      orphanedBytes: this.#heartbeats.orphanedBytes,
      throttle: this.throttle,
      coordinator: this.#heartbeats.coordinator,
    })
  }

  get #transportWarnings(): string[] {
    return this.parts.transportRisks().map(({ message, remedy }) => `${message}; ${remedy}`)
  }

  async instances(): Promise<InstancesReport> {
    if (this.#current.session) return await this.#heartbeats.report()
    // This instance has no sync yet, but other instances may run one, and their rows can be read.
    const { clusters, findStored, liveness } = this.parts
    try {
      await reachBoth(clusters)
      const stored = await findStored()
      const destination = stored && clusters[stored.configuration.destination]
      const rows = destination ? (await liveness(destination).instances()).map(rowOf) : []
      return { instances: rows, totals: totalsOf(rows) }
    } catch (error) {
      throw asRefusal(error, 'instances')
    }
  }

  /**
   * Continues the sync that a predecessor of this process began. The stored context is read again once this process
   * holds the lease, because until then the predecessor may still run and store a newer one. Does nothing if only other
   * instances take part in the sync: this instance joins such a sync when it receives `start`.
   */
  async restore(record: SyncRecord): Promise<void> {
    let existing: SyncRecord | null = record
    while (existing && !(await this.#restore(existing))) existing = await this.parts.findStored()
  }

  /** Returns false when other instances reversed the sync while this one waited for its lease. */
  async #restore(record: SyncRecord): Promise<boolean> {
    const { clusters, context: retries, mongosyncID } = this.parts
    const destination = clusters[record.configuration.destination]
    const reading = readAhead(destination, OwnershipStore.leaseName(mongosyncID))
    const stored = await new Metadata(destination, retries).loadInstances()
    if (stored.size > 0 && !stored.has(mongosyncID)) return true
    const problem = otherStore(record, this.parts.redis)
    if (problem) throw new FatalError('InstanceMismatch', problem)
    const session = this.#begin(record)
    const own = stored.get(mongosyncID)
    let context = own ? completed(own) : null
    if (!context?.canWrite || context.commitRequested || context.reversing) {
      const lease = await reading
      if (lease) session.lease.expect(lease.stored)
      await session.joinElectionWithRetries()
      const figures = session.loadFigures()
      figures.catch(() => {})
      const [loaded, isStillCurrent] = await both(this.#stored.load(), isCurrent(session))
      context = loaded
      if (!isStillCurrent) {
        // Of a sync that was moved away, not everything may be stored here any more.
        await figures.catch(() => {})
        await this.#abandon()
        return false
      }
      await figures
    } else await session.loadFigures()
    this.#stored.restored(context)
    this.#actor.stop()
    this.#actor = this.#createActor(context ?? startedContext(record.configuration))
    this.#actor.start()
    this.#inherited = record.configuration
    this.#inheritedIn = this.state
    void this.#heartbeats.start()
    return true
  }

  /** Takes part in a stored sync, no matter which instance began it. */
  async join({ record, filters: read }: Begun, configuration: StartConfiguration): Promise<void> {
    const filters = read ?? (await this.#filtersOf(record))
    refuseOther(record, filters, configuration, this.parts.redis)
    const patience = new LeasePatience('start', this)
    try {
      const session = this.#begin(record)
      // A new sync has no leases, except those of a sync that was removed.
      if (read) session.lease.expect(undefined)
      const leading = both(session.joinElectionWithRetries(patience.signal), isCurrentWhenHeld(session))
      const [, current] = await patience.bounded(leading, 'this instance takes no part in the sync')
      // If this instance has lost the lease and taken it again, the first answer may be out of date.
      const isValid = current.epoch === session.lease.epoch ? current.isCurrent : await isCurrent(session)
      if (!isValid) {
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

  async #filtersOf({ configuration, generation }: SyncRecord): Promise<NamespaceFilters> {
    const destination = this.parts.clusters[configuration.destination]
    const { context } = await new SyncStore(destination, this.parts.context, generation).load()
    return currentFilters(configuration, context.filters)
  }

  /**
   * Takes the lease again after it was released in COMMITTED. Throws RefusedError WrongState when another instance
   * has reversed the sync in the meantime.
   */
  async leadAgain(session: SyncSession): Promise<void> {
    const patience = new LeasePatience('reverse', this)
    const hasLeft = waitFor(this.#actor, (now) => !now.matches('committed') || now.matches({ committed: 'left' }))
    await patience.bounded(hasLeft, 'nothing was changed')
    try {
      await patience.bounded(session.joinElectionWithRetries(patience.signal), 'nothing was changed')
    } catch (error) {
      await session.resign()
      throw error
    }
    if (!(await isCurrent(session))) {
      await session.resign()
      throw new RefusedError('WrongState', 'another instance has reversed this sync; restart this one')
    }
  }

  /** Throws RefusedError WrongState when another process has taken over. */
  refuseTakenOver(): void {
    if (this.#actor.getSnapshot().context.failure?.error !== 'LeaseLost') return
    throw new RefusedError('WrongState', 'another instance has taken over; stop it and restart this one')
  }

  /** Ends the session of a sync that this instance could not join or continue. */
  async #abandon(): Promise<void> {
    const { session } = this.#current
    await session?.close()
    // The next attempt uses the same incarnation, so the server could not distinguish the writes of both attempts.
    await session?.lease.attemptEnded()
    // The next sync may have this cluster as its source and use another lease.
    if (session) Object.assign(session.destination, { fence: () => {}, sessions: null, names: noRemap })
    this.#current.session = null
    this.#stored.wake()
  }

  async close(): Promise<void> {
    this.#heartbeats.stop()
    await this.#stored.storing
    this.#actor.stop()
    await this.#current.session?.close()
  }

  #begin(record: SyncRecord): SyncSession {
    const session = this.#prepare(record)
    this.#current.session = session
    return session
  }

  #prepare(record: SyncRecord): SyncSession {
    const { clusters, context, mongosyncID, incarnation, atStep } = this.parts
    const destination = clusters[record.configuration.destination]
    const session: SyncSession = new SyncSession({
      source: clusters[record.configuration.source],
      destination,
      record,
      owner: { id: mongosyncID, incarnation },
      context,
      liveness: this.parts.liveness(destination),
      storeDecides: this.parts.redis,
      throttle: this.throttle,
      atStep,
      onLeaseLost: (reason) => this.#leaseLost(session, reason),
    })
    const read = [this.commands.inRounds(session), session.figures.othersInRounds, session.liveness.inRounds]
    session.coordination.alsoRead.all = read.filter((part) => part !== null)
    session.lease.onTaken = () => this.#stored.begin()
    session.otherSyncs.begin((failure) => {
      const report = { type: 'worker.failed', failure } as const
      // The sync is stopped already if the machine does not accept the report.
      if (session === this.#current.session && this.#actor.getSnapshot().can(report)) this.#report(report)
    })
    return session
  }

  #leaseLost(session: SyncSession, reason: LeaseLoss): void {
    if (session !== this.#current.session) return
    if (reason === 'taken') {
      this.#stored.end()
      const error = new FatalError(
        'LeaseLost',
        'renewing the lease: another process with the same id has taken over the lease on the destination, and this process no longer works on the sync. ' +
          `Keep the other process and stop this one; to keep this one, stop the other and restart this one. ${notLost.progress}`,
      )
      addCircumstances(error, { cluster: session.destination.name })
      this.#actor.send({ type: 'worker.failed', failure: toFailure(error) })
    } else this.#actor.send({ type: 'lease.evicted' })
  }

  /** Sends a report to the machine. A failure that the machine ignores in its present state is logged, so it is not lost. */
  #report(report: WorkerReport): void {
    if (report.type === 'worker.failed' && !this.#actor.getSnapshot().can(report)) {
      const { failure } = report
      const details = errorDetails(failure.error, causeOfFailure(failure))
      this.parts.context.journal?.('failure ignored', { ...failure, ...details, state: this.state })
    }
    this.#actor.send(report)
  }

  async #swapDirection(signal: AbortSignal): Promise<void> {
    await this.#current.replace(async () => {
      const former = this.#current.session
      if (!former) throw new FatalError('InternalError', 'a reversal began, but this process has no sync')
      const { context } = this.#actor.getSnapshot()
      return await swapDirection(former, (record) => this.#prepare(record), context, signal)
    })
    this.#stored.wake()
  }

  #createActor(context: InstanceContext | null): Actor<typeof instanceMachine> {
    const machine = withActors({
      current: () => this.#current.session as SyncSession,
      part: () => partOf(this.#actor.getSnapshot()),
      asked: () => this.#actor.getSnapshot().context,
      ended: () => this.#current.ended,
      storing: () => this.#stored.storing,
      swapDirection: (signal) => this.#swapDirection(signal),
      report: (event) => this.#report(event),
    })
    const actor = createActor(machine, { input: context })
    actor.subscribe((snapshot) => {
      this.parts.onTransition(snapshot)
      const part = partOf(snapshot)
      // The coordinator's next step may wait until this instance has another part in the commit.
      if (part !== this.#part) this.#current.session?.coordination.wakeWaiting()
      this.#part = part
      this.throttle.set(snapshot.context.limits)
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
