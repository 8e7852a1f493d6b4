import type { Coordination } from '../coordination/coordination.ts'
import { type ClusterTime, earlierOf, laterOf, secondsOf } from '../domain/cluster-time.ts'
import type { Cluster } from '../mongo/cluster.ts'
import type { Metadata } from '../mongo/metadata.ts'
import { AppliedPace } from './applied-pace.ts'
import type { SharedReplication } from './shared-replication.ts'

const pingsKept = 5
/** Before the first ping is answered. */
const unknownMS = 1_000

export interface WorkFiguresParts {
  source: Cluster
  destination: Cluster
  metadata: Metadata
  coordination: Coordination
  startTime: ClusterTime
  replication: SharedReplication
}

/** How far the work on one sync has come: what progress shows, and what the verifier goes by. */
export class WorkFigures {
  readonly #parts: WorkFiguresParts
  #appliedBefore = 0
  #appliedTime: ClusterTime = 0n
  /** Of the partition that is furthest behind, whoever owns it; looked up now and then. */
  #others: ClusterTime = 0n
  #asking: Promise<unknown> | null = null
  readonly #pace = new AppliedPace()
  #knowsTime = false
  /** Of the last pings of each cluster, ms. */
  readonly #pings = { source: [] as number[], destination: [] as number[] }

  constructor(parts: WorkFiguresParts) {
    this.#parts = parts
  }

  /** The present replication is about to be left: what it has come to stays. */
  leaving(): void {
    this.#appliedTime = this.appliedTime
    this.#appliedBefore += this.#parts.replication.latest?.events?.totalEventsApplied ?? 0
  }

  /** Everything up to this time is on the destination. */
  applied(time: ClusterTime): void {
    this.#appliedTime = laterOf(this.#appliedTime, time)
  }

  /**
   * Asks the source what time it is there, by any command: each reply carries it (`operationTime`). While nothing is read of
   * its events, because what was read cannot be written, lag would stand still otherwise.
   */
  keepTime(): void {
    const { latest, isOpen } = this.#parts.replication
    if (isOpen && latest?.events?.appliedTime) this.#appliedTime = latest.events.appliedTime
    this.#pace.add(performance.now(), secondsOf(this.appliedTime))
    this.#asking ??= Promise.all([this.#ping('source'), this.#ping('destination')])
      .catch(() => {}) // what works with the clusters reports that one is away
      .finally(() => {
        this.#asking = null
      })
  }

  /** The sync runs again: how far behind it is can be said only once the source was asked what time it is there. */
  forgetTime(): void {
    this.#knowsTime = false
    this.keepTime()
  }

  /** Whether the source was asked for its time since the sync runs: before that the lag is that of some time ago. */
  get knowsTime(): boolean {
    return this.#knowsTime
  }

  async #ping(side: 'source' | 'destination'): Promise<void> {
    const began = performance.now()
    await this.#parts[side].read('admin', { ping: 1 })
    if (side === 'source') this.#knowsTime = true
    this.#pings[side] = [...this.#pings[side], performance.now() - began].slice(-pingsKept)
  }

  /** Milliseconds of a round trip to the slower cluster: of the last few pings the fastest, for a busy machine delays some. */
  get roundTripMS(): number {
    const { source, destination } = this.#pings
    return Math.max(Math.min(...source, unknownMS), Math.min(...destination, unknownMS))
  }

  /** Seconds of the source's time applied in a second, lately; null before it is known. */
  get appliedPerSecond(): number | null {
    return this.#pace.perSecond
  }

  /** Looks, for an instance that shares the events or has none, how far the others are. */
  async lookAround(): Promise<void> {
    const { coordination, metadata } = this.#parts
    if (coordination.ownsAll || !this.#parts.replication.isOpen) return
    if (!coordination.leading && coordination.held.size > 0) return
    const positions = [...(await metadata.loadPartitions()).values()]
    if (positions.length > 0) this.#others = positions.map(({ time }) => time).reduce(earlierOf)
  }

  /** For an instance that is not running: what it had begun to copy others may have taken over. */
  async countCopied(): Promise<void> {
    if (!this.#parts.replication.isOpen) await this.#parts.replication.latest?.countCopied()
  }

  /** Looks how far the sync had come, for an instance that is not running. */
  async look(): Promise<void> {
    const positions = [...(await this.#parts.metadata.loadPartitions()).values()]
    if (positions.length > 0) this.#appliedTime = positions.map(({ time }) => time).reduce(earlierOf)
  }

  get totalEventsApplied(): number {
    const current = this.#parts.replication.isOpen
      ? (this.#parts.replication.latest?.events?.totalEventsApplied ?? 0)
      : 0
    return this.#appliedBefore + current
  }

  /** Of the partitions of this instance; one that has none is as far as the source, unless there are some that nobody has. */
  get appliedTime(): ClusterTime {
    const { coordination, replication, source, startTime } = this.#parts
    const known = laterOf(this.#appliedTime, startTime)
    const events = replication.latest?.events
    if (!events || !replication.isOpen) return known
    if (events.appliedTime) return events.appliedTime
    return coordination.othersHaveAll ? source.latest : laterOf(known, this.#others)
  }

  /** Everything up to this time is on the destination, whoever applied it. */
  get everywhereApplied(): ClusterTime {
    if (this.#parts.coordination.ownsAll || !this.#parts.replication.isOpen) return this.appliedTime
    return this.#others
  }

  /** Bytes copied by each instance, lost ones included, by mongosyncID. */
  bytesByInstance(): Promise<Map<string, number>> {
    return this.#parts.metadata.segments.bytesByInstance()
  }

  /** Partitions that hold up a change of definitions, as the coordinator sees it. */
  get barrierWaitsFor(): number[] {
    return this.#parts.replication.latest?.barrierWaitsFor ?? []
  }

  /** Bytes of documents, over the collections known now: in all, and copied by this instance. */
  get copyBytes(): { total: number; copied: number; begun: boolean } {
    let total = 0
    let copied = 0
    let begun = false
    for (const entry of this.#parts.replication.latest?.catalogue.entries() ?? []) {
      copied += entry.copiedBytes
      total += entry.totalCopied ?? Math.max(entry.estimatedBytes, entry.copiedBytes)
      begun ||= entry.planned
    }
    return { total, copied, begun }
  }
}
