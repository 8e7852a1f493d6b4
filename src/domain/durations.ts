/** Upper bounds of the histogram's buckets in milliseconds. */
export const boundsMS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000, 60_000] as const

/** Statistics of the durations that were added in one interval. The field names are those of mongosync's log. */
export interface RecentDurations {
  averageDurationMs: number
  maximumDurationMs: number
  numOperations: number
}

/** A histogram of the durations of one operation. */
export class Durations {
  /** The number of durations in each bucket. The last bucket has no upper bound. */
  readonly #counts: number[] = Array.from({ length: boundsMS.length + 1 }, () => 0)
  count = 0
  sumMS = 0
  #recent = { count: 0, sumMS: 0, maxMS: 0 }

  add(ms: number): void {
    const found = boundsMS.findIndex((bound) => ms <= bound)
    const bucket = found < 0 ? boundsMS.length : found
    this.#counts[bucket] = (this.#counts[bucket] ?? 0) + 1
    this.count += 1
    this.sumMS += ms
    const recent = this.#recent
    this.#recent = { count: recent.count + 1, sumMS: recent.sumMS + ms, maxMS: Math.max(recent.maxMS, ms) }
  }

  /** For each bound, the number of durations that were at most as long. */
  get cumulative(): { boundMS: number; count: number }[] {
    let count = 0
    return [...boundsMS, Number.POSITIVE_INFINITY].map((boundMS, bucket) => {
      count += this.#counts[bucket] ?? 0
      return { boundMS, count }
    })
  }

  /** Returns the statistics of the durations since the last call; null if there were none. */
  takeRecent(): RecentDurations | null {
    const { count, sumMS, maxMS } = this.#recent
    this.#recent = { count: 0, sumMS: 0, maxMS: 0 }
    if (count === 0) return null
    return { averageDurationMs: rounded(sumMS / count), maximumDurationMs: rounded(maxMS), numOperations: count }
  }
}

function rounded(ms: number): number {
  return Math.round(ms * 1_000) / 1_000
}
