/** Minimum milliseconds between two rises of the level, so that the effect of one level is measured before the next. */
const riseAfterMS = 3_000
/** Milliseconds without overload after which the level falls by one. */
const fallAfterMS = 10_000
const levelMax = 7

/**
 * Slows bulk writes down while the destination is overloaded. Level 0 is full speed. Each level halves the number of
 * parallel writes. When one write is left, each further level halves the rate instead, by a pause after each write. The
 * level rises quickly and falls slowly, by one at a time, until the destination can process the writes.
 */
export class BackOff {
  readonly #now: () => number
  #level = 0
  #changedAt = Number.NEGATIVE_INFINITY
  #overloadedAt = Number.NEGATIVE_INFINITY
  #since: number | null = null
  #reason = ''

  /** @param now returns the current time in milliseconds; `active.since` is a value of this clock */
  constructor(now: () => number = Date.now) {
    this.#now = now
  }

  /** Records the state of the destination: the reason for its overload, or null. */
  record(overload: string | null): void {
    const now = this.#now()
    if (overload !== null) {
      this.#overloadedAt = now
      this.#reason = overload
      if (this.#level === levelMax || now - this.#changedAt < riseAfterMS) return
      this.#since ??= now
      this.#level += 1
    } else {
      if (this.#level === 0 || now - this.#overloadedAt < fallAfterMS || now - this.#changedAt < fallAfterMS) return
      this.#level -= 1
      if (this.#level === 0) this.#since = null
    }
    this.#changedAt = now
  }

  /** Returns to full speed at once. */
  reset(): void {
    this.#level = 0
    this.#since = null
    this.#changedAt = Number.NEGATIVE_INFINITY
  }

  /** Why bulk writes are slowed down, and since when; null at full speed. */
  get active(): { reason: string; since: number } | null {
    return this.#since === null ? null : { reason: this.#reason, since: this.#since }
  }

  /** The number of parallel writes that are allowed now if `writes` are allowed at full speed. */
  allowed(writes: number): number {
    return Math.max(1, Math.floor(writes / 2 ** this.#level))
  }

  /**
   * How long to pause after a write, as a multiple of the duration of that write.
   * @param writes the number of parallel writes at full speed
   */
  pauseFactor(writes: number): number {
    const halvings = Math.floor(Math.log2(writes))
    return this.#level > halvings ? 2 ** (this.#level - halvings) - 1 : 0
  }
}
