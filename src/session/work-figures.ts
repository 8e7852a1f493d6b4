import type { Timestamp } from 'mongodb'
import type { Coordination } from '../coordination/coordination.ts'
import type { RoundPart } from '../coordination/round-parts.ts'
import { type ClusterTime, earlierOf, laterOf, secondsOf } from '../domain/cluster-time.ts'
import { indexBuildingOf } from '../domain/index-building.ts'
import type { IndexBuilding } from '../domain/progress.ts'
import type { WorkMeter } from '../domain/work-meter.ts'
import { type Cluster, fromTimestamp } from '../mongo/cluster.ts'
import type { Metadata } from '../mongo/metadata.ts'
import { AppliedPace } from './applied-pace.ts'
import { RoundTrips } from './round-trips.ts'
import type { WorkRuns } from './work-runs.ts'

/** One sample is taken each second. */
const paceSamplesMax = 6
/** Applied times are whole seconds, so an estimate from fewer samples would vary too much. */
const trendSamplesMax = 31
const trendSpanMinMS = 9_000
/** If a round of the coordination has read the positions within this time, `readOthers` does not, ms. */
const recentMS = 1_500

export interface WorkFiguresParts {
  source: Cluster
  destination: Cluster
  metadata: Metadata
  coordination: Coordination
  startTime: ClusterTime
  runs: WorkRuns
  meter: WorkMeter | null
}

/** Figures about the work on one sync, for the progress report and the verifier. */
export class WorkFigures {
  readonly #parts: WorkFiguresParts
  #appliedBefore = 0
  #appliedTime: ClusterTime = 0n
  /** Applied time of the partition with the greatest lag, whichever instance owns it, as `readOthers` last read it. */
  #others: ClusterTime = 0n
  #othersReadAt = Number.NEGATIVE_INFINITY
  readonly #pace = new AppliedPace(paceSamplesMax)
  readonly #trend = new AppliedPace(trendSamplesMax, trendSpanMinMS)
  /** The partitions that this instance owned at the last sample of `#trend`. */
  #partitions = ''
  #knowsTime = false
  readonly roundTrips: RoundTrips

  constructor(parts: WorkFiguresParts) {
    this.#parts = parts
    this.roundTrips = new RoundTrips(parts, parts.meter)
  }

  /** Called before the current replication closes. Keeps the figures of that replication. */
  leaving(): void {
    this.#appliedTime = this.appliedTime
    this.#appliedBefore += this.#parts.runs.latest?.events?.totalEventsApplied ?? 0
  }

  /** Called when every change up to this time is on the destination. */
  applied(time: ClusterTime): void {
    this.#appliedTime = laterOf(this.#appliedTime, time)
  }

  /**
   * Samples the applied time, and pings the source to update its cluster time, which each reply contains
   * (`operationTime`), unless it has just answered another command. Without the ping the lag would not grow while writes
   * to the destination fail, because no events are read then.
   */
  keepTime(): void {
    const { latest, isOpen } = this.#parts.runs
    if (isOpen && latest?.events?.appliedTime) this.#appliedTime = latest.events.appliedTime
    const [now, applied] = [performance.now(), secondsOf(this.appliedTime)]
    // After a change of ownership, the applied time is that of other partitions.
    const partitions = [...this.#parts.coordination.held.keys()].join()
    if (partitions !== this.#partitions) this.#trend.reset()
    this.#partitions = partitions
    this.#pace.add(now, applied)
    this.#trend.add(now, applied)
    this.roundTrips.measure(() => {
      this.#knowsTime = true
    }, !this.#knowsTime)
  }

  /** Called when the sync runs again. Its lag is then unknown until the source reports its cluster time. */
  resetTime(): void {
    this.#knowsTime = false
    this.#trend.reset()
    this.keepTime()
  }

  /**
   * True once the source has reported its cluster time after the sync began to run. Before that the lag is out of date.
   */
  get knowsTime(): boolean {
    return this.#knowsTime
  }

  /** Progress of the index builds, as this instance knows it; null when there is no index to build. */
  indexBuilding(restored: boolean): IndexBuilding | null {
    const { latest } = this.#parts.runs
    if (!latest) return null
    const { underWay } = latest.commit.destinationDefinitions.indexes.builds
    return indexBuildingOf(latest.catalog.entries(), underWay, restored)
  }

  /** Seconds of source time that were applied per second lately; null before it is known. */
  get appliedPerSecond(): number | null {
    return this.#pace.perSecond
  }

  /** `appliedPerSecond` over the last half minute, which varies less; null until samples span about ten seconds. */
  get appliedPerSecondLately(): number | null {
    return this.#trend.perSecond
  }

  /** Reads the positions of all partitions, if this instance owns none or is a coordinator that does not own all. */
  async readOthers(): Promise<void> {
    if (!this.#readsOthers || performance.now() - this.#othersReadAt < recentMS) return
    const positions = await this.#parts.metadata.loadPartitions()
    this.#takeOthers([...positions.values()].map(({ time }) => time))
  }

  /** Reads the same in the rounds of the coordination. */
  get othersInRounds(): RoundPart {
    return {
      collection: 'positions',
      pipeline: [{ $match: { _id: { $gte: 0 } } }, { $project: { time: 1 } }],
      isNeeded: () => this.#readsOthers,
      take: (positions) => {
        this.#takeOthers(positions.map(({ time }) => fromTimestamp(time as Timestamp)))
        this.#othersReadAt = performance.now()
      },
    }
  }

  get #readsOthers(): boolean {
    const { coordination, runs } = this.#parts
    if (coordination.ownsAll || !runs.isOpen) return false
    return coordination.leading || coordination.held.size === 0
  }

  #takeOthers(times: ClusterTime[]): void {
    if (times.length > 0) this.#others = times.reduce(earlierOf)
  }

  /**
   * Counts again how much an instance that is not running has copied, because others may have taken over its segments.
   */
  async loadCopiedBytes(): Promise<void> {
    if (!this.#parts.runs.isOpen) await this.#parts.runs.latest?.loadCopiedBytes()
  }

  /** Reads the time up to which the sync has applied changes, for an instance that is not running. */
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
   * The time up to which the changes of this instance's partitions are applied. For an instance without partitions it
   * is the source's time if other instances own all partitions, and otherwise the time of the slowest partition.
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

  /** Bytes copied by each instance, by mongosyncID. Includes instances that no longer run. */
  bytesByInstance(): Promise<Map<string, number>> {
    return this.#parts.metadata.segments.bytesByInstance()
  }

  /** Partitions that have not reached the next barrier, as this instance last read them while it coordinated. */
  get barrierWaitsFor(): number[] {
    return this.#parts.runs.latest?.barrierWaitsFor ?? []
  }

  /** Number of collections that are still being converged: only the documents that differ are written. */
  get convergingCollections(): number {
    const entries = this.#parts.runs.latest?.catalog.entries() ?? []
    return entries.filter(({ state, converging }) => state === 'copying' && converging).length
  }

  /**
   * Document bytes of the collections known now: the total, and those that this instance copied. `isPlanned` is true
   * when the copy of at least one collection is planned.
   */
  get copyBytes(): { total: number; copied: number; isPlanned: boolean } {
    let total = 0
    let copied = 0
    let isPlanned = false
    for (const entry of this.#parts.runs.latest?.catalog.entries() ?? []) {
      copied += entry.copiedBytes
      total += entry.totalCopied ?? Math.max(entry.estimatedBytes, entry.copiedBytes)
      isPlanned ||= entry.planned
    }
    return { total, copied, isPlanned }
  }
}
