/** How fast the application of changes moves on: seconds of the source's time in a second, over the last few. */
export class AppliedPace {
  readonly #samples: { at: number; applied: number }[] = []

  /** @param at milliseconds of a monotonic clock @param applied seconds of cluster time up to which all is applied */
  add(at: number, applied: number): void {
    this.#samples.push({ at, applied })
    while (this.#samples.length > samplesMax) this.#samples.shift()
  }

  /** Null before there are two samples, and when it went backwards, as after a takeover. */
  get perSecond(): number | null {
    const [first, last] = [this.#samples[0], this.#samples.at(-1)]
    if (!first || !last || last.at <= first.at || last.applied < first.applied) return null
    return ((last.applied - first.applied) * 1_000) / (last.at - first.at)
  }
}

const samplesMax = 6
