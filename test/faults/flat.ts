export interface Flatness {
  first: number
  last: number
  limit: number
  flat: boolean
}

/** Each third of the judged values must have at least one value. */
const judgedMin = 3
/** The last third may be larger than the first by this factor. */
const usualFactor = 1.2

/**
 * Judges whether a figure, taken once for each cycle (or each period of one cycle) in order, has stopped growing. The first
 * value belongs to the warm-up and does not count. Of the others, the median of the last third may be at most `factor` times
 * that of the first third, plus `slack`. Returns null for fewer than three values after the first.
 */
export function judgeFlat(values: readonly number[], slack: number, factor = usualFactor): Flatness | null {
  const judged = values.slice(1)
  if (judged.length < judgedMin) return null
  const third = Math.floor(judged.length / 3)
  const first = median(judged.slice(0, third))
  const last = median(judged.slice(-third))
  const limit = first * factor + slack
  return { first, last, limit, flat: last <= limit }
}

/** Returns NaN for an empty list. */
export function median(values: readonly number[]): number {
  const sorted = [...values].sort((one, other) => one - other)
  const half = sorted.length / 2
  if (sorted.length % 2 === 1) return sorted[Math.floor(half)] as number
  return ((sorted[half - 1] ?? Number.NaN) + (sorted[half] ?? Number.NaN)) / 2
}
