import { setTimeout as sleep } from 'node:timers/promises'
import type { CoordinatorReport, Worked } from '../../machines/sync-context.ts'
import { pathOf, type SyncSnapshot, type SyncView } from '../../machines/sync-view.ts'
import { type CommitRequest, plainCommit, type Rehearsal } from '../domain/commit-request.ts'
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
/** How long a request binds the other instances although none of them is COMMITTING yet, ms. */
const requestPatienceMS = 10_000

/** What all instances of a sync share: its stored state, and how far each instance has followed it. */
export class Peers {
  readonly #parts: PeersParts
  /** mongosyncIDs of the instances that the sync waits for, as shown to the operator. */
  waitingFor: string[] = []

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

  load(): Promise<SyncSnapshot> {
    return this.#parts.store.load()
  }

  /** The term and commit attempt that this instance's reports as coordinator carry now. */
  get worked(): Worked {
    return { term: this.#parts.coordination.term, attempt: this.sync.context.attempt }
  }

  /**
   * Stores the coordinator's term. Call it before any other work of the term: from then on reports of earlier terms
   * have no effect. Returns the state that is stored afterwards.
   */
  async elected(): Promise<SyncSnapshot> {
    const { term } = this.worked
    if (this.sync.context.term >= term) return this.sync
    return await this.#parts.store.send({ type: 'coordinator.elected', term })
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
   * Stores the commit request before any instance acts on it. Throws RefusedError ConfigurationMismatch when another
   * instance was asked for a different commit, and WrongState when a commit cannot begin now.
   * @param until aborts the attempt, which then rejects with StoppedError
   * @returns how many commits were aborted before this one; `abort` takes it to identify this commit
   */
  async request(request: CommitRequest, until?: AbortSignal): Promise<number> {
    const { store, liveness, id } = this.#parts
    const [observed, sync] = await Promise.all([liveness.instances().catch(() => null), store.load(until)])
    const known = sync.context.request
    const others = observed?.filter((one) => one.alive && one.id !== id)
    // An instance may have stored the known request and then died, or been refused, before it began the commit. When
    // others exist, one may also be about to begin, so a recent request is not replaced: an instance that took a
    // rehearsal for a commit would open the destination.
    const isUnused = others?.every((one) => one.progress.state !== 'COMMITTING') ?? false
    const isOld = known !== null && Math.abs(Date.now() - known.at) > requestPatienceMS
    const replaces = isUnused && known && (others?.length === 0 || isOld) ? known.at : null
    const abortsBefore = sync.context.aborts
    const at = Date.now()
    const after = await store.send(
      { type: 'commit.requested', request: { ...request, at }, replaces, abortsBefore },
      until,
    )
    const { context } = after
    // A release that did not store requests began the commit that is under way.
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
        `the commit that is under way has dryRun ${stored.dryRun} and maxSeconds ${stored.maxSeconds}; send the same to every instance, or abort it first and send this one again after ${requestPatienceMS / 1_000} seconds`,
      )
    }
    return context.aborts
  }

  /**
   * Aborts the commit that `abortsBefore` aborted commits preceded. It may be repeated.
   * @param why the reason and, for a command, the signal that cancels it (StoppedError then)
   * @returns false when it is too late because the commit is decided
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
   * Resolves when changes may be applied. Throws StoppedError once the commit is decided: this direction applies none
   * after it.
   */
  async untilApplicable(signal: AbortSignal): Promise<void> {
    for (;;) {
      const sync = await this.#parts.store.load()
      if (sync.hasTag('applicable')) return
      if (sync.hasTag('decided')) throw new StoppedError()
      await this.wait(signal)
    }
  }

  /** Resolves when every live instance is COMMITTING. The coordinator calls it while it is COMMITTING itself. */
  async gathered(signal: AbortSignal): Promise<void> {
    while (!(await this.allAre('COMMITTING'))) await this.wait(signal)
  }

  /**
   * Resolves when the coordinator owns every partition, so that it can finish a commit: all others have given their
   * partitions back, and none can apply events again. It also waits for an instance that joins only now, which gets the
   * commit too.
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

  /** True when every live instance has received the command that leads to this state. */
  async allAre(state: PublicState): Promise<boolean> {
    const { coordination, liveness, id } = this.#parts
    const observed = await liveness.instances().catch((error) => {
      if (error instanceof FatalError) throw error
      return null // the store does not answer now; a commit can wait
    })
    if (!observed) return false
    // An instance without heartbeats that holds a lease still works on what it owns.
    const missing = new Set(coordination.members)
    // The heartbeat of a stopped instance lasts for a while; a commit does not wait for it. (After a commit no instance
    // holds a lease, so the lease shows nothing then.)
    const hasLeft = (one: string): boolean => state === 'COMMITTING' && coordination.hasLeft(one)
    for (const one of observed) if (one.alive && !hasLeft(one.id)) missing.add(one.id)
    for (const one of observed) if (one.alive && one.progress.state === state) missing.delete(one.id)
    missing.delete(id)
    this.waitingFor = [...missing].sort()
    return this.waitingFor.length === 0
  }

  /**
   * Stores a request for a commit that the instances follow but the stored sync lacks: an earlier release began it
   * without one.
   */
  async requestAgain(abortsBefore: number, dryRun: boolean): Promise<void> {
    const request = { dryRun, maxSeconds: null, at: Date.now() }
    await this.#parts.store.send({ type: 'commit.requested', request, replaces: null, abortsBefore })
  }

  /**
   * Resolves at the next change of ownership, or after `waitMS` at the latest. Throws StoppedError when `signal` is
   * aborted.
   */
  async wait(signal: AbortSignal): Promise<void> {
    if (signal.aborted) throw new StoppedError()
    // AbortSignal.any would leak: `signal` lives as long as the sync and would retain every dependent signal.
    const waking = new AbortController()
    const wake = (): void => waking.abort()
    signal.addEventListener('abort', wake, { once: true })
    const paused = sleep(waitMS, undefined, { signal: waking.signal }).catch(() => {})
    await Promise.race([paused, this.#parts.coordination.changed()])
    signal.removeEventListener('abort', wake)
    wake()
    if (signal.aborted) throw new StoppedError()
  }
}
