import { setImmediate as nextTurn } from 'node:timers/promises'

/** How long one slice occupies the process, ms. Requests to the API and other work wait for a slice at most. */
const sliceMS = 5
/** The clock is read once for this many items. */
const itemsPerReading = 32

/**
 * Calls `convert` for each item, in order, and returns the results. Yields to other work every few milliseconds, because
 * ten thousand documents take longer to parse than a request to the API should wait.
 */
export async function inSlices<T, R>(items: readonly T[], convert: (item: T) => R): Promise<R[]> {
  const results: R[] = []
  let began = performance.now()
  for (const [at, item] of items.entries()) {
    if (at % itemsPerReading === itemsPerReading - 1 && performance.now() - began > sliceMS) {
      await nextTurn()
      began = performance.now()
    }
    results.push(convert(item))
  }
  return results
}
