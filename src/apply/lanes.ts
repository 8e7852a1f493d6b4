import { fold, identityKey } from '../documents/identity.ts'
import type { Identities } from '../documents/reconcile-documents.ts'
import type { CatalogEntry } from '../domain/catalog.ts'
import type { ChangeEvent } from '../domain/change-event.ts'
import type { ClusterTime } from '../domain/cluster-time.ts'
import type { Watermark } from '../domain/watermark.ts'

/** Writes one lane's documents of one collection. Resolves when they are majority-committed on the destination. */
export type Send = (entry: CatalogEntry, identities: Identities, notBefore: ClusterTime) => Promise<void>

/**
 * A batch is held open this long after its first event, so that events at a slow rate are not sent one document at
 * a time. Without batches, 1,600 ops/s used 16 times as much CPU.
 */
const holdMS = 15
/**
 * A lane is in a burst when its batch has more than `burstCount` events and has received more than `burstEventsPerMS`
 * on average. The batch of such a lane is held longer, because larger batches fold more changes of one document, cost
 * both servers fewer commands, and leave the source its capacity for the burst. If a delay makes a steady load arrive
 * all at once, the average soon falls again, and the batch is not held for the whole `burstHoldMS`.
 */
const burstCount = 40
const burstEventsPerMS = 2
const burstHoldMS = 1_500
/** A burst is over when no event has arrived for this long. */
const burstPauseMS = 60
/** The batch of a lane is sent at once when it has this many documents. */
const eagerCount = 15_000
/** The reader waits while the pending identities and inline documents of all lanes exceed one of these limits. */
const pendingBytesMax = 48 * 1024 * 1024
const pendingCountMax = 100_000

interface Lane {
  open: Map<CatalogEntry, Identities>
  count: number
  bytes: number
  events: number
  newest: ClusterTime
  openedAt: number
  lastPutAt: number
  underWay: Promise<void> | null
  underWayBytes: number
  underWayCount: number
  timer: NodeJS.Timeout | null
}

/**
 * A fixed number of lanes. A document always belongs to the same lane, and a lane has one batch in flight at a time.
 * Changes of one document therefore reach the destination in order, and different lanes write in parallel.
 */
export class Lanes<Position> {
  readonly #lanes: Lane[]
  readonly #send: Send
  readonly #watermark: Watermark<Position>
  readonly #onFailure: (error: unknown) => void
  readonly #onSent: (events: number, lane: number, ms: number) => void
  #waiting: (() => void)[] = []
  #bytes = 0
  #count = 0
  #failed = false

  constructor(
    count: number,
    watermark: Watermark<Position>,
    send: Send,
    onFailure: (error: unknown) => void,
    onSent: (events: number, lane: number, ms: number) => void,
  ) {
    this.#lanes = Array.from({ length: count }, () => ({
      open: new Map(),
      count: 0,
      bytes: 0,
      events: 0,
      newest: 0n,
      openedAt: 0,
      lastPutAt: 0,
      underWay: null,
      underWayBytes: 0,
      underWayCount: 0,
      timer: null,
    }))
    this.#watermark = watermark
    this.#send = send
    this.#onFailure = onFailure
    this.#onSent = onSent
  }

  /** For each lane, the number of documents that wait or are being written. */
  get depths(): number[] {
    return this.#lanes.map(({ count, underWay, underWayCount }) => count + (underWay ? underWayCount : 0))
  }

  get size(): number {
    return this.#lanes.length
  }

  put(number: number, entry: CatalogEntry, event: ChangeEvent, idElement: Buffer, reorder: boolean): void {
    const lane = this.#lanes[number] as Lane
    let identities = lane.open.get(entry)
    if (!identities) {
      identities = new Map()
      lane.open.set(entry, identities)
    }
    const key = identityKey(idElement)
    const known = identities.get(key)
    const identity = fold(known, event, idElement)
    // The document was inserted again after a delete. In a capped collection it is now the last one.
    if (known && reorder && event.kind === 'insert') identities.delete(key)
    if (!known || reorder) identities.set(key, identity)
    const bytes = idElement.length * 2 + (event.documentKey?.length ?? 0) + (event.document?.length ?? 0) + 100
    if (!known) {
      this.#count += 1
      if (lane.count++ === 0) lane.openedAt = performance.now()
    }
    lane.bytes += bytes
    lane.events += 1
    lane.lastPutAt = performance.now()
    this.#bytes += bytes
    if (event.time > lane.newest) lane.newest = event.time
    this.#watermark.hold(number, this.#watermark.nextBatch)
  }

  /** Sends the lanes that are due. Call it after routing a batch of events. */
  sendDue(): void {
    for (let number = 0; number < this.#lanes.length; number++) this.#sendLane(number, false)
  }

  get full(): boolean {
    return this.#bytes > pendingBytesMax || this.#count > pendingCountMax
  }

  /** Resolves when there is capacity for more events, or after a failure. */
  async waitForCapacity(): Promise<void> {
    while (this.full && !this.#failed) {
      for (let number = 0; number < this.#lanes.length; number++) this.#sendLane(number, true)
      await new Promise<void>((resolve) => this.#waiting.push(resolve))
    }
  }

  /** Resolves when everything put so far is acknowledged or, after a failure, when no write is in flight. */
  async drain(): Promise<void> {
    for (let number = 0; number < this.#lanes.length; number++) {
      const lane = this.#lanes[number] as Lane
      while (lane.underWay || (lane.count > 0 && !this.#failed)) {
        this.#sendLane(number, true)
        await lane.underWay
      }
    }
  }

  #sendLane(number: number, now: boolean): void {
    const lane = this.#lanes[number] as Lane
    if (lane.underWay || lane.count === 0 || this.#failed) return
    const age = performance.now() - lane.openedAt
    const flowing = performance.now() - lane.lastPutAt < burstPauseMS && lane.events > burstEventsPerMS * age
    const bursting = lane.events > burstCount && flowing
    const hold = bursting ? burstHoldMS : holdMS
    if (!now && lane.count < eagerCount && age < hold) {
      lane.timer ??= setTimeout(
        () => {
          lane.timer = null
          this.#sendLane(number, false)
        },
        Math.min(hold - age, burstPauseMS),
      )
      return
    }
    if (lane.timer) clearTimeout(lane.timer)
    lane.timer = null
    const batch = lane.open
    const newest = lane.newest
    const events = lane.events
    lane.underWayBytes = lane.bytes
    lane.underWayCount = lane.count
    lane.open = new Map()
    lane.count = 0
    lane.bytes = 0
    lane.events = 0
    this.#watermark.sending(number)
    const beganAt = performance.now()
    const sends = [...batch].map(([entry, identities]) => this.#send(entry, identities, newest))
    // Waits for all sends even when one fails: no write may be in flight when the lane's events are applied again.
    lane.underWay = Promise.allSettled(sends).then((results) => {
      lane.underWay = null
      this.#bytes -= lane.underWayBytes
      this.#count -= lane.underWayCount
      const failure = results.find((result) => result.status === 'rejected')
      if (failure) {
        this.#failed = true
        this.#onFailure(failure.reason)
      } else {
        this.#watermark.acknowledged(number)
        this.#onSent(events, number, performance.now() - beganAt)
        this.#sendLane(number, false)
      }
      for (const resolve of this.#waiting.splice(0)) resolve()
    })
  }
}
