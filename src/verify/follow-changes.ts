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
  /** What of its events is followed, as `Selection` has it; null for all. */
  selected: Document | null
  context: RetryContext
  rechecks: Rechecks
  catalogue: () => Catalogue
}

const roomMS = 20
/**
 * A batch that is not large was all there was: the next is asked for after this, because the server answers at once with
 * what came meanwhile, and a thousand answers with an event each cost both of us many times one with a thousand events.
 */
const gatherMS = 200
const largeBatch = 4_000
const changes = new Set<ChangeEvent['kind']>(['insert', 'replace', 'update', 'delete'])

/** Follows one cluster's change stream and notes which documents changed; what changed is not looked at. */
export class Follower {
  readonly #parts: FollowerParts
  /** Positions of batches that were read, oldest first. */
  #positions: { batch: number; isEmpty: boolean; position: StreamPosition }[] = []
  #newest = 0
  #time: ClusterTime
  /** Set while somebody waits for `time` to pass a moment. */
  hurried = false
  #sourceUuids = new Map<string, string>()
  /** UUIDs of this batch that are nobody's we know. */
  #foreign = new Set<string>()

  constructor(parts: FollowerParts) {
    this.#parts = parts
    this.#time = parts.start.time
  }

  /** Number of the newest batch read; 0 before the first. */
  get newest(): number {
    return this.#newest
  }

  /** Every change before this time is noted. */
  get time(): ClusterTime {
    return this.#time
  }

  /** Until stopped. Reads no further while too many documents are to be compared. */
  async run(): Promise<void> {
    const { cluster, start, context, rechecks, selected } = this.#parts
    const awaitMS = (): number => (this.hurried ? shortAwaitMS : idleAwaitMS)
    const content = { identitiesOnly: true, selected, awaitMS }
    for await (const batch of readChangeStream(cluster, start, context, content)) {
      const number = this.#newest + 1
      this.#foreign.clear()
      for (const bytes of batch.events) this.#note(parseChangeEvent(bytes), number)
      this.#newest = number
      this.#time = batch.position.time
      const isEmpty = batch.events.length === 0
      if (isEmpty && this.#positions.at(-1)?.isEmpty) this.#positions.pop()
      this.#positions.push({ batch: number, isEmpty, position: batch.position })
      while (rechecks.full && !context.signal.aborted) await sleep(roomMS)
      const isFlowing = batch.events.length > 0 && batch.events.length < largeBatch
      if (isFlowing && !this.hurried) await sleep(gatherMS, undefined, { signal: context.signal }).catch(() => {})
      if (context.signal.aborted) return
    }
  }

  /** The position right after batch `safe`, if it moved since the last call: past a change, or (`alsoIdle`) past nothing. */
  passed(safe: number, alsoIdle: boolean): StreamPosition | null {
    const after = this.#positions.findIndex(({ batch }) => batch > safe)
    const passed = after === -1 ? this.#positions : this.#positions.slice(0, after)
    const last = passed.at(-1)
    if (!last || (!alsoIdle && passed.every(({ isEmpty }) => isEmpty))) return null
    this.#positions = this.#positions.slice(passed.length)
    return last.position
  }

  #note(event: ChangeEvent, batch: number): void {
    if (!changes.has(event.kind) || !event.idElement || !isUserCollection(event.collection)) return
    const { side, rechecks } = this.#parts
    const uuid = side === 'source' ? event.uuid : this.#onSource(event.uuid)
    if (uuid) rechecks.changed(uuid, event.idElement, side, batch, event.time)
  }

  /** The source's UUID of a collection of the destination; one that is not ours is a matter of definitions. */
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
