import { setTimeout as sleep } from 'node:timers/promises'
import { StoppedError } from '../domain/errors.ts'

/** Longer timers overflow; the wait goes on after it. */
const sleepMaxMS = 3_600_000

/**
 * A rate in bytes per second over all who spend. Spending is told afterwards, and whoever wants to spend next waits until what
 * was spent is earned: the size of a batch is known only when it is there.
 */
export class Pace {
  #bytesPerSecond: number | null = null
  /** Milliseconds of performance.now(), at which everything spent is earned. */
  #earnedAt = 0
  #changed = new AbortController()

  get bytesPerSecond(): number | null {
    return this.#bytesPerSecond
  }

  /** Takes effect at once, for those who wait as well: they owe what they spent at the new rate. */
  set(bytesPerSecond: number | null): void {
    if (bytesPerSecond === this.#bytesPerSecond) return
    const now = performance.now()
    const owed = this.#bytesPerSecond ? (Math.max(0, this.#earnedAt - now) / 1_000) * this.#bytesPerSecond : 0
    this.#earnedAt = bytesPerSecond ? now + (owed / bytesPerSecond) * 1_000 : 0
    this.#bytesPerSecond = bytesPerSecond
    this.#changed.abort()
    this.#changed = new AbortController()
  }

  spend(bytes: number): void {
    if (!this.#bytesPerSecond) return
    this.#earnedAt = Math.max(this.#earnedAt, performance.now()) + (bytes / this.#bytesPerSecond) * 1_000
  }

  /** Rejects with StoppedError when `signal` is aborted meanwhile. */
  async earned(signal: AbortSignal): Promise<void> {
    for (;;) {
      if (signal.aborted) throw new StoppedError()
      const left = this.#earnedAt - performance.now()
      if (!this.#bytesPerSecond || left <= 0) return
      const woken = AbortSignal.any([signal, this.#changed.signal])
      await sleep(Math.min(left, sleepMaxMS), undefined, { signal: woken }).catch(() => {})
    }
  }
}
