import { setTimeout as sleep } from 'node:timers/promises'
import { duringAny } from '../domain/during-any.ts'
import { StoppedError } from '../domain/errors.ts'

/** Maximum duration of one timer, far below that at which timers of Node.js overflow. A longer wait uses several. */
const sleepMaxMS = 3_600_000

/**
 * Limits the rate of all callers together, in bytes per second. Bytes are charged after they were read, because the size
 * of a batch is not known before. The next caller waits until enough time has passed for the charged bytes to be within
 * the rate.
 */
export class Pace {
  #bytesPerSecond: number | null = null
  /** The time, in ms of performance.now(), at which everything charged so far is within the rate. */
  #earnedAt = 0
  #changed = new AbortController()

  get bytesPerSecond(): number | null {
    return this.#bytesPerSecond
  }

  /** Takes effect at once: callers that already wait continue at the new rate. */
  set(bytesPerSecond: number | null): void {
    if (bytesPerSecond === this.#bytesPerSecond) return
    const now = performance.now()
    const owed = this.#bytesPerSecond ? (Math.max(0, this.#earnedAt - now) / 1_000) * this.#bytesPerSecond : 0
    this.#earnedAt = bytesPerSecond ? now + (owed / bytesPerSecond) * 1_000 : 0
    this.#bytesPerSecond = bytesPerSecond
    this.#changed.abort()
    this.#changed = new AbortController()
  }

  /** Charges bytes that were read. */
  spend(bytes: number): void {
    if (!this.#bytesPerSecond) return
    this.#earnedAt = Math.max(this.#earnedAt, performance.now()) + (bytes / this.#bytesPerSecond) * 1_000
  }

  /**
   * Resolves when all bytes charged so far are within the rate. Rejects with StoppedError when `signal` is aborted
   * first.
   */
  async earned(signal: AbortSignal): Promise<void> {
    for (;;) {
      if (signal.aborted) throw new StoppedError()
      const remaining = this.#earnedAt - performance.now()
      if (!this.#bytesPerSecond || remaining <= 0) return
      await duringAny([signal, this.#changed.signal], async (woken) => {
        await sleep(Math.min(remaining, sleepMaxMS), undefined, { signal: woken }).catch(() => {})
      })
    }
  }
}
