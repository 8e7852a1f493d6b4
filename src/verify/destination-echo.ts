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
 * Computes the source time up to which changed documents should be compared. The write that applies a change is itself
 * a change on the destination. The destination's stream delivers it a little later, and it requires a comparison too.
 * An earlier comparison would therefore be repeated.
 */
export class DestinationEcho {
  #comparable: ClusterTime = 0n
  #sample: Sample | null = null

  /**
   * @param applied the source time up to which changes are applied
   * @param latest the newest known cluster time of the destination
   * @param known the time up to which the destination's changes have been read
   * @param now in milliseconds of `performance.now()`
   */
  comparable(applied: ClusterTime, latest: ClusterTime, known: ClusterTime, now: number): ClusterTime {
    const sample = this.#sample
    if (!sample || known >= sample.written || now - sample.takenAt > patienceMS) {
      if (sample) this.#comparable = sample.applied
      this.#sample = { applied, written: latest, takenAt: now }
    }
    // `applied` may be earlier than before, because event application restarts at an earlier position.
    return earlierOf(this.#comparable, applied)
  }
}
