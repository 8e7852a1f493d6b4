const everyMS = 60_000

/** Counts events that other hosts can cause without limit, and reports them at most once a minute. */
export class ThrottledReport<Event> {
  readonly #report: (event: Event) => void
  readonly #now: () => number
  #count = 0
  #reportedAt = Number.NEGATIVE_INFINITY

  /** @param now milliseconds of a clock that never goes back */
  constructor(report: (event: Event) => void, now: () => number = () => performance.now()) {
    this.#report = report
    this.#now = now
  }

  /** @param describe receives the number of events since the last report */
  add(describe: (count: number) => Event): void {
    this.#count += 1
    const now = this.#now()
    if (now - this.#reportedAt < everyMS) return
    const count = this.#count
    this.#count = 0
    this.#reportedAt = now
    this.#report(describe(count))
  }
}
