import { type ClusterTime, earlierOf } from '../domain/cluster-time.ts'

/** After this wait (ms), documents are compared anyway: comparing twice is better than waiting for a slow stream. */
const patienceMS = 1_000

interface Sample {
  applied: ClusterTime
  /** The destination's cluster time when everything up to `applied` was written there. */
  written: ClusterTime
  takenAt: number
}

/**
 * Computes the source time up to which changes should be compared. Applying a change is itself a change on the
 * destination, which the destination's stream delivers a little later. Comparing earlier would compare every document
 * twice.
 */
export class DestinationEcho {
  #comparable: ClusterTime = 0n
  #sample: Sample | null = null

  /**
   * @param applied the source time up to which changes are applied
   * @param latest the newest known cluster time of the destination
   * @param known the time up to which the destination's changes have been read
   * @param now ms
   */
  comparable(applied: ClusterTime, latest: ClusterTime, known: ClusterTime, now: number): ClusterTime {
    const sample = this.#sample
    if (!sample || known >= sample.written || now - sample.takenAt > patienceMS) {
      if (sample) this.#comparable = sample.applied
      this.#sample = { applied, written: latest, takenAt: now }
    }
    // After a restart, event application begins at an earlier time.
    return earlierOf(this.#comparable, applied)
  }
}
