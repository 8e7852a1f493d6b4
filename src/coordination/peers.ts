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
/** For so long a request binds the other instances though none is COMMITTING yet. */
const requestPatienceMS = 10_000

/** What all instances of a sync have in common: its state, as stored, and who has come how far with it. */
export class Peers {
  readonly #parts: PeersParts
  /** The instances that the sync waits for, for whoever wonders. */
  waitingFor: string[] = []

  constructor(parts: PeersParts) {
    this.#parts = parts
  }

  /** The sync's state, as this instance loaded it last. */
  get sync(): SyncSnapshot {
    return this.#parts.store.latest
  }

  /** The same, for the instance machine. */
  get view(): SyncView {
    return this.#parts.store.view
  }

  load(): Promise<SyncSnapshot> {
    return this.#parts.store.load()
  }

  /** What this instance would report as the coordinator now. */
  get worked(): Worked {
    return { term: this.#parts.coordination.term, attempt: this.sync.context.attempt }
  }

  /** Before the coordinator does anything for all: from here on reports of earlier terms count no more. Returns what is stored then. */
  async elected(): Promise<SyncSnapshot> {
    const { term } = this.worked
    if (this.sync.context.term >= term) return this.sync
    return await this.#parts.store.send({ type: 'coordinator.elected', term })
  }

  /** The coordinator's report. Returns what is stored then, whether or not the report counted. */
  async report(report: CoordinatorReport, worked: Worked = this.worked): Promise<SyncSnapshot> {
    await this.elected()
    const sync = await this.#parts.store.send({ ...report, ...worked })
    this.#parts.liveness.notify()
    return sync
  }

  /** What any instance may report, if it coordinates now. */
  async reportLeading(report: CoordinatorReport): Promise<void> {
    if (this.#parts.coordination.leading) await this.report(report)
  }

  /** The coordinator's commit has failed: so has everybody's. */
  failed(failure: Failure): Promise<void> {
    return this.reportLeading({ type: 'commit.failed', failure })
  }

  /**
   * Stores what the commit is asked for, before any instance acts on it. Throws RefusedError ConfigurationMismatch when another
   * instance was asked for a different commit.
   * @param until gives it up: StoppedError then
   * @returns how many commits have been aborted so far: an abort that follows is of this one
   */
  async request(request: CommitRequest, until?: AbortSignal): Promise<number> {
    const { store, liveness, id } = this.#parts
    const [seen, sync] = await Promise.all([liveness.instances().catch(() => null), store.load(until)])
    const known = sync.context.request
    const others = seen?.filter((one) => one.alive && one.id !== id)
    // An instance may have stored it and died, or been refused, before it began the commit. Where there are others it may also just
    // be beginning: a rehearsal that another instance takes for a commit would open the destination.
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
    // A release that stored no request had begun the commit that is under way.
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
   * Aborts the commit before which so many had been aborted. May be repeated.
   * @param why and, for a command, what gives it up: StoppedError then
   * @returns false when it is too late: the commit is decided
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

  /** Resolves when changes may be applied. Throws StoppedError when none ever may again in this direction: the commit is decided. */
  async untilApplicable(signal: AbortSignal): Promise<void> {
    for (;;) {
      const sync = await this.#parts.store.load()
      if (sync.hasTag('applicable')) return
      if (sync.hasTag('decided')) throw new StoppedError()
      await this.wait(signal)
    }
  }

  /** Resolves when every instance that is there is COMMITTING; for the coordinator, which is. */
  async gathered(signal: AbortSignal): Promise<void> {
    while (!(await this.allAre('COMMITTING'))) await this.wait(signal)
  }

  /**
   * Before the coordinator finishes a commit: all others have given back what they apply, and nobody can begin anew, for whoever
   * finishes owns every partition. One that comes only now is waited for: it gets the commit too.
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

  /** Every instance that is there has got the command that leads to this state. */
  async allAre(state: PublicState): Promise<boolean> {
    const { coordination, liveness, id } = this.#parts
    const seen = await liveness.instances().catch((error) => {
      if (error instanceof FatalError) throw error
      return null // it does not answer now; a commit can wait
    })
    if (!seen) return false
    // Who is not heard of but has a lease still works on what it owns.
    const there = new Set(coordination.members)
    // One that was stopped is heard of for a while; a commit does not wait for it. (After one nobody has a lease any more.)
    const hasLeft = (one: string): boolean => state === 'COMMITTING' && coordination.hasLeft(one)
    for (const one of seen) if (one.alive && !hasLeft(one.id)) there.add(one.id)
    for (const one of seen) if (one.alive && one.progress.state === state) there.delete(one.id)
    there.delete(id)
    this.waitingFor = [...there].sort()
    return this.waitingFor.length === 0
  }

  /** The instances at a commit know of it, and the stored sync does not, which a release that stored no request had begun. */
  async requestAgain(abortsBefore: number, dryRun: boolean): Promise<void> {
    const request = { dryRun, maxSeconds: null, at: Date.now() }
    await this.#parts.store.send({ type: 'commit.requested', request, replaces: null, abortsBefore })
  }

  /** Resolves at the next change of who does what, and soon in any case. Throws StoppedError when told to stop. */
  async wait(signal: AbortSignal): Promise<void> {
    if (signal.aborted) throw new StoppedError()
    // Not by AbortSignal.any: the signal lives as long as the sync, and would keep what hangs on it.
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
