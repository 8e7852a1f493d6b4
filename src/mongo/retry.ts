import { setTimeout as sleep } from 'node:timers/promises'
import { addCircumstances } from '../domain/circumstances.ts'
import { unreachableText } from '../domain/error-text.ts'
import { FatalError, StoppedError } from '../domain/errors.ts'
import type { Journal } from '../domain/journal.ts'
import { notLost } from '../domain/not-lost.ts'
import type { WorkMeter } from '../domain/work-meter.ts'
import { isTransient, toFatal } from './errors.ts'

/**
 * Records what is being retried, for `progress.retrying`. Several modules may retry at the same time. The oldest retry is
 * shown.
 */
export class RetryMonitor {
  readonly #active = new Map<symbol, { what: string; since: Date }>()

  begin(key: symbol, what: string): void {
    const known = this.#active.get(key)
    this.#active.set(key, { what, since: known?.since ?? new Date() })
  }

  end(key: symbol): void {
    this.#active.delete(key)
  }

  get current(): { what: string; since: string } | undefined {
    let oldest: { what: string; since: Date } | undefined
    for (const entry of this.#active.values()) if (!oldest || entry.since < oldest.since) oldest = entry
    return oldest ? { what: oldest.what, since: oldest.since.toISOString() } : undefined
  }
}

export interface RetryContext {
  monitor: RetryMonitor
  signal: AbortSignal
  /** Called for each failed attempt, for the log. */
  onRetry?: (what: string, error: unknown) => void
  /** Receives everything else that is worth logging. */
  journal?: Journal
  /** Counts and times the work, for the metrics and the log. */
  meter?: WorkMeter
}

const firstDelayMS = 50
const longestDelayMS = 2_000
/**
 * mongosync 1.18 gives up on an unreachable cluster after 30 minutes. tandem does the same: the state becomes FAILED, and
 * the sync can be resumed. The monotonic clock measures the minutes, because a step of the wall clock must neither end the
 * attempts nor prolong them. This clock does not advance while the machine is suspended. tandem makes no attempt then.
 */
const budgetMS = 30 * 60_000
/** An attempt that fails after it has run longer than this, in ms, restarts the budget. */
const workedMS = 60_000

/**
 * Reports that a part of the work has succeeded.
 * @param kept true if the next attempt continues after that part. If it is false, the next attempt starts from the
 * beginning, and the 30 minutes keep running.
 */
export type Progressed = (kept: boolean) => void

/**
 * Runs idempotent `work` until it succeeds. Transient errors are retried with increasing delay for up to 30 minutes.
 * Any other error is thrown at once, as FatalError if the operator can act on it. Throws StoppedError once the signal
 * is aborted. Work of many parts calls `progressed` for each part that succeeds, so that earlier failures are no longer
 * shown.
 */
export async function retry<T>(
  what: string,
  context: RetryContext,
  work: (progressed: Progressed) => Promise<T>,
): Promise<T> {
  // The signal is read once, here. Each lease term sets a new signal in the context, and work that began in one term
  // must not be retried in the next term.
  const { signal } = context
  const streak = new FailureStreak(what, context)
  try {
    for (;;) {
      if (signal.aborted) throw new StoppedError()
      const attemptedAt = performance.now()
      try {
        const result = await work((kept) => streak.succeeded(kept))
        streak.succeeded(true)
        return result
      } catch (error) {
        if (signal.aborted) throw new StoppedError()
        if (!isTransient(error)) {
          addCircumstances(error, { step: what })
          throw toFatal(what, error)
        }
        // An attempt that ran for a while before it failed proves that the earlier failures are over.
        if (performance.now() - attemptedAt > workedMS) streak.restartBudget()
        streak.failed(error)
        await sleep(streak.delayMS(), undefined, { signal }).catch(() => {})
      }
    }
  } finally {
    streak.end()
  }
}

/** The failures of one `retry` since its last success. */
class FailureStreak {
  readonly #what: string
  readonly #context: RetryContext
  readonly #key: symbol
  /** When the time budget began, by `performance.now()`; null while no failure counts against it. */
  #budgetBegunAt: number | null = null
  /** When the first failure since the last success happened, by `performance.now()`. */
  #firstFailedAt = 0
  #attempts = 0
  #delayMS = firstDelayMS

  constructor(what: string, context: RetryContext) {
    this.#what = what
    this.#context = context
    this.#key = Symbol(what)
  }

  /** Throws FatalError ClusterUnreachable when the time budget is exhausted. */
  failed(error: unknown): void {
    const { monitor, meter, onRetry } = this.#context
    if (meter) meter.retries += 1
    monitor.begin(this.#key, this.#what)
    onRetry?.(this.#what, error)
    const now = performance.now()
    if (this.#attempts === 0) this.#firstFailedAt = now
    this.#attempts += 1
    this.#budgetBegunAt ??= now
    if (now - this.#budgetBegunAt <= budgetMS) return
    throw new FatalError(
      'ClusterUnreachable',
      `${this.#what}: no success for ${budgetMS / 60_000} minutes; ${unreachableText(error)}. Fix the cluster or the network, ` +
        `then send resume. ${notLost.progress}`,
      { cause: error },
    )
  }

  /** The delay before the next attempt. It increases each time. */
  delayMS(): number {
    const delayMS = this.#delayMS
    this.#delayMS = Math.min(delayMS * 2, longestDelayMS)
    return delayMS
  }

  /** Called when a part of the work has succeeded: `progress.retrying` no longer shows this retry. */
  succeeded(kept: boolean): void {
    if (kept) this.restartBudget()
    if (this.#attempts === 0) return
    const seconds = (performance.now() - this.#firstFailedAt) / 1_000
    this.#context.journal?.('retry ended', { what: this.#what, attempts: this.#attempts, seconds })
    this.#attempts = 0
    this.end()
  }

  /** The time budget begins again with the next failure, and the delays begin again with the shortest. */
  restartBudget(): void {
    this.#budgetBegunAt = null
    this.#delayMS = firstDelayMS
  }

  end(): void {
    this.#context.monitor.end(this.#key)
  }
}
