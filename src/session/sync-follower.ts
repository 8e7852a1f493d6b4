import { setTimeout as sleep } from 'node:timers/promises'
import type { WorkerReport } from '../../machines/protocol.ts'
import type { SyncStep } from '../../machines/sync.ts'
import { canBeAborted, type SyncSnapshot, stepOf } from '../../machines/sync-view.ts'
import { deferred } from '../domain/deferred.ts'
import { type Failure, StoppedError } from '../domain/errors.ts'
import { CommitLimit, limitReason, type OwnLimit } from './commit-limit.ts'
import type { SyncSession } from './sync-session.ts'

/**
 * How far an instance is in a commit. `committing`: it has received the commit. `arrived`: it has applied all changes
 * up to the commit timestamp. Null: it takes part in no commit.
 */
export type CommitPart = 'committing' | 'arrived' | null

export interface SyncFollowerParts {
  session: SyncSession
  part: () => CommitPart
  /** The commit that this instance has received. */
  asked: () => OwnLimit & { dryRun: boolean; failure: Failure | null }
  /** Resolves when all runs that the machine has left have ended. */
  ended: () => Promise<unknown>
  /** Resolves when the instance's context is stored. */
  storing: () => Promise<unknown>
  report: (report: WorkerReport) => void
  /** Called with an error that ended a step. */
  onFault: (error: unknown) => void
}

/** The longest wait while nothing is to be done, ms. The next round of the coordination usually ends it earlier. */
const quietMS = 1_500
/** How often a paused or failed coordinator checks whether a commit has to be undone, ms. */
const idlePollMS = 500
/** The interval doubles after each failed step, up to this, ms. */
const idlePollMaxMS = 30_000

/** How far the coordinator's own instance must have come in the commit before a step begins. */
const needs: Partial<Record<SyncStep, CommitPart>> = {
  gather: 'committing',
  takeCommitTimestamp: 'committing',
  applyAll: 'arrived',
  prepare: 'arrived',
  verify: 'arrived',
  decide: 'arrived',
  open: 'arrived',
  convert: 'arrived',
}

/**
 * Follows the sync machine's stored state for one instance and reports the state to the instance machine. While this
 * instance coordinates, it also performs the steps that the state names, one at a time. It stops a step when the sync
 * machine has left that state.
 */
export class SyncFollower {
  readonly #parts: SyncFollowerParts
  readonly #signal: AbortSignal
  readonly #limit: CommitLimit
  #step: { key: string; controller: AbortController } | null = null
  #wake = deferred<void>()
  /** True when the report of a step has just returned the stored state. */
  #reported = false
  /** How far this instance was when the state was read last; undefined before the first read. */
  #part: CommitPart | undefined
  /** The revision of the state that was reported last; null before the first report. */
  #reportedRevision: number | null = null
  /** Number of failed commit attempts in the state that was read last; null before the first read. */
  #failures: number | null = null
  /** Number of steps that failed in a row. */
  #faults = 0

  constructor(parts: SyncFollowerParts, signal: AbortSignal) {
    this.#parts = parts
    this.#limit = new CommitLimit(() => parts.session.destination.latest)
    this.#signal = signal
    signal.addEventListener('abort', () => this.#step?.controller.abort(), { once: true })
  }

  /** Runs until `signal` is aborted. Rejects with StoppedError when the lease is lost. */
  async run(): Promise<void> {
    const { session, ended, part } = this.#parts
    await new Promise((resolve) => setImmediate(resolve))
    // A lost lease is not taken again before all work that could write under the last term has ended.
    if (!session.lease.held) await ended()
    if (this.#signal.aborted) return
    await session.joinElection()
    while (!this.#signal.aborted) {
      this.#wake = deferred()
      // The next step of a commit begins without reading the state again if the last report has just returned it, or if
      // the step only waited for this instance.
      const isKnown = this.#reported || (this.#part !== undefined && this.#part !== part())
      this.#reported = false
      const { isCurrent } = session.peers
      const sync = isKnown ? session.peers.sync : await session.firstState()
      this.#part = part()
      if (this.#signal.aborted) return
      this.#reportState()
      await this.#coordinate(sync)
      await Promise.race([session.peers.wait(this.#signal, isCurrent ? quietMS : undefined), this.#wake.promise])
    }
  }

  /**
   * Reports the state, for an instance that has failed in a commit. Enforces the time limit of the commit, and ends a
   * rehearsal, so that the source does not stay blocked until the operator acts.
   * @param succeeded called after each round
   */
  async watch(succeeded: () => void): Promise<void> {
    const { peers, coordination } = this.#parts.session
    while (!this.#signal.aborted) {
      const sync = await peers.load()
      if (this.#signal.aborted) return
      this.#reportState()
      await this.#failRehearsal(sync)
      if (coordination.leading) await this.#abortLate(sync)
      succeeded()
      await peers.wait(this.#signal)
    }
  }

  /**
   * Undoes an aborted commit while this instance is paused or has failed, because users wait until they can write on
   * the source. First aborts a commit whose time limit has passed. Such an instance coordinates only when no other
   * instance is running. A failed step is repeated. Calls `idle` while there is nothing to undo. Before collections are
   * converged again, the coordinator waits until this instance has stopped, so this instance releases its partitions.
   */
  async undoWhileIdle(idle: () => void): Promise<void> {
    const { session } = this.#parts
    const { coordination, peers, lease } = session
    // XState enters the state of this actor before it stops the actors of the state that was left.
    await new Promise((resolve) => setImmediate(resolve))
    while (!this.#signal.aborted) {
      const sync = coordination.leading ? await peers.load() : lease.held ? await peers.load().catch(() => null) : null
      if (sync && coordination.leading) await this.#abortLate(sync)
      if (sync?.matches('undoing') && coordination.leading) await this.#coordinate(sync)
      else if (sync?.matches('replanning') && !coordination.leading) {
        await session.stopFor(sync.context.convergences, this.#signal)
      } else {
        this.#step?.controller.abort()
        idle()
      }
      await sleep(Math.min(idlePollMS * 2 ** this.#faults, idlePollMaxMS), undefined, { signal: this.#signal }).catch(
        () => {},
      )
    }
  }

  /**
   * Called by the coordinator. Aborts a commit whose time limit has passed.
   * @returns true when it was aborted
   */
  async #abortLate(sync: SyncSnapshot): Promise<boolean> {
    const { session, asked, part } = this.#parts
    if (!this.#limit.isExceeded(sync, asked())) return false
    const { failure, aborts } = sync.context
    const reason = limitReason(session, failure, part() !== null)
    return await session.peers.abort(aborts, { reason })
  }

  async #failRehearsal(sync: SyncSnapshot): Promise<void> {
    const { session, asked } = this.#parts
    const { abortsBefore, dryRun, failure } = asked()
    const { aborts, request } = sync.context
    const isRehearsal = dryRun || request?.dryRun === true
    if (!isRehearsal || failure === null || aborts !== abortsBefore || !canBeAborted(sync)) return
    await session.commit.failRehearsal(abortsBefore, failure)
  }

  #reportState(): void {
    const { session, report, part } = this.#parts
    const { view } = session.peers
    session.verification.observed(view.convergences)
    // A state without a new revision is the same. For the machine's guards, a repeated report would change nothing.
    if (view.revision === this.#reportedRevision) return
    this.#reportedRevision = view.revision
    report({ type: 'sync.observed', sync: view })
    const { failures, failure } = view
    const isOurs = part() !== null && this.#failures !== null && failures > this.#failures
    this.#failures = failures
    if (isOurs && failure) report({ type: 'worker.failed', failure })
  }

  async #coordinate(sync: SyncSnapshot): Promise<void> {
    const { session, part, asked } = this.#parts
    const { coordination, peers } = session
    if (this.#signal.aborted) return
    if (!coordination.leading) {
      this.#step?.controller.abort()
      if (sync.matches('replanning')) return await session.stopFor(sync.context.convergences, this.#signal)
      // This instance no longer applies events, and the coordinator needs all partitions in order to finish the commit.
      if (part() === 'arrived' && coordination.held.size > 0) await session.yieldAll()
      if (part() === 'committing' && sync.matches({ committing: 'gathering' })) await peers.allAre('COMMITTING')
      return
    }
    const current = await peers.elected()
    const { term, attempt, aborts, convergences } = current.context
    // Another instance was elected in the meantime.
    if (this.#signal.aborted || term !== peers.worked.term) return
    // The server creates collections and indexes one after the other, so these come after the write above.
    session.metadataIndexes.create()
    if (await this.#abortLate(current)) return this.#wake.resolve()
    const { abortsBefore, dryRun } = asked()
    if (part() === 'committing' && current.matches('replicating') && aborts === abortsBefore) {
      return await peers.requestAgain(abortsBefore, dryRun)
    }
    const name = stepOf(current)
    const key = `${name} ${attempt} ${term} ${aborts} ${convergences}`
    if (this.#step && this.#step.key !== key) this.#step.controller.abort()
    const need = name && (needs[name] ?? null)
    if (this.#step || !name || (need && part() !== need)) return
    this.#begin(name, key)
  }

  #begin(name: SyncStep, key: string): void {
    const { session, asked, storing, onFault } = this.#parts
    const { peers } = session
    const { worked } = peers
    const controller = new AbortController()
    this.#step = { key, controller }
    const run = async (): Promise<void> => {
      // The context is stored first, so that a restart knows which step may have begun.
      await storing()
      if (controller.signal.aborted) return
      const report = await session.steps[name](controller.signal, asked().dryRun)
      // Reported even if the step was stopped in the meantime, because the stored state decides whether the report
      // takes effect.
      await peers.report(report, worked)
      this.#reported = true
      this.#faults = 0
      // The next read of the state may already be under way, and this instance need not wait for it.
      if (!this.#signal.aborted) this.#reportState()
    }
    run()
      .catch((error) => {
        // The error of a step that was left is ignored.
        if (controller.signal.aborted || error instanceof StoppedError) return
        this.#faults += 1
        onFault(error)
      })
      .finally(() => {
        this.#step = null
        this.#wake.resolve()
      })
  }
}
