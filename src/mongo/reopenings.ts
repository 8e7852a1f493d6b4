import { setTimeout as sleep } from 'node:timers/promises'
import { FatalError, StoppedError } from '../domain/errors.ts'
import type { RetryContext } from './retry.ts'

export interface ReopeningLimits {
  /** Cursors opened since the position last advanced. */
  openings: number
  /** Time since the first of them was lost, ms. */
  withinMS: number
}

/**
 * As long as an unreachable cluster is waited for (`retry`): a network that cuts every connection within seconds is no better.
 * The count keeps one opening that takes very long from being taken for many.
 */
const defaultLimits: ReopeningLimits = { openings: 20, withinMS: 30 * 60_000 }
const firstDelayMS = 50
const longestDelayMS = 2_000

/**
 * Counts how often a change stream was opened again without any progress between. `retry` alone cannot: it sees the successful
 * opening, and forgets that the same stream was opened, and lost, a moment ago.
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

  /** An open cursor is of no use any more. */
  lost(reason: unknown): void {
    this.#reason = reason
    this.#lostAt ??= performance.now()
    // `retry` shows the first one until the stream is open again.
    if (this.#openings < 2) return
    const message = reason instanceof Error ? reason.message : String(reason)
    this.#context.monitor.begin(this.#key, 'reading the change stream', message)
  }

  /** Before a cursor is opened: waits the longer, the more were opened in vain. Throws FatalError ChangeStreamStalled. */
  async opening(): Promise<void> {
    const { openings, withinMS } = this.#limits
    if (this.#lostAt !== null && this.#openings >= openings && performance.now() - this.#lostAt >= withinMS) {
      const reason = this.#reason instanceof Error ? this.#reason.message : String(this.#reason)
      throw new FatalError(
        'ChangeStreamStalled',
        `reading the change stream: opened ${this.#openings} times at one position without advancing (last: ${reason}). ` +
          'Repair the cluster or the router that ends the stream, then send resume.',
        { cause: this.#reason },
      )
    }
    // `retry` has waited already before the first one is opened again.
    if (this.#openings < 2) return
    const delayMS = Math.min(firstDelayMS * 2 ** (this.#openings - 1), longestDelayMS)
    const { signal } = this.#context
    await sleep(delayMS, undefined, { signal }).catch(() => {})
    if (signal.aborted) throw new StoppedError()
  }

  opened(): void {
    this.#openings += 1
  }

  /** The position has advanced: what was lost before counts no more. */
  advanced(): void {
    this.#openings = 1
    this.#lostAt = null
    this.end()
  }

  end(): void {
    this.#context.monitor.end(this.#key)
  }
}
