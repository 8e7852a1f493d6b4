import type { BothClusters } from '../mongo/cluster.ts'

type Side = 'source' | 'destination'

const pingsKept = 5
/** Assumed round trip before the first ping is answered, ms. */
const unknownMS = 1_000

interface Pings {
  /** Durations of the last pings that were answered, ms. */
  durations: number[]
  failed: boolean
  underWay: Promise<void> | null
}

/** Round trips to both clusters, measured with the command `ping`, which servers answer without a lock. */
export class RoundTrips {
  readonly #clusters: BothClusters
  readonly #pings: Record<Side, Pings> = {
    source: { durations: [], failed: false, underWay: null },
    destination: { durations: [], failed: false, underWay: null },
  }

  constructor(clusters: BothClusters) {
    this.#clusters = clusters
  }

  /**
   * Pings each cluster that has no ping under way, so that a cluster that does not answer delays only its own pings.
   * @param onSource called when the source has answered
   */
  measure(onSource: () => void): void {
    this.#ping('source', onSource)
    this.#ping('destination', () => {})
  }

  #ping(side: Side, answered: () => void): void {
    const pings = this.#pings[side]
    const ping = async (): Promise<void> => {
      const began = performance.now()
      try {
        await this.#clusters[side].read('admin', { ping: 1 })
        pings.durations = [...pings.durations, performance.now() - began].slice(-pingsKept)
        pings.failed = false
        answered()
      } catch {
        // The work on the clusters reports an unreachable cluster.
        pings.failed = true
      } finally {
        pings.underWay = null
      }
    }
    pings.underWay ??= ping()
  }

  /**
   * Round trip to the slower cluster, ms: the fastest of the last few pings, because a busy machine delays some pings.
   */
  get slowerMS(): number {
    const { source, destination } = this.#pings
    return Math.max(Math.min(...source.durations, unknownMS), Math.min(...destination.durations, unknownMS))
  }

  /**
   * Round trip of the last ping in whole milliseconds, rounded up. Returns -1 when the last ping failed, and null
   * before the first ping has ended.
   */
  latencyMS(side: Side): number | null {
    const { durations, failed } = this.#pings[side]
    if (failed) return -1
    const last = durations.at(-1)
    return last === undefined ? null : Math.max(1, Math.ceil(last))
  }
}
