/** @import { HistoryPoint, Sample } from '../api/sample-schema.ts' */

/**
 * One point of a chart. `at` is in milliseconds since the epoch; `value` is null if it is unknown.
 * @typedef {{ at: number, value: number | null }} Moment
 */

const keptMS = 10 * 60_000
/** A rate covers this period. A shorter period would show when heartbeats arrive, not how fast the instances work. */
const rateMS = 10_000
/** A longer time without a sample interrupts the line. */
const gapMS = 5_000

/** The totals of the last ten minutes: those that tandem has kept, and those that the page has received since. */
export class History {
  /** @type {HistoryPoint[]} */
  #points = []

  /**
   * Adds the points that an instance has kept. A restarted instance has none, so the page keeps its own earlier points.
   * @param {HistoryPoint[]} points
   */
  merge(points) {
    const first = points[0]?.[0] ?? Number.POSITIVE_INFINITY
    this.#points = [...this.#points.filter(([at]) => at < first), ...points]
  }

  /** @param {Sample} sample */
  add({ at, instances, totals }) {
    if (instances.length > 0 && at > (this.#points.at(-1)?.[0] ?? 0)) {
      const { estimatedCopiedBytes, estimatedTotalBytes, totalEventsApplied, lagTimeSeconds } = totals
      this.#points.push([at, estimatedCopiedBytes, estimatedTotalBytes, totalEventsApplied, lagTimeSeconds])
    }
    const first = this.#points.findIndex((point) => point[0] >= at - keptMS)
    this.#points.splice(0, first === -1 ? this.#points.length : first)
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
      if (!before || at - before[0] > gapMS) from = index
      while ((this.#points[from]?.[0] ?? at) < at - rateMS) from += 1
      const first = this.#points[from] ?? point
      // A lower count than before means that an instance was restarted and counts from 0.
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
      return before && point[0] - before[0] > gapMS ? [{ at: before[0] + 1, value: null }, moment] : [moment]
    })
  }
}
