import { setTimeout as sleep } from 'node:timers/promises'
import type { WorkerReport } from '../../machines/protocol.ts'
import type { SyncStep } from '../../machines/sync.ts'
import type { CoordinatorReport } from '../../machines/sync-context.ts'
import { type SyncSnapshot, stepOf } from '../../machines/sync-view.ts'
import { deferred } from '../domain/deferred.ts'
import { StoppedError } from '../domain/errors.ts'
import type { SyncWork } from './sync-work.ts'

/** Where an instance is in a commit: it has got the commit; all changes up to the commit point are applied here. */
export type CommitPart = 'committing' | 'arrived' | null

export interface SyncFollowerParts {
  work: SyncWork
  part: () => CommitPart
  /** The commit that this instance was asked for. */
  asked: () => { abortsBefore: number; dryRun: boolean }
  /** Resolves when everything that was left has ended. */
  ended: () => Promise<unknown>
  /** Resolves when what the instance has come to is stored. */
  storing: () => Promise<void>
  report: (report: WorkerReport) => void
  /** What ends a step unforeseen. */
  onFault: (error: unknown) => void
}

/** Does what the coordinator has to do at a step; resolves with its report. Told to stop by the signal, it rejects with StoppedError. */
export type StepWork = (left: AbortSignal) => Promise<CoordinatorReport>

/** So often an instance that rests, and coordinates, looks whether there is a commit to undo. */
const restMS = 500
/** After a step that failed it waits twice as long each time, up to this. */
const restMaxMS = 30_000

/** The part of a commit in which the coordinator's own instance has to be before it begins a step. */
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
 * Follows the sync machine's stored state for one instance: tells the instance's machine, and does, one at a time, the steps that
 * the state names while this instance coordinates. A step is told to stop when the state has left it.
 */
export class SyncFollower {
  readonly #parts: SyncFollowerParts
  readonly #left: AbortSignal
  #step: { key: string; left: AbortController } | null = null
  #wake = deferred<void>()
  /** Failures of commits that this instance had no part in, or knows of. */
  #failures: number | null = null
  /** Steps that failed one after another. */
  #faults = 0

  constructor(parts: SyncFollowerParts, left: AbortSignal) {
    this.#parts = parts
    this.#left = left
    left.addEventListener('abort', () => this.#step?.left.abort(), { once: true })
  }

  /** Until left. Rejects with StoppedError when the lease is lost. */
  async run(): Promise<void> {
    const { work, ended } = this.#parts
    await new Promise((resolve) => setImmediate(resolve))
    // A lease that was lost is not taken again before everything has ended by which its last term could write as well.
    if (!work.lease.held) await ended()
    if (this.#left.aborted) return
    await work.lead()
    while (!this.#left.aborted) {
      this.#wake = deferred()
      const sync = await work.team.load()
      if (this.#left.aborted) return
      this.#tell()
      await this.#coordinate(sync)
      await Promise.race([work.team.wait(this.#left), this.#wake.promise])
    }
  }

  /** Only tells; for an instance that has failed. */
  async watch(): Promise<void> {
    const { team } = this.#parts.work
    while (!this.#left.aborted) {
      await team.load()
      if (this.#left.aborted) return
      this.#tell()
      await team.wait(this.#left)
    }
  }

  /**
   * Undoes an aborted commit, whose users wait for the source, also for an instance that is paused or has failed: it coordinates only
   * where no other is at work. After a fault the same begins again. `idle` is called while there is nothing to undo.
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

  #tell(): void {
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
      // Nothing is applied here any more; the instance that finishes the commit takes all of it.
      if (part() === 'arrived' && coordination.held.size > 0) await work.yieldAll()
      if (part() === 'committing' && sync.matches({ committing: 'gathering' })) await team.allAre('COMMITTING')
      return
    }
    const current = await team.elected()
    const { term, attempt, aborts } = current.context
    // Another instance has been elected since.
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
    const { work, storing, onFault } = this.#parts
    const { team } = work
    const { worked } = team
    const left = new AbortController()
    this.#step = { key, left }
    const run = async (): Promise<void> => {
      // A restart must know what it may find done.
      await storing()
      if (left.signal.aborted) return
      const report = await work.steps[name](left.signal)
      // Also where it has been told to stop meanwhile: the stored state decides whether this still counts.
      await team.report(report, worked)
      this.#faults = 0
    }
    run()
      .catch((error) => {
        // Of a step that was left it is no news.
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
