import type { Document, Timestamp } from 'mongodb'
import { type ClusterTime, secondsOf } from '../domain/cluster-time.ts'
import { metadataDatabase } from '../domain/namespace.ts'
import type { PublicState } from '../domain/progress.ts'
import type { Cluster } from '../mongo/cluster.ts'
import { oplogBegin } from '../mongo/oplog-window.ts'

/**
 * What alerts need and no work asks for: looked up once a minute and at each change of state, also while nothing is applied, for that is
 * when an oplog runs out. Estimates for people: without them everything works.
 */

const refreshMS = 60_000
/** Before COMMITTED, and not on the way into the other direction. */
const watched: PublicState[] = ['RUNNING', 'PAUSED', 'COMMITTING', 'FAILED']

export interface AlertFiguresParts {
  source: Cluster
  destination: Cluster
  startTime: ClusterTime
}

export class AlertFigures {
  /** How long the sync could stand still before the source's oplog has overtaken it; infinite while no oplog was ever full, null while not known. */
  oplogSeconds: number | null = null
  /** Whether the source's oplog, of each shard, could be read; null before it was tried. */
  oplogVisible: boolean | null = null
  /** What the last verdict found different; null before there was one. */
  mismatches: number | null = null
  /** Documents that stayed different over several comparisons and are compared again. */
  differingDocuments: number | null = null
  readonly #parts: AlertFiguresParts
  /** Everything up to this time, in seconds, is applied, whichever instance had to; what was known last while the destination is away. */
  #appliedSeconds: number
  #timer: NodeJS.Timeout | null = null
  #looking: Promise<unknown> | null = null
  #again = false

  constructor(parts: AlertFiguresParts) {
    this.#parts = parts
    this.#appliedSeconds = secondsOf(parts.startTime)
  }

  /** The instance has come to this state. */
  entered(state: PublicState): void {
    if (!watched.includes(state)) {
      this.stop()
      return
    }
    this.#timer ??= setInterval(() => this.#look(), refreshMS).unref()
    this.#look()
  }

  stop(): void {
    if (this.#timer) clearInterval(this.#timer)
    this.#timer = null
  }

  /** One look at a time; what changes during one is seen by the next. */
  #look(): void {
    this.#again = this.#looking !== null
    this.#looking ??= Promise.allSettled([this.#lookAtOplog(), this.#lookAtVerification()]).finally(() => {
      this.#looking = null
      if (this.#again && this.#timer) this.#look()
    })
  }

  async #lookAtOplog(): Promise<void> {
    // Positions first: those that are older than the look at the oplog make the estimate smaller, not larger.
    await this.#lookAtPositions().catch(() => {})
    try {
      this.oplogSeconds = Math.max(0, this.#appliedSeconds - (await oplogBegin(this.#parts.source)))
      this.oplogVisible = true
    } catch {
      this.oplogSeconds = null
      this.oplogVisible = false
    }
  }

  /** Of all partitions the earliest stored position. */
  async #lookAtPositions(): Promise<void> {
    const [earliest] = await this.#find('positions', { _id: { $gte: 0 } }, { sort: { time: 1 }, limit: 1 })
    if (earliest) this.#appliedSeconds = (earliest['time'] as Timestamp).getHighBitsUnsigned()
  }

  async #lookAtVerification(): Promise<void> {
    const [verdict] = await this.#find('verification', { _id: 'verdict' }, { limit: 1 })
    this.mismatches = (verdict?.['total'] as number | undefined) ?? null
    this.differingDocuments = (await this.#parts.destination.read(metadataDatabase, { count: 'rechecks' }))[
      'n'
    ] as number
  }

  /** Tried once: the next look is soon. */
  async #find(collection: string, filter: Document, extra: Document): Promise<Document[]> {
    const command = { find: collection, filter, ...extra, singleBatch: true }
    return (await this.#parts.destination.read(metadataDatabase, command))['cursor'].firstBatch as Document[]
  }
}
