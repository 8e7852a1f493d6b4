const everyMS = 60_000

/** Counts what strangers can do as often as they like, and tells of it once a minute at most. */
export class RarelyTold<Event> {
  readonly #tell: (event: Event) => void
  readonly #now: () => number
  #count = 0
  #toldAt = Number.NEGATIVE_INFINITY

  /** @param now ms, of a clock that never steps back */
  constructor(tell: (event: Event) => void, now: () => number = () => performance.now()) {
    this.#tell = tell
    this.#now = now
  }

  /** @param describe is given how often it has happened since it was told the last time */
  add(describe: (count: number) => Event): void {
    this.#count += 1
    const now = this.#now()
    if (now - this.#toldAt < everyMS) return
    const count = this.#count
    this.#count = 0
    this.#toldAt = now
    this.#tell(describe(count))
  }
}
