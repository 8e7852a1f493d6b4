/** Minimum milliseconds before the level rises again, so that the effect of one level is measured before the next. */
const stepDownMS = 3_000
/** Milliseconds without overload after which the level falls by one, towards full speed. */
const stepUpMS = 10_000
const levelMax = 7

/**
 * How far bulk writes slow down for an overloaded destination. Each level halves the number of writes at a time. When
 * one write is left, each further level doubles the pause after a write instead. The level rises quickly and falls
 * slowly, one step at a time, until it matches what the destination can take.
 */
export class BackOff {
  readonly #now: () => number
  #level = 0
  #changedAt = Number.NEGATIVE_INFINITY
  #overloadedAt = Number.NEGATIVE_INFINITY
  #since: number | null = null
  #reason = ''

  /** @param now current time in milliseconds, from the clock that `since` also uses */
  constructor(now: () => number = Date.now) {
    this.#now = now
  }

  /** Records the state of the destination: the reason for its overload, or null. */
  record(overload: string | null): void {
    const now = this.#now()
    if (overload !== null) {
      this.#overloadedAt = now
      this.#reason = overload
      if (this.#level === levelMax || now - this.#changedAt < stepDownMS) return
      this.#since ??= now
      this.#level += 1
    } else {
      if (this.#level === 0 || now - this.#overloadedAt < stepUpMS || now - this.#changedAt < stepUpMS) return
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

  /** Null at full speed. */
  get active(): { reason: string; since: number } | null {
    return this.#since === null ? null : { reason: this.#reason, since: this.#since }
  }

  /** The number of writes allowed at a time if `writes` are allowed at full speed. */
  allowed(writes: number): number {
    return Math.max(1, Math.floor(writes / 2 ** this.#level))
  }

  /** How long to pause after a write, as a multiple of the write's own duration. */
  pauseFactor(writes: number): number {
    const halvings = Math.floor(Math.log2(writes))
    return this.#level > halvings ? 2 ** (this.#level - halvings) - 1 : 0
  }
}
