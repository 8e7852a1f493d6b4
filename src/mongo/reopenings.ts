import { setTimeout as sleep } from 'node:timers/promises'
import { errorText } from '../domain/error-text.ts'
import { FatalError, StoppedError } from '../domain/errors.ts'
import { notLost } from '../domain/not-lost.ts'
import type { RetryContext } from './retry.ts'

export interface ReopeningLimits {
  /** The number of cursors opened since the stream last advanced, including the cursor that advanced it. */
  openings: number
  /** The time since the first of these cursors was lost, in ms. */
  withinMS: number
}

/**
 * The sync fails when both limits are reached. The time equals the limit of `retry` for an unreachable cluster, because
 * a network that cuts every connection within seconds is no better than one that refuses connections. The count
 * prevents one very slow opening from exhausting the time.
 */
const defaultLimits: ReopeningLimits = { openings: 20, withinMS: 30 * 60_000 }
const firstDelayMS = 50
const longestDelayMS = 2_000

/**
 * Counts how often a change stream was reopened without progress. `retry` cannot count this: for `retry` each opening
 * is a success, even if the stream was lost a moment later.
 */
export class Reopenings {
  readonly #context: RetryContext
  readonly #limits: ReopeningLimits
  readonly #key = Symbol('reopening the change stream')
  #openings = 0
  #lostAt: number | null = null
  #reason: unknown = null

  constructor(context: RetryContext, limits: ReopeningLimits = defaultLimits) {
    this.#context = context
    this.#limits = limits
  }

  /** Called when a cursor cannot be opened, or is no longer usable. */
  lost(reason: unknown): void {
    this.#reason = reason
    this.#lostAt ??= performance.now()
    // The first loss is not shown here: `retry` shows it until the stream is open again.
    if (this.#openings < 2) return
    this.#context.monitor.begin(this.#key, 'reading the change stream')
  }

  /**
   * Called before a cursor is opened. Waits longer after each opening without progress. Throws FatalError
   * ChangeStreamStalled when both limits are reached.
   */
  async opening(): Promise<void> {
    const { openings, withinMS } = this.#limits
    if (this.#lostAt !== null && this.#openings >= openings && performance.now() - this.#lostAt >= withinMS) {
      const reason = errorText(this.#reason)
      throw new FatalError(
        'ChangeStreamStalled',
        `reading the change stream: opened ${this.#openings} times at one position without advancing (last error: ${reason}). ` +
          `Repair the cluster or the router that ends the stream, then send resume. ${notLost.progress}`,
        { cause: this.#reason },
      )
    }
    // `retry` has already waited before the first reopening.
    if (this.#openings < 2) return
    const delayMS = Math.min(firstDelayMS * 2 ** (this.#openings - 1), longestDelayMS)
    const { signal } = this.#context
    await sleep(delayMS, undefined, { signal }).catch(() => {})
    if (signal.aborted) throw new StoppedError()
  }

  opened(): void {
    this.#openings += 1
  }

  /** The position has advanced, so earlier losses no longer count. */
  advanced(): void {
    this.#openings = 1
    this.#lostAt = null
    this.end()
  }

  end(): void {
    this.#context.monitor.end(this.#key)
  }
}
