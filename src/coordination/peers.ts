import type {
  ConvergenceScope,
  CoordinatorReport,
  NewFilter,
  StoredRequest,
  Worked,
} from '../../machines/sync-context.ts'
import { pathOf, type SyncSnapshot, type SyncView } from '../../machines/sync-view.ts'
import { secondsBetween } from '../domain/cluster-time.ts'
import { type CommitRequest, plainCommit, type Rehearsal } from '../domain/commit-request.ts'
import { deferred } from '../domain/deferred.ts'
import { type Failure, FatalError, RefusedError, StoppedError } from '../domain/errors.ts'
import type { PublicState } from '../domain/progress.ts'
import type { Coordination } from './coordination.ts'
import type { Liveness } from './liveness.ts'
import type { SyncStore } from './sync-store.ts'

export interface PeersParts {
  coordination: Coordination
  store: SyncStore
  liveness: Liveness
  /** mongosyncID. */
  id: string
}

const waitMS = 250
/** How long a read of the ownership shows that the sync's state is current, ms. Rounds follow each other more quickly. */
const currentMS = 1_500
/** Age, in ms, from which a request may be replaced while other instances are alive and none of them is COMMITTING. */
const requestPatienceMS = 10_000

/** The state that all instances of a sync share, and how far each instance has followed it. */
export class Peers {
  readonly #parts: PeersParts
  /** mongosyncIDs of the instances that the sync waits for, as shown to the operator. */
  waitingFor: string[] = []
  #electing: { term: number; stored: Promise<SyncSnapshot> } | null = null

  constructor(parts: PeersParts) {
    this.#parts = parts
  }

  /** The sync's state as this instance last loaded it. */
  get sync(): SyncSnapshot {
    return this.#parts.store.latest
  }

  /** The same state in the form that the instance machine takes. */
  get view(): SyncView {
    return this.#parts.store.view
  }

  /**
   * True if nothing is to be done at the moment and a recent round of the coordination has found no event that was stored
   * after `sync` was loaded. `sync` then need not be loaded again.
   */
  get isCurrent(): boolean {
    const { coordination, store } = this.#parts
    const { revision, readAt } = coordination.observed
    return this.sync.matches('replicating') && revision === store.revision && performance.now() - readAt < currentMS
  }

  /** @param until cancels the read, which then rejects with StoppedError */
  load(until?: AbortSignal): Promise<SyncSnapshot> {
    return this.#parts.store.load(until)
  }

  /** The coordinator term, the commit attempt and the number of convergences that this instance's reports carry. */
  get worked(): Worked {
    const { attempt, convergences } = this.sync.context
    return { term: this.#parts.coordination.term, attempt, convergences }
  }

  /**
   * Stores the coordinator's term. Call it before any other work of the term. From then on reports of earlier terms
   * have no effect. Returns the state that is stored afterwards.
   */
  async elected(): Promise<SyncSnapshot> {
    const { term } = this.worked
    if (this.sync.context.term >= term) return this.sync
    // The first works of a term begin at the same time, and share this write.
    if (this.#electing?.term !== term) {
      const electing = { term, stored: this.#parts.store.send({ type: 'coordinator.elected', term }) }
      this.#electing = electing
      const end = (): void => {
        if (this.#electing === electing) this.#electing = null
      }
      electing.stored.then(end, end)
    }
    return await this.#electing.stored
  }

  /**
   * Sends the coordinator's report. Returns the state that is stored afterwards, whether or not the report took effect.
   */
  async report(report: CoordinatorReport, worked: Worked = this.worked): Promise<SyncSnapshot> {
    await this.elected()
    const sync = await this.#parts.store.send({ ...report, ...worked })
    this.#parts.liveness.notify()
    return sync
  }

  /** Sends the report if this instance is the coordinator, and does nothing otherwise. */
  async reportLeading(report: CoordinatorReport): Promise<void> {
    if (this.#parts.coordination.leading) await this.report(report)
  }

  /** Reports that the coordinator's commit has failed, which fails the commit of every instance. */
  failed(failure: Failure): Promise<void> {
    return this.reportLeading({ type: 'commit.failed', failure })
  }

  /**
   * Stores the commit request before any instance acts on it. Throws RefusedError ConfigurationMismatch when a different
   * commit is already requested, and WrongState when a commit cannot begin now.
   * @param convergences number of requested convergences when this instance observed that everything is copied
   * @param until cancels the request, which then rejects with StoppedError
   * @returns how many commits were aborted before this one, which identifies this commit for `abort`
   */
  async request(
    request: CommitRequest,
    convergences = this.sync.context.convergences,
    until?: AbortSignal,
  ): Promise<number> {
    const { store, liveness, id } = this.#parts
    const [observed, sync] = await Promise.all([liveness.instances().catch(() => null), store.load(until)])
    const known = sync.context.request
    const others = observed?.filter((one) => one.alive && one.id !== id)
    // An instance may have stored the known request and then crashed, or been refused, before it began the commit.
    // Another live instance may also be about to begin, so a recent request is not replaced then. Otherwise an instance
    // could carry out a commit where a rehearsal was requested, and enable writes on the destination.
    const isUnused = others?.every((one) => one.progress.state !== 'COMMITTING') ?? false
    const isOld = known !== null && this.#ageMS(known) > requestPatienceMS
    const replaces = isUnused && known && (others?.length === 0 || isOld) ? known.at : null
    const abortsBefore = sync.context.aborts
    const after = await store.send(
      { type: 'commit.requested', request: this.#requestNow(request), replaces, abortsBefore, convergences },
      until,
    )
    const { context } = after
    // If no request is stored, an earlier release began the commit in progress. That release did not store requests.
    const stored = context.request ?? (after.matches('committing') ? plainCommit : null)
    if (!stored && !after.hasTag('decided')) {
      throw new RefusedError(
        'WrongState',
        `a commit cannot begin while the sync is ${pathOf(after)}; send it again soon`,
      )
    }
    if (stored && (stored.dryRun !== request.dryRun || stored.maxSeconds !== request.maxSeconds)) {
      throw new RefusedError(
        'ConfigurationMismatch',
        `the commit that is under way has dryRun ${stored.dryRun} and maxSeconds ${stored.maxSeconds}; send the same ` +
          `to every instance, or abort it first and send this one again after ${requestPatienceMS / 1_000} seconds`,
      )
    }
    return context.aborts
  }

  /**
   * Requests that collections are converged again. The request has no effect when more than `convergencesBefore`
   * convergences have been requested by now, or when the sync is not replicating.
   * @param until cancels the request, which then rejects with StoppedError
   * @param filter replaces the filters in the same step. Such a request also has an effect while a convergence is being
   * planned
   * @returns the state that is stored afterwards
   */
  async converge(
    scope: ConvergenceScope,
    convergencesBefore: number,
    until?: AbortSignal,
    filter?: NewFilter,
  ): Promise<SyncSnapshot> {
    const requested = { type: 'convergence.requested', scope, convergencesBefore } as const
    const sync = await this.#parts.store.send({ ...requested, ...(filter && { filter }) }, until)
    this.#parts.liveness.notify()
    return sync
  }

  /** Resolves when no other instance can still do work that it began before this convergence. */
  async stoppedFor(convergence: number, signal: AbortSignal): Promise<void> {
    try {
      for (;;) {
        this.waitingFor = await this.#parts.coordination.notStoppedFor(convergence)
        if (this.waitingFor.length === 0) return
        await this.wait(signal)
      }
    } finally {
      this.waitingFor = []
    }
  }

  /**
   * Aborts the current commit if exactly `abortsBefore` commits were aborted before it. The call may be repeated.
   * @param why the reason, the result of a rehearsal, and `until`, a signal that cancels the call, which then rejects
   * with StoppedError
   * @returns true when that commit is aborted; false when it is already decided, or when no such commit is stored
   */
  async abort(
    abortsBefore: number,
    why: { reason?: string | null; rehearsal?: Rehearsal; until?: AbortSignal } = {},
  ): Promise<boolean> {
    const { reason = null, rehearsal = null, until } = why
    const { context } = await this.#parts.store.send({ type: 'commit.aborted', abortsBefore, reason, rehearsal }, until)
    this.#parts.liveness.notify()
    return context.aborts > abortsBefore
  }

  /**
   * Resolves when changes may be applied. Throws StoppedError once the commit is decided, because no changes are
   * applied in this direction after that.
   */
  async untilApplicable(signal: AbortSignal): Promise<void> {
    for (;;) {
      const sync = await this.#parts.store.load()
      if (sync.hasTag('applicable')) return
      if (sync.hasTag('decided')) throw new StoppedError()
      await this.wait(signal)
    }
  }

  /** Resolves when every live instance is COMMITTING. The coordinator calls it while its own state is COMMITTING. */
  async gathered(signal: AbortSignal): Promise<void> {
    while (!(await this.allAre('COMMITTING'))) await this.wait(signal)
  }

  /**
   * Resolves when the coordinator owns every partition, so that it can finish a commit: all other instances have given
   * their partitions back, and none can apply events again. It also waits for an instance that joins in the meantime,
   * which gives its partitions back too, because it follows the commit.
   */
  async alone(signal: AbortSignal): Promise<void> {
    const { coordination } = this.#parts
    coordination.takeWork(true)
    try {
      while (!coordination.hasEverything) {
        this.waitingFor = coordination.otherOwners
        await this.wait(signal)
      }
    } finally {
      coordination.takeWork(false)
      this.waitingFor = []
    }
  }

  /** True when every other instance that is alive or holds a lease reports this state in its heartbeat. */
  async allAre(state: PublicState): Promise<boolean> {
    const { coordination, liveness, id } = this.#parts
    const observed = await liveness.instances().catch((error) => {
      if (error instanceof FatalError) throw error
      return null // the store does not answer now; a commit can wait
    })
    if (!observed) return false
    // An instance that sends no heartbeats but holds a lease may still work on its claims.
    const missing = new Set(coordination.members)
    // The heartbeat of a stopped instance stays valid for a while, but a commit does not wait for that instance. This
    // applies to COMMITTING only: after a commit no instance holds a lease, so leases do not show which have stopped.
    const hasLeft = (one: string): boolean => state === 'COMMITTING' && coordination.hasLeft(one)
    for (const one of observed) if (one.alive && !hasLeft(one.id)) missing.add(one.id)
    for (const one of observed) if (one.alive && one.progress.state === state) missing.delete(one.id)
    missing.delete(id)
    this.waitingFor = [...missing].sort()
    return this.waitingFor.length === 0
  }

  /**
   * Stores a request for the commit that is in progress. An earlier release began that commit without storing one.
   */
  async requestAgain(abortsBefore: number, dryRun: boolean): Promise<void> {
    const request = this.#requestNow({ dryRun, maxSeconds: null })
    await this.#parts.store.send({ type: 'commit.requested', request, replaces: null, abortsBefore })
  }

  #requestNow(request: CommitRequest): StoredRequest {
    return { ...request, at: Date.now(), atClusterTime: this.#parts.store.clusterTime.toString() }
  }

  /**
   * Age of a stored request, ms, as a multiple of whole seconds. It is computed from the destination's cluster time,
   * because the clocks of hosts may differ. A request of an earlier release has no cluster time.
   */
  #ageMS({ at, atClusterTime }: StoredRequest): number {
    if (atClusterTime === undefined) return Math.abs(Date.now() - at)
    return secondsBetween(BigInt(atClusterTime), this.#parts.store.clusterTime) * 1_000
  }

  /**
   * Resolves together with `Coordination.changed`, or after `longestMS` at the latest. Throws StoppedError when `signal`
   * is aborted.
   */
  async wait(signal: AbortSignal, longestMS = waitMS): Promise<void> {
    if (signal.aborted) throw new StoppedError()
    // AbortSignal.any would leak: `signal` lives as long as the sync and would retain every dependent signal. A second
    // signal would create an error with a stack trace at each wait.
    const woken = deferred<void>()
    const wake = (): void => woken.resolve()
    signal.addEventListener('abort', wake, { once: true })
    const timer = setTimeout(wake, longestMS)
    await Promise.race([woken.promise, this.#parts.coordination.changed()])
    signal.removeEventListener('abort', wake)
    clearTimeout(timer)
    if (signal.aborted) throw new StoppedError()
  }
}
