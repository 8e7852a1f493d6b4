/** The speed of event application: seconds of source time per second, over the last few samples. */
export class AppliedPace {
  readonly #samples: { at: number; applied: number }[] = []
  readonly #samplesMax: number
  readonly #spanMinMS: number

  /**
   * @param samplesMax number of samples that are kept
   * @param spanMinMS milliseconds that the samples must span before the speed is known
   */
  constructor(samplesMax: number, spanMinMS = 0) {
    this.#samplesMax = samplesMax
    this.#spanMinMS = spanMinMS
  }

  /**
   * @param at milliseconds of a monotonic clock
   * @param applied cluster time, in seconds, up to which all changes are applied
   */
  add(at: number, applied: number): void {
    this.#samples.push({ at, applied })
    while (this.#samples.length > this.#samplesMax) this.#samples.shift()
  }

  /** Called when the next sample does not continue the samples so far. */
  reset(): void {
    this.#samples.length = 0
  }

  /**
   * Null until there are two samples and they span `spanMinMS`. Also null when the applied time went backwards, as after
   * a takeover.
   */
  get perSecond(): number | null {
    const [first, last] = [this.#samples[0], this.#samples.at(-1)]
    if (!first || !last || last.at <= first.at || last.applied < first.applied) return null
    if (last.at - first.at < this.#spanMinMS) return null
    return ((last.applied - first.applied) * 1_000) / (last.at - first.at)
  }
}
