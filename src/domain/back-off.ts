/** What one level does is seen before the next is taken. */
const soonMS = 3_000
/** Without a sign of suffering for this long, one step back towards full speed. */
const calmMS = 10_000
const levelMax = 7

/**
 * How far bulk writes step back from a destination that suffers. Each level halves what is written at a time; where nothing is
 * left to halve, each doubles the rest after a write instead. Levels are taken one by one: down quickly, up slowly, so that the
 * destination is met at what it can bear.
 */
export class BackOff {
  readonly #now: () => number
  #level = 0
  #changedAt = Number.NEGATIVE_INFINITY
  #sufferedAt = Number.NEGATIVE_INFINITY
  #since: number | null = null
  #reason = ''

  /** @param now milliseconds, of the same clock as `since` is to be shown in */
  constructor(now: () => number = Date.now) {
    this.#now = now
  }

  /** Tells how the destination is: why it suffers, or null. */
  note(suffering: string | null): void {
    const now = this.#now()
    if (suffering !== null) {
      this.#sufferedAt = now
      this.#reason = suffering
      if (this.#level === levelMax || now - this.#changedAt < soonMS) return
      this.#since ??= now
      this.#level += 1
    } else {
      if (this.#level === 0 || now - this.#sufferedAt < calmMS || now - this.#changedAt < calmMS) return
      this.#level -= 1
      if (this.#level === 0) this.#since = null
    }
    this.#changedAt = now
  }

  /** At full speed again, whatever was. */
  reset(): void {
    this.#level = 0
    this.#since = null
    this.#changedAt = Number.NEGATIVE_INFINITY
  }

  /** Null at full speed. */
  get active(): { reason: string; since: number } | null {
    return this.#since === null ? null : { reason: this.#reason, since: this.#since }
  }

  /** Of so many writes at a time, how many there may be now. */
  allowed(writes: number): number {
    return Math.max(1, Math.floor(writes / 2 ** this.#level))
  }

  /** How long to rest after a write, as a multiple of what it took. */
  rest(writes: number): number {
    const halvings = Math.floor(Math.log2(writes))
    return this.#level > halvings ? 2 ** (this.#level - halvings) - 1 : 0
  }
}
