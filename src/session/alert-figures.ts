import type { Document, Timestamp } from 'mongodb'
import { findSkippedTimeSeries } from '../definitions/skipped-time-series.ts'
import { type ClusterTime, secondsOf } from '../domain/cluster-time.ts'
import type { PublicState } from '../domain/progress.ts'
import type { Cluster } from '../mongo/cluster.ts'
import { oplogBegin } from '../mongo/oplog-window.ts'
import type { Selection } from '../mongo/selection.ts'

/**
 * Figures for the metrics, the warnings and `estimatedOplogTimeRemaining`. They are read once a minute and at each
 * change of state. They are also read while no events are applied, because that is when the oplog window may run out.
 * They are estimates for operators, and no work depends on them.
 */

const refreshMS = 60_000
/** States in which the figures are read: every state from the start to the end of the commit, but no reversal. */
const watched: PublicState[] = ['RUNNING', 'PAUSED', 'COMMITTING', 'FAILED']

export interface AlertFiguresParts {
  source: Cluster
  destination: Cluster
  startTime: ClusterTime
  selection: () => Selection
}

export class AlertFigures {
  /**
   * Seconds for which event application could pause before the source's oplog overwrites its position; infinite while
   * no oplog has ever been full, null while unknown.
   */
  oplogSeconds: number | null = null
  /** True when the last read of the source's oplog (of every shard) succeeded; null before the first read. */
  oplogVisible: boolean | null = null
  /** Number of differences in the last verdict; null before the first. */
  mismatches: number | null = null
  /** Number of documents that differed in several comparisons and are compared again. */
  differingDocuments: number | null = null
  /** The source's time-series collections that the sync skips. */
  skippedTimeSeries: readonly string[] = []
  readonly #parts: AlertFiguresParts
  /**
   * All changes up to this time, in seconds, are applied by all instances. It keeps its value while the destination is
   * unreachable.
   */
  #appliedSeconds: number
  #timer: NodeJS.Timeout | null = null
  #refreshing: Promise<unknown> | null = null
  #again = false

  constructor(parts: AlertFiguresParts) {
    this.#parts = parts
    this.#appliedSeconds = secondsOf(parts.startTime)
  }

  /** Called when the instance has entered this state. */
  entered(state: PublicState): void {
    if (!watched.includes(state)) {
      this.stop()
      return
    }
    this.#timer ??= setInterval(() => this.#refresh(), refreshMS).unref()
    this.#refresh()
  }

  stop(): void {
    if (this.#timer) clearInterval(this.#timer)
    this.#timer = null
  }

  /** Runs one refresh at a time. A refresh that is requested while another one runs follows it. */
  #refresh(): void {
    this.#again = this.#refreshing !== null
    this.#refreshing ??= this.#read().finally(() => {
      this.#refreshing = null
      if (this.#again && this.#timer) this.#refresh()
    })
  }

  async #read(): Promise<void> {
    await Promise.allSettled([this.#readOplog(), this.#readVerification(), this.#readTimeSeries()])
  }

  async #readOplog(): Promise<void> {
    // Positions are read before the oplog. Older positions make the estimate smaller, not larger.
    await this.#readPositions().catch(() => {})
    try {
      this.oplogSeconds = Math.max(0, this.#appliedSeconds - (await oplogBegin(this.#parts.source)))
      this.oplogVisible = true
    } catch {
      this.oplogSeconds = null
      this.oplogVisible = false
    }
  }

  /** Reads the earliest stored position of all partitions. */
  async #readPositions(): Promise<void> {
    const [earliest] = await this.#find('positions', { _id: { $gte: 0 } }, { sort: { time: 1 }, limit: 1 })
    if (earliest) this.#appliedSeconds = (earliest['time'] as Timestamp).getHighBitsUnsigned()
  }

  async #readVerification(): Promise<void> {
    const [verdict] = await this.#find('verification', { _id: 'verdict' }, { limit: 1 })
    this.mismatches = (verdict?.['total'] as number | undefined) ?? null
    const { destination } = this.#parts
    const counted = await destination.read(destination.metadataDatabase, { count: 'rechecks' })
    this.differingDocuments = counted['n'] as number
  }

  async #readTimeSeries(): Promise<void> {
    const { source, selection } = this.#parts
    this.skippedTimeSeries = await findSkippedTimeSeries(source, selection())
  }

  /** Reads once without retries, because the next refresh comes soon. */
  async #find(collection: string, filter: Document, extra: Document): Promise<Document[]> {
    const { destination } = this.#parts
    const command = { find: collection, filter, ...extra, singleBatch: true }
    return (await destination.read(destination.metadataDatabase, command))['cursor'].firstBatch as Document[]
  }
}
