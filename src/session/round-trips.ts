import type { WorkMeter } from '../domain/work-meter.ts'
import type { BothClusters } from '../mongo/cluster.ts'

type Side = 'source' | 'destination'

const pingsKept = 5
/**
 * The first pings follow each other without the pause. The first one may open a connection, which takes two more round
 * trips, and the copy adapts the number of its batches to the fastest ping from its beginning.
 */
const pingsAtFirst = 3
/** A cluster that answers other commands is pinged this often (ms), so that the round trip stays known. */
const pingEveryMS = 5_000
/** A cluster that has answered nothing for this long is pinged at the next call of `measure`, ms. */
const unansweredMS = 1_000
/** Assumed round trip before the first ping is answered, ms. It is also the maximum of `slowerMS`. */
const unknownMS = 1_000

interface Pings {
  /** Durations of the last pings that were answered, ms. */
  durations: number[]
  /** Duration of the fastest ping so far, ms. */
  fastest: number | null
  failed: boolean
  /** When the last ping was sent (ms, `performance.now()`). */
  sentAt: number
  underWay: Promise<void> | null
}

/** Round trips to both clusters, measured with the command `ping`, which servers answer without a lock. */
export class RoundTrips {
  readonly #clusters: BothClusters
  readonly #meter: WorkMeter | null
  readonly #pings: Record<Side, Pings> = {
    source: { durations: [], fastest: null, failed: false, sentAt: Number.NEGATIVE_INFINITY, underWay: null },
    destination: { durations: [], fastest: null, failed: false, sentAt: Number.NEGATIVE_INFINITY, underWay: null },
  }

  /** @param meter receives the duration of each ping that was answered */
  constructor(clusters: BothClusters, meter: WorkMeter | null = null) {
    this.#clusters = clusters
    this.#meter = meter
  }

  /**
   * Pings each cluster that has no ping under way, so that a cluster that does not answer delays only its own pings. A
   * cluster that answers other commands is pinged only every `pingEveryMS`: each reply contains its cluster time, and a
   * ping costs an idle instance about as much CPU as any other command.
   * @param onSource called when the source has answered a ping
   * @param requested true to ping the source in any case
   */
  measure(onSource: () => void, requested: boolean): void {
    if (requested || this.#isDue('source')) this.#ping('source', onSource)
    if (this.#isDue('destination')) this.#ping('destination', () => {})
  }

  #isDue(side: Side): boolean {
    const { durations, failed, sentAt } = this.#pings[side]
    const now = performance.now()
    if (failed || durations.length < pingsAtFirst) return true
    return now - sentAt >= pingEveryMS || now - this.#clusters[side].answeredAt > unansweredMS
  }

  #ping(side: Side, answered: () => void): void {
    const pings = this.#pings[side]
    const ping = async (): Promise<void> => {
      const began = performance.now()
      pings.sentAt = began
      try {
        await this.#clusters[side].read('admin', { ping: 1 })
        const ms = performance.now() - began
        pings.durations = [...pings.durations, ms].slice(-pingsKept)
        pings.fastest = Math.min(ms, pings.fastest ?? ms)
        this.#meter?.durations[side === 'source' ? 'sourcePing' : 'destinationPing'].add(ms)
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

  /** The fastest ping of each cluster so far in ms, which load has delayed the least; 0 before the first one has ended. */
  get fastestMS(): Record<Side, number> {
    const { source, destination } = this.#pings
    return { source: source.fastest ?? 0, destination: destination.fastest ?? 0 }
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
