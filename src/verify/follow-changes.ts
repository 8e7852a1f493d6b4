import { setTimeout as sleep } from 'node:timers/promises'
import type { Document } from 'mongodb'
import type { Catalogue } from '../domain/catalogue.ts'
import { type ChangeEvent, parseChangeEvent } from '../domain/change-event.ts'
import type { ClusterTime } from '../domain/cluster-time.ts'
import { isUserCollection } from '../domain/namespace.ts'
import { idleAwaitMS, readChangeStream, type StreamPosition, shortAwaitMS } from '../mongo/change-stream.ts'
import type { Cluster } from '../mongo/cluster.ts'
import type { RetryContext } from '../mongo/retry.ts'
import type { Rechecks, Side } from './rechecks.ts'

export interface FollowerParts {
  side: Side
  cluster: Cluster
  start: StreamPosition
  /** The filter for events (see `Selection.events`); null for all events. */
  selected: Document | null
  context: RetryContext
  rechecks: Rechecks
  catalogue: () => Catalogue
}

const capacityPollMS = 20
/**
 * Wait after a small batch before the next request. The server returns available events at once, and a thousand replies
 * with one event each cost both sides many times as much as one reply with a thousand events.
 */
const gatherMS = 200
const largeBatch = 4_000
const changes = new Set<ChangeEvent['kind']>(['insert', 'replace', 'update', 'delete'])

/** Follows one cluster's change stream and records which documents changed. It does not read the changes themselves. */
export class Follower {
  readonly #parts: FollowerParts
  /** Positions of the batches read, oldest first. */
  #positions: { batch: number; isEmpty: boolean; position: StreamPosition }[] = []
  #newest = 0
  #time: ClusterTime
  /** True while a caller waits until `time` passes a certain time. */
  pollsFast = false
  #sourceUuids = new Map<string, string>()
  /** UUIDs in this batch that are not in the catalogue. */
  #foreign = new Set<string>()

  constructor(parts: FollowerParts) {
    this.#parts = parts
    this.#time = parts.start.time
  }

  /** Number of the newest batch read; 0 before the first. */
  get newest(): number {
    return this.#newest
  }

  /** Every change before this time is recorded. */
  get time(): ClusterTime {
    return this.#time
  }

  /** Runs until stopped. Pauses while too many rechecks are open. */
  async run(): Promise<void> {
    const { cluster, start, context, rechecks, selected } = this.#parts
    const awaitMS = (): number => (this.pollsFast ? shortAwaitMS : idleAwaitMS)
    const content = { identitiesOnly: true, selected, awaitMS }
    for await (const batch of readChangeStream(cluster, start, context, content)) {
      const number = this.#newest + 1
      this.#foreign.clear()
      for (const bytes of batch.events) this.#record(parseChangeEvent(bytes), number)
      this.#newest = number
      this.#time = batch.position.time
      const isEmpty = batch.events.length === 0
      if (isEmpty && this.#positions.at(-1)?.isEmpty) this.#positions.pop()
      this.#positions.push({ batch: number, isEmpty, position: batch.position })
      while (rechecks.full && !context.signal.aborted) await sleep(capacityPollMS)
      const isFlowing = batch.events.length > 0 && batch.events.length < largeBatch
      if (isFlowing && !this.pollsFast) await sleep(gatherMS, undefined, { signal: context.signal }).catch(() => {})
      if (context.signal.aborted) return
    }
  }

  /**
   * The position right after batch `safe`, if it has advanced since the last call; otherwise null. Without `alsoIdle`,
   * only an advance past a change counts.
   */
  passed(safe: number, alsoIdle: boolean): StreamPosition | null {
    const after = this.#positions.findIndex(({ batch }) => batch > safe)
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
    if (uuid) rechecks.changed(uuid, event.idElement, side, batch, event.time)
  }

  /** The source UUID of a destination collection. The comparison of definitions reports foreign collections. */
  #onSource(uuid: string): string | undefined {
    const known = this.#sourceUuids.get(uuid)
    if (known || this.#foreign.has(uuid)) return known
    this.#sourceUuids = new Map()
    for (const entry of this.#parts.catalogue().entries()) {
      if (entry.destinationUUID) this.#sourceUuids.set(entry.destinationUUID, entry.uuid)
    }
    if (!this.#sourceUuids.has(uuid)) this.#foreign.add(uuid)
    return this.#sourceUuids.get(uuid)
  }
}
