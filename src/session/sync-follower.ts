import { setTimeout as sleep } from 'node:timers/promises'
import type { WorkerReport } from '../../machines/protocol.ts'
import type { SyncStep } from '../../machines/sync.ts'
import { type SyncSnapshot, stepOf } from '../../machines/sync-view.ts'
import { deferred } from '../domain/deferred.ts'
import { StoppedError } from '../domain/errors.ts'
import type { SyncSession } from './sync-session.ts'

/**
 * How far an instance is in a commit. `committing`: it has received the commit. `arrived`: it has applied all changes
 * up to the commit timestamp. Null: it takes part in no commit.
 */
export type CommitPart = 'committing' | 'arrived' | null

export interface SyncFollowerParts {
  work: SyncSession
  part: () => CommitPart
  /** The commit that this instance was asked for. */
  asked: () => { abortsBefore: number; dryRun: boolean }
  /** Resolves when all runs that were left have ended. */
  ended: () => Promise<unknown>
  /** Resolves when the instance's context is stored. */
  storing: () => Promise<unknown>
  report: (report: WorkerReport) => void
  /** Called with an error that ended a step. */
  onFault: (error: unknown) => void
}

/** How often a coordinator that rests checks whether a commit has to be undone, ms. */
const restMS = 500
/** The interval doubles after each failed step, up to this, ms. */
const restMaxMS = 30_000

/** How far the coordinator's own instance must be in the commit before a step begins. */
const needs: Partial<Record<SyncStep, CommitPart>> = {
  gather: 'committing',
  takePoint: 'committing',
  applyAll: 'arrived',
  prepare: 'arrived',
  verify: 'arrived',
  decide: 'arrived',
  open: 'arrived',
  convert: 'arrived',
}

/**
 * Follows the sync machine's stored state for one instance. It reports the state to the instance machine. While this
 * instance coordinates, it also does the steps that the state names, one at a time. A step is stopped when the state
 * has left it.
 */
export class SyncFollower {
  readonly #parts: SyncFollowerParts
  readonly #left: AbortSignal
  #step: { key: string; left: AbortController } | null = null
  #wake = deferred<void>()
  /** Number of failed commit attempts that this instance had already read; null before the first read. */
  #failures: number | null = null
  /** Number of steps that failed in a row. */
  #faults = 0

  constructor(parts: SyncFollowerParts, left: AbortSignal) {
    this.#parts = parts
    this.#left = left
    left.addEventListener('abort', () => this.#step?.left.abort(), { once: true })
  }

  /** Runs until left. Rejects with StoppedError when the lease is lost. */
  async run(): Promise<void> {
    const { work, ended } = this.#parts
    await new Promise((resolve) => setImmediate(resolve))
    // A lost lease is not taken again before all work that could write under its last term has ended.
    if (!work.lease.held) await ended()
    if (this.#left.aborted) return
    await work.lead()
    while (!this.#left.aborted) {
      this.#wake = deferred()
      const sync = await work.team.load()
      if (this.#left.aborted) return
      this.#reportState()
      await this.#coordinate(sync)
      await Promise.race([work.team.wait(this.#left), this.#wake.promise])
    }
  }

  /** Only reports the state; used by an instance that has failed. */
  async watch(): Promise<void> {
    const { team } = this.#parts.work
    while (!this.#left.aborted) {
      await team.load()
      if (this.#left.aborted) return
      this.#reportState()
      await team.wait(this.#left)
    }
  }

  /**
   * Undoes an aborted commit while this instance is paused or has failed, because users wait for the source. Such an
   * instance coordinates only when no other is at work. A step that failed is repeated. `idle` is called while there is
   * nothing to undo.
   */
  async rest(idle: () => void): Promise<void> {
    const { coordination, team } = this.#parts.work
    while (!this.#left.aborted) {
      const sync = coordination.leading ? await team.load() : null
      if (sync?.matches('undoing')) await this.#coordinate(sync)
      else {
        this.#step?.left.abort()
        idle()
      }
      await sleep(Math.min(restMS * 2 ** this.#faults, restMaxMS), undefined, { signal: this.#left }).catch(() => {})
    }
  }

  #reportState(): void {
    const { work, report, part } = this.#parts
    const { view } = work.team
    report({ type: 'sync.seen', sync: view })
    const { failures, failure } = view
    const isOurs = part() !== null && this.#failures !== null && failures > this.#failures
    this.#failures = failures
    if (isOurs && failure) report({ type: 'worker.failed', failure })
  }

  async #coordinate(sync: SyncSnapshot): Promise<void> {
    const { work, part, asked } = this.#parts
    const { coordination, team } = work
    if (this.#left.aborted) return
    if (!coordination.leading) {
      this.#step?.left.abort()
      // This instance no longer applies events, and the coordinator needs all partitions to finish the commit.
      if (part() === 'arrived' && coordination.held.size > 0) await work.yieldAll()
      if (part() === 'committing' && sync.matches({ committing: 'gathering' })) await team.allAre('COMMITTING')
      return
    }
    const current = await team.elected()
    const { term, attempt, aborts } = current.context
    // Another instance was elected in the meantime.
    if (this.#left.aborted || term !== team.worked.term) return
    const { abortsBefore, dryRun } = asked()
    if (part() === 'committing' && current.matches('replicating') && aborts === abortsBefore) {
      return await team.requestAgain(abortsBefore, dryRun)
    }
    const name = stepOf(current)
    const key = `${name} ${attempt} ${term} ${aborts}`
    if (this.#step && this.#step.key !== key) this.#step.left.abort()
    const need = name && (needs[name] ?? null)
    if (this.#step || !name || (need && part() !== need)) return
    this.#begin(name, key)
  }

  #begin(name: SyncStep, key: string): void {
    const { work, asked, storing, onFault } = this.#parts
    const { team } = work
    const { worked } = team
    const left = new AbortController()
    this.#step = { key, left }
    const run = async (): Promise<void> => {
      // The context is stored first, so that a restart knows what may already be done.
      await storing()
      if (left.signal.aborted) return
      const report = await work.steps[name](left.signal, asked().dryRun)
      // Reported even if the step was stopped in the meantime: the stored state decides whether the report takes
      // effect.
      await team.report(report, worked)
      this.#faults = 0
    }
    run()
      .catch((error) => {
        // An error of a step that was left is of no interest.
        if (left.signal.aborted || error instanceof StoppedError) return
        this.#faults += 1
        onFault(error)
      })
      .finally(() => {
        this.#step = null
        this.#wake.resolve()
      })
  }
}
