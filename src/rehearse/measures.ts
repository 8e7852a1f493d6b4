/**
 * Returns NaN if there are no values.
 * @param percent from 0 to 100
 */
export function percentile(values: readonly number[], percent: number): number {
  const sorted = [...values].sort((a, b) => a - b)
  return sorted[Math.round(((sorted.length - 1) * percent) / 100)] ?? Number.NaN
}

export const median = (values: readonly number[]): number => percentile(values, 50)
