/** @import { HistoryPoint, Sample } from '../api/sample-schema.ts' */
import { coarseMS, fineMS, KeptPoints } from './kept-points.js'

/**
 * One point of a chart. `at` is in milliseconds since the epoch; `value` is null if it is unknown.
 * @typedef {{ at: number, value: number | null }} Moment
 */

/** A rate covers this period. A shorter period would show when heartbeats arrive, not how fast the instances work. */
const rateMS = 10_000
/** A longer time without a point interrupts the line. While no page is open, tandem takes a sample every ten seconds. */
const gapMS = 15_000
/** The same limit for the older points, of which only the last of each minute is kept. */
const coarseGapMS = 2 * coarseMS + gapMS

/** The totals of the last day: those that the instance has kept, and those that the page has received since. */
export class History {
  #kept = new KeptPoints()
  /** @type {HistoryPoint[]} */
  #points = []

  /**
   * Adds the points that an instance has kept. A restarted instance has none, so the page keeps its own earlier points.
   * @param {HistoryPoint[]} points
   */
  merge(points) {
    const first = points[0]?.[0] ?? Number.POSITIVE_INFINITY
    this.#kept.replace([...this.#points.filter(([at]) => at < first), ...points])
    this.#points = this.#kept.points
  }

  /** @param {Sample} sample */
  add({ at, instances, totals }) {
    if (instances.length > 0) {
      const { estimatedCopiedBytes, estimatedTotalBytes, totalEventsApplied, lagTimeSeconds } = totals
      this.#kept.add([at, estimatedCopiedBytes, estimatedTotalBytes, totalEventsApplied, lagTimeSeconds])
    } else this.#kept.prune(at)
    this.#points = this.#kept.points
  }

  /** @returns {Moment[]} seconds */
  lag() {
    return this.#withGaps(([at, , , , lag]) => ({ at, value: lag }))
  }

  /** @returns {Moment[]} bytes copied per second */
  bytesPerSecond() {
    return this.#rates(1)
  }

  /** @returns {Moment[]} events applied per second */
  eventsPerSecond() {
    return this.#rates(3)
  }

  /** @param {1 | 3} field of a point */
  #rates(field) {
    let from = 0
    return this.#withGaps((point, index) => {
      const [at] = point
      const before = this.#points[index - 1]
      if (!before || this.#isGap(before, point)) from = index
      while (from < index - 1 && (this.#points[from]?.[0] ?? at) < at - rateMS) from += 1
      const first = this.#points[from] ?? point
      // A count that has decreased means that an instance was restarted and counts from 0 again.
      if (before && point[field] < before[field]) from = index
      const seconds = (at - first[0]) / 1_000
      const value = seconds > 0 && point[field] >= first[field] ? (point[field] - first[field]) / seconds : null
      return { at, value }
    })
  }

  /**
   * @param {(point: HistoryPoint, index: number) => Moment} momentOf
   * @returns {Moment[]}
   */
  #withGaps(momentOf) {
    return this.#points.flatMap((point, index) => {
      const before = this.#points[index - 1]
      const moment = momentOf(point, index)
      return before && this.#isGap(before, point) ? [{ at: before[0] + 1, value: null }, moment] : [moment]
    })
  }

  /**
   * @param {HistoryPoint} before
   * @param {HistoryPoint} point
   */
  #isGap([before], [at]) {
    const isCoarse = before < (this.#points.at(-1)?.[0] ?? 0) - fineMS
    return at - before > (isCoarse ? coarseGapMS : gapMS)
  }
}
