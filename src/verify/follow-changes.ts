import { setTimeout as sleep } from 'node:timers/promises'
import type { Document } from 'mongodb'
import type { Catalog } from '../domain/catalog.ts'
import { type ChangeEvent, parseChangeEvent } from '../domain/change-event.ts'
import type { ClusterTime } from '../domain/cluster-time.ts'
import { isUserCollection } from '../domain/namespace.ts'
import {
  idleAwaitMS,
  readChangeStream,
  type StreamBatch,
  type StreamPosition,
  shortAwaitMS,
} from '../mongo/change-stream.ts'
import type { Cluster } from '../mongo/cluster.ts'
import type { RetryContext } from '../mongo/retry.ts'
import type { Share, SharedStream } from '../mongo/shared-stream.ts'
import type { Rechecks, Side } from './rechecks.ts'

export interface FollowerParts {
  side: Side
  cluster: Cluster
  start: StreamPosition
  /** The filter for events (see `Selection.events`); null for all events. */
  selected: Document | null
  /** The stream that event application reads from this cluster; null for the destination. */
  shared: SharedStream | null
  context: RetryContext
  rechecks: Rechecks
  catalog: () => Catalog
}

const capacityPollMS = 20
/**
 * Wait after a small batch before the next request, ms. The server returns available events immediately, and a thousand
 * replies with one event each cost tandem and the server many times as much as one reply with a thousand events.
 */
const gatherMS = 200
const largeBatch = 4_000
const changes = new Set<ChangeEvent['kind']>(['insert', 'replace', 'update', 'delete'])

/**
 * Follows one cluster's change stream and records which documents changed, but not how they changed.
 *
 *   own stream ── when the next batch of event application starts at the follower's position or earlier ─▶ shared stream
 *       ▲                                                                                                       │
 *       └── when too many rechecks are open, a verdict is due, or event application ends, drains                │
 *           or loses partitions ◀───────────────────────────────────────────────────────────────────────────────┘
 *
 * On the source, the follower uses the batches that event application reads instead of a second stream, wherever
 * possible. Both streams continue from the follower's position, and their changes are recorded in the same way.
 * Therefore the stored positions and rechecks do not depend on which of the two streams delivered a batch. Event
 * application passes each batch on before it processes the batch, as the server sent it. The follower parses the events.
 */
export class Follower {
  readonly #parts: FollowerParts
  /** Positions of recorded batches, oldest first. `takePosition` removes those up to the position that it returns. */
  #positions: { batch: number; isEmpty: boolean; position: StreamPosition; begunAt: number }[] = []
  #newest = 0
  /** Every event up to here is recorded. */
  #position: StreamPosition
  #pollsFast = false
  #answered = false
  #share: Share | null = null
  /**
   * Number of publications of the shared stream that had begun at the last `wake`; -1 before the first `wake`. After a
   * `wake`, the follower joins only a publication that begins later. Event application publishes nothing while it has a
   * commit timestamp, so a later publication shows that the commit which requested the verdict was abandoned.
   */
  #joinsAfter = -1
  #sourceUuids = new Map<string, string>()
  /** Destination UUIDs in this batch that are not in the catalog. */
  #foreign = new Set<string>()

  constructor(parts: FollowerParts) {
    this.#parts = parts
    this.#position = parts.start
  }

  /** Number of the newest recorded batch; 0 before the first. */
  get newest(): number {
    return this.#newest
  }

  /** Every change before this time is recorded. */
  get time(): ClusterTime {
    return this.#position.time
  }

  /** True once the cluster has answered with a change stream that starts at the start position or earlier. */
  get answered(): boolean {
    return this.#answered || (this.#share?.answered ?? false)
  }

  /**
   * Leaves the shared stream, because event application sets its pace, and polls a stream of its own at short
   * intervals. Call this before you wait for `time` to pass a cluster time.
   */
  wake(): void {
    this.#pollsFast = true
    this.#joinsAfter = this.#parts.shared?.publications ?? 0
    this.#share?.leave()
  }

  /** Runs until stopped. Pauses while too many rechecks are open. */
  async run(): Promise<void> {
    const { context, rechecks } = this.#parts
    const stop = (): void => this.#share?.leave()
    context.signal.addEventListener('abort', stop, { once: true })
    try {
      while (!context.signal.aborted) {
        while (rechecks.full && !context.signal.aborted) await sleep(capacityPollMS)
        if (!this.#share && !this.#join()) await this.#readOwn()
        const failure = await this.#share?.ended
        this.#answered = this.answered
        this.#share = null
        if (failure) throw failure
      }
    } finally {
      context.signal.removeEventListener('abort', stop)
    }
  }

  /** Reads a separate stream from the current position. Returns when the follower joins the shared stream or stops. */
  async #readOwn(): Promise<void> {
    const { cluster, context, rechecks, selected } = this.#parts
    const awaitMS = (): number => (this.#pollsFast ? shortAwaitMS : idleAwaitMS)
    const content = { identitiesOnly: true, selected, awaitMS }
    for await (const batch of readChangeStream(cluster, this.#position, context, content)) {
      this.#answered = true
      this.#take(batch)
      if (this.#join()) return
      while (rechecks.full && !context.signal.aborted) await sleep(capacityPollMS)
      const isSmallBatch = batch.events.length > 0 && batch.events.length < largeBatch
      if (isSmallBatch && !this.#pollsFast) await sleep(gatherMS, undefined, { signal: context.signal }).catch(() => {})
      if (context.signal.aborted) return
    }
  }

  #join(): boolean {
    const { shared, selected, rechecks, context } = this.#parts
    if (!shared || shared.publications <= this.#joinsAfter || rechecks.full || context.signal.aborted) return false
    this.#share = shared.join(this.#position, selected, (batch) => {
      if (rechecks.full) return false
      this.#take(batch)
      return true
    })
    if (!this.#share) return false
    this.#pollsFast = false
    return true
  }

  #take({ events, position }: StreamBatch): void {
    const isEmpty = events.length === 0
    const now = performance.now()
    const last = this.#positions.at(-1)
    // Consecutive empty batches count as one. So do batches with events that arrive within `gatherMS`. Otherwise
    // thousands of positions would accumulate until the rechecks of their batches are stored.
    const continues = last?.isEmpty === isEmpty && (isEmpty || now - last.begunAt < gatherMS)
    const batch = continues ? this.#newest : this.#newest + 1
    this.#foreign.clear()
    for (const bytes of events) this.#record(parseChangeEvent(bytes), batch)
    this.#newest = batch
    this.#position = position
    if (continues) this.#positions.pop()
    this.#positions.push({ batch, isEmpty, position, begunAt: continues ? last.begunAt : now })
  }

  /**
   * Returns the position right after batch `safeBatch`, which is the last position that may be stored
   * (`Rechecks.safeBatch`). Returns null if an earlier call has returned that position. Without `alsoIdle`, also returns
   * null if all batches since the last returned position are empty.
   */
  takePosition(safeBatch: number, alsoIdle: boolean): StreamPosition | null {
    const after = this.#positions.findIndex(({ batch }) => batch > safeBatch)
    const passed = after === -1 ? this.#positions : this.#positions.slice(0, after)
    const last = passed.at(-1)
    if (!last || (!alsoIdle && passed.every(({ isEmpty }) => isEmpty))) return null
    this.#positions = this.#positions.slice(passed.length)
    return last.position
  }

  #record(event: ChangeEvent, batch: number): void {
    if (!changes.has(event.kind) || !event.idElement || !isUserCollection(event.collection)) return
    const { side, rechecks } = this.#parts
    const uuid = side === 'source' ? event.uuid : this.#onSource(event.uuid)
    const isUpdate = event.kind === 'update' || event.kind === 'replace'
    const documentKey = isUpdate ? event.documentKey : null
    if (uuid) rechecks.changed(uuid, event.idElement, side, batch, event.time, documentKey)
  }

  /**
   * Returns the source UUID of a destination collection; undefined if the catalog does not have the collection. Changes
   * in such a collection need no recheck, because the comparison of definitions reports the collection itself.
   */
  #onSource(uuid: string): string | undefined {
    const known = this.#sourceUuids.get(uuid)
    if (known || this.#foreign.has(uuid)) return known
    this.#sourceUuids = new Map()
    for (const entry of this.#parts.catalog().entries()) {
      if (entry.destinationUUID) this.#sourceUuids.set(entry.destinationUUID, entry.uuid)
    }
    if (!this.#sourceUuids.has(uuid)) this.#foreign.add(uuid)
    return this.#sourceUuids.get(uuid)
  }
}
