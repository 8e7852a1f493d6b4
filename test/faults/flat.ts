export interface Flatness {
  first: number
  last: number
  limit: number
  flat: boolean
}

/** A third of what is judged has at least one value. */
const judgedMin = 3
const factor = 1.2

/**
 * Whether a figure, taken once for each leg in their order, stays where it came to be. The first leg warms up and does not
 * count; of the others, the median of the last third may be at most 1.2 times that of the first third, plus `slack`.
 * Null for fewer than three legs after the first.
 */
export function judgeFlat(values: readonly number[], slack: number): Flatness | null {
  const judged = values.slice(1)
  if (judged.length < judgedMin) return null
  const third = Math.floor(judged.length / 3)
  const first = median(judged.slice(0, third))
  const last = median(judged.slice(-third))
  const limit = first * factor + slack
  return { first, last, limit, flat: last <= limit }
}

/** NaN for none. */
export function median(values: readonly number[]): number {
  const sorted = [...values].sort((one, other) => one - other)
  const half = sorted.length / 2
  if (sorted.length % 2 === 1) return sorted[Math.floor(half)] as number
  return ((sorted[half - 1] ?? Number.NaN) + (sorted[half] ?? Number.NaN)) / 2
}
