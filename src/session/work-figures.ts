import type { Coordination } from '../coordination/coordination.ts'
import { type ClusterTime, earlierOf, laterOf, secondsOf } from '../domain/cluster-time.ts'
import type { Cluster } from '../mongo/cluster.ts'
import type { Metadata } from '../mongo/metadata.ts'
import type { WorkRuns } from './work-runs.ts'

const pingsKept = 5
const paceSamplesMax = 6
/** Assumed round trip before the first ping is answered, ms. */
const unknownMS = 1_000

export interface WorkFiguresParts {
  source: Cluster
  destination: Cluster
  metadata: Metadata
  coordination: Coordination
  startTime: ClusterTime
  runs: WorkRuns
}

/** The progress of the work on one sync, for the progress report and the verifier. */
export class WorkFigures {
  readonly #parts: WorkFiguresParts
  #appliedBefore = 0
  #appliedTime: ClusterTime = 0n
  /**
   * Applied time of the partition that is furthest behind, whichever instance owns it. It is read from time to time.
   */
  #others: ClusterTime = 0n
  #asking: Promise<unknown> | null = null
  readonly #pace = new AppliedPace()
  #knowsTime = false
  /** Durations of the last pings of each cluster, ms. */
  readonly #pings = { source: [] as number[], destination: [] as number[] }

  constructor(parts: WorkFiguresParts) {
    this.#parts = parts
  }

  /** Called before the current replication is left: keeps its figures. */
  leaving(): void {
    this.#appliedTime = this.appliedTime
    this.#appliedBefore += this.#parts.runs.latest?.events?.totalEventsApplied ?? 0
  }

  /** Called when every change up to this time is on the destination. */
  applied(time: ClusterTime): void {
    this.#appliedTime = laterOf(this.#appliedTime, time)
  }

  /**
   * Updates the cluster time of the source with a ping, since each reply carries it (`operationTime`). Otherwise lag
   * would not grow while no events are read because those that were read cannot be written.
   */
  keepTime(): void {
    const { latest, isOpen } = this.#parts.runs
    if (isOpen && latest?.events?.appliedTime) this.#appliedTime = latest.events.appliedTime
    this.#pace.add(performance.now(), secondsOf(this.appliedTime))
    this.#asking ??= Promise.all([this.#ping('source'), this.#ping('destination')])
      .catch(() => {}) // the work on the clusters reports an unreachable one
      .finally(() => {
        this.#asking = null
      })
  }

  /** Called when the sync runs again: its lag is known only once the source has reported its cluster time. */
  forgetTime(): void {
    this.#knowsTime = false
    this.keepTime()
  }

  /**
   * True once the source has reported its cluster time since the sync began to run. Before that the lag is out of date.
   */
  get knowsTime(): boolean {
    return this.#knowsTime
  }

  async #ping(side: 'source' | 'destination'): Promise<void> {
    const began = performance.now()
    await this.#parts[side].read('admin', { ping: 1 })
    if (side === 'source') this.#knowsTime = true
    this.#pings[side] = [...this.#pings[side], performance.now() - began].slice(-pingsKept)
  }

  /**
   * Round trip to the slower cluster, ms: the fastest of the last few pings, since a busy machine delays some of them.
   */
  get roundTripMS(): number {
    const { source, destination } = this.#pings
    return Math.max(Math.min(...source, unknownMS), Math.min(...destination, unknownMS))
  }

  /** Seconds of source time that were applied per second lately; null before it is known. */
  get appliedPerSecond(): number | null {
    return this.#pace.perSecond
  }

  /** Reads the positions of all partitions, for an instance that owns only some partitions or none. */
  async readOthers(): Promise<void> {
    const { coordination, metadata } = this.#parts
    if (coordination.ownsAll || !this.#parts.runs.isOpen) return
    if (!coordination.leading && coordination.held.size > 0) return
    const positions = [...(await metadata.loadPartitions()).values()]
    if (positions.length > 0) this.#others = positions.map(({ time }) => time).reduce(earlierOf)
  }

  /** Reads again what an instance that is not running has copied, because others may have taken over its segments. */
  async countCopied(): Promise<void> {
    if (!this.#parts.runs.isOpen) await this.#parts.runs.latest?.countCopied()
  }

  /** Reads how far the sync had applied changes, for an instance that is not running. */
  async restore(): Promise<void> {
    const positions = [...(await this.#parts.metadata.loadPartitions()).values()]
    if (positions.length > 0) this.#appliedTime = positions.map(({ time }) => time).reduce(earlierOf)
  }

  get totalEventsApplied(): number {
    const { isOpen, latest } = this.#parts.runs
    const current = isOpen ? (latest?.events?.totalEventsApplied ?? 0) : 0
    return this.#appliedBefore + current
  }

  /**
   * The time up to which this instance's partitions are applied. An instance without partitions is as far as the source
   * if others own all partitions, and otherwise as far as the slowest partition.
   */
  get appliedTime(): ClusterTime {
    const { coordination, runs, source, startTime } = this.#parts
    const known = laterOf(this.#appliedTime, startTime)
    const events = runs.latest?.events
    if (!events || !runs.isOpen) return known
    if (events.appliedTime) return events.appliedTime
    return coordination.othersHaveAll ? source.latest : laterOf(known, this.#others)
  }

  /** Every change up to this time is on the destination, whichever instance applied it. */
  get everywhereApplied(): ClusterTime {
    if (this.#parts.coordination.ownsAll || !this.#parts.runs.isOpen) return this.appliedTime
    return this.#others
  }

  /** Bytes copied by each instance, lost ones included, by mongosyncID. */
  bytesByInstance(): Promise<Map<string, number>> {
    return this.#parts.metadata.segments.bytesByInstance()
  }

  /** Partitions for which a change of definitions waits, as the coordinator knows it. */
  get barrierWaitsFor(): number[] {
    return this.#parts.runs.latest?.barrierWaitsFor ?? []
  }

  /**
   * Document bytes of the collections known now: the total, and those that this instance copied. `begun`: a copy is
   * planned.
   */
  get copyBytes(): { total: number; copied: number; begun: boolean } {
    let total = 0
    let copied = 0
    let begun = false
    for (const entry of this.#parts.runs.latest?.catalogue.entries() ?? []) {
      copied += entry.copiedBytes
      total += entry.totalCopied ?? Math.max(entry.estimatedBytes, entry.copiedBytes)
      begun ||= entry.planned
    }
    return { total, copied, begun }
  }
}

/** The speed of event application: seconds of source time per second, over the last few samples. */
class AppliedPace {
  readonly #samples: { at: number; applied: number }[] = []

  /**
   * @param at milliseconds of a monotonic clock
   * @param applied cluster time, in seconds, up to which all changes are applied
   */
  add(at: number, applied: number): void {
    this.#samples.push({ at, applied })
    while (this.#samples.length > paceSamplesMax) this.#samples.shift()
  }

  /** Null before the second sample, and when the applied time went backwards, as after a takeover. */
  get perSecond(): number | null {
    const [first, last] = [this.#samples[0], this.#samples.at(-1)]
    if (!first || !last || last.at <= first.at || last.applied < first.applied) return null
    return ((last.applied - first.applied) * 1_000) / (last.at - first.at)
  }
}
