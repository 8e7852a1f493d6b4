/** @import { HistoryPoint } from '../api/sample-schema.ts' */

/**
 * The totals that are kept: every point of the last ten minutes, and one point a minute for a day. The instance and the
 * page keep them in the same way, so both import this file.
 */

export const fineMS = 10 * 60_000
const keptMS = 24 * 60 * 60_000
export const coarseMS = 60_000

export class KeptPoints {
  #fineMS
  #keptMS
  #coarseMS
  /** At most one point for each `coarseMS`, oldest first. All are older than those of `#fine`. @type {HistoryPoint[]} */
  #coarse = []
  /** @type {HistoryPoint[]} */
  #fine = []

  /** @param {{ fineMS?: number, keptMS?: number, coarseMS?: number }} [periods] */
  constructor(periods = {}) {
    this.#fineMS = periods.fineMS ?? fineMS
    this.#keptMS = periods.keptMS ?? keptMS
    this.#coarseMS = periods.coarseMS ?? coarseMS
  }

  /** @returns {HistoryPoint[]} oldest first */
  get points() {
    return [...this.#coarse, ...this.#fine]
  }

  /**
   * Adds the newest point. If the clock has been set back, some kept points are later than this one. They are dropped,
   * because they would be out of order until the clock reaches them again.
   * @param {HistoryPoint} point
   */
  add(point) {
    dropFrom(this.#coarse, point[0])
    dropFrom(this.#fine, point[0])
    this.#fine.push(point)
    this.prune(point[0])
  }

  /** @param {HistoryPoint[]} points oldest first */
  replace(points) {
    this.#coarse = []
    this.#fine = [...points]
    this.prune(points.at(-1)?.[0] ?? 0)
  }

  /** @param {number} now milliseconds since the epoch */
  prune(now) {
    for (const point of withoutOlder(this.#fine, now - this.#fineMS)) this.#thin(point)
    withoutOlder(this.#coarse, now - this.#keptMS)
  }

  /**
   * Keeps the newest point of each period, with the highest lag of the period. The other figures are running totals, so
   * the newest point suffices.
   * @param {HistoryPoint} point
   */
  #thin(point) {
    const before = this.#coarse.at(-1)
    const isSamePeriod =
      before !== undefined && Math.floor(before[0] / this.#coarseMS) === Math.floor(point[0] / this.#coarseMS)
    if (!isSamePeriod) {
      this.#coarse.push(point)
      return
    }
    const [at, copied, total, events, lag] = point
    const highest = lag === null || before[4] === null ? (lag ?? before[4]) : Math.max(lag, before[4])
    this.#coarse[this.#coarse.length - 1] = [at, copied, total, events, highest]
  }
}

/**
 * Removes the points that are not before `at`.
 * @param {HistoryPoint[]} points
 * @param {number} at
 */
function dropFrom(points, at) {
  while ((points.at(-1)?.[0] ?? Number.NEGATIVE_INFINITY) >= at) points.pop()
}

/**
 * Removes the points before `oldest`, and returns them.
 * @param {HistoryPoint[]} points
 * @param {number} oldest
 */
function withoutOlder(points, oldest) {
  const first = points.findIndex(([at]) => at >= oldest)
  return points.splice(0, first === -1 ? points.length : first)
}
