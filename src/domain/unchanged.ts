/** What this process knows about a value after it has observed it. */
interface Observation {
  /** True if an earlier observation of the key had another value. */
  hasChanged: boolean
  /** How long the value has been observed without a change, ms; 0 at its first observation. */
  unchangedMS: number
}

/**
 * Measures how long values stay the same, by the monotonic clock of this process. It is for values of other processes, whose
 * clocks may be wrong or may be set.
 */
export class Unchanged {
  readonly #observed = new Map<string, { value: string; since: number }>()

  observe(key: string, value: string): Observation {
    const now = performance.now()
    const before = this.#observed.get(key)
    if (before?.value === value) return { hasChanged: false, unchangedMS: now - before.since }
    this.#observed.set(key, { value, since: now })
    return { hasChanged: before !== undefined, unchangedMS: 0 }
  }
}
