import { type ClusterTime, earlierOf } from '../domain/cluster-time.ts'

/** The destination's stream may be slow; comparing a document twice is better than not comparing it. */
const patienceMS = 1_000

interface Sample {
  applied: ClusterTime
  /** The destination's time when everything up to `applied` had been written there. */
  written: ClusterTime
  takenAt: number
}

/**
 * Up to which time of the source a change is worth comparing. Applying it is a change of the destination, which the
 * destination's stream delivers a moment later: compared before that, every document would be compared twice.
 */
export class DestinationEcho {
  #comparable: ClusterTime = 0n
  #sample: Sample | null = null

  /**
   * @param latest the newest time of the destination that is known here
   * @param known the time up to which the destination's changes have been read
   * @param now ms
   */
  comparable(applied: ClusterTime, latest: ClusterTime, known: ClusterTime, now: number): ClusterTime {
    const sample = this.#sample
    if (!sample || known >= sample.written || now - sample.takenAt > patienceMS) {
      if (sample) this.#comparable = sample.applied
      this.#sample = { applied, written: latest, takenAt: now }
    }
    // A restarted application begins at an earlier time.
    return earlierOf(this.#comparable, applied)
  }
}
