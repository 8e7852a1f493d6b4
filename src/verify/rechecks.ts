import { identityKey } from '../documents/identity.ts'
import type { ClusterTime } from '../domain/cluster-time.ts'
import { laterOf } from '../domain/cluster-time.ts'
import { type Identified, KnownInStore } from './known-in-store.ts'

export type Side = 'source' | 'destination'

/** A document of which it is not known whether both clusters hold the same: it changed, or was found different. */
export interface Recheck {
  readonly key: string
  /** UUID of its collection on the source. */
  readonly uuid: string
  /** The whole `_id` element, on its own bytes. */
  readonly idElement: Buffer
  /** Its newest change on the source; until that is applied nothing can be said. */
  changedAt: ClusterTime
  /** The newest batch of each stream that named it; 0 for none. Stored positions stay before it (see `safeBatch`). */
  newestBatch: Record<Side, number>
  /** The scanned range that found it different, and no stream has named it since; 0 otherwise (see `safeRange`). */
  range: number
  /**
   * Its entry in the store covers all that is known here: it is compared before any verdict, also when this process
   * dies.
   */
  stored: boolean
  /** Neither a stream nor a range would name it again after a restart, so it is stored before any position moves. */
  mustStore: boolean
  /** How often it was found different. */
  attempts: number
  /** Milliseconds of `performance.now()`. */
  notBefore: number
}

/** Above this the streams are read no further and no range is scanned, until some are resolved. */
const outstandingMax = 60_000
/** A document that is different is compared again after this, twice as long each time. */
const backOffMS = 100
const longestBackOffMS = 5_000
/** Different this often: stored, and left to the store for the verdict. By the back-off that takes about 6 s. */
const patientAttempts = 5

/** Removed from the store with one call: tens of milliseconds of the destination's time. */
const removedAtOnce = 1_000

const sides = ['source', 'destination'] as const

/**
 * Everything that is to be compared (again), by identity: however often a document changes, it is here once.
 *
 * The change streams are the durable queue. A recheck lives in memory alone, and the stored position of each stream
 * stays before the newest batch that named its document. That is enough for a crash at any moment:
 *
 * - Let a document have changed on one side since it was last compared equal, and let `newest` be the last batch of
 * that
 *   side's stream that named it. The stored position is before `newest`, so a restart reads `newest` again and creates the
 *   recheck again. The events of earlier batches add nothing: a comparison reads what the document is now, not what an
 *   event says, and the side it changed on is the same.
 * - So a hot document does not hold the position back: each of its changes lets the position move up to that change. -
 * What a scan found different is in no stream. Its range is not stored as done until the document is resolved, stored,
 *   or named by a stream, which covers it from then on.
 * - Only a document that stays different over several comparisons is stored on its own. From then on the store covers
 * it,
 *   until it changes again.
 */
export class Rechecks {
  readonly #waiting = new Map<string, Recheck>()
  readonly #taken = new Set<Recheck>()
  /** Being written to the store: positions stay before them until that has ended. */
  readonly #storing = new Set<Recheck>()
  readonly #store = new KnownInStore()

  get count(): number {
    return this.#waiting.size + this.#taken.size
  }

  get full(): boolean {
    return this.count >= outstandingMax
  }

  /** All that are not being compared now. */
  get waiting(): Recheck[] {
    return [...this.#waiting.values()]
  }

  changed(uuid: string, idElement: Buffer, side: Side, batch: number, time: ClusterTime): void {
    const recheck = this.#known(uuid, idElement)
    recheck.newestBatch[side] = batch
    if (side === 'source') recheck.changedAt = laterOf(recheck.changedAt, time)
    recheck.range = 0
    recheck.notBefore = 0
    recheck.attempts = 0
    // The stored entry does not say who made this change, and a delayed removal by an earlier verifier may take it
    // away.
    recheck.stored = false
  }

  /** The scan of this range (a number from 1 on) found it different, or on one side only. */
  suspect(uuid: string, idElement: Buffer, range: number): void {
    const recheck = this.#known(uuid, idElement)
    if (recheck.newestBatch.source === 0 && recheck.newestBatch.destination === 0) recheck.range ||= range
  }

  /** The comparison of another document came across it, under another spelling of its `_id`, and found it different. */
  foundDifferent(uuid: string, idElement: Buffer): void {
    this.#known(uuid, idElement).mustStore = true
  }

  /** Read from the store: compare it again, for it may have become equal since it was stored. */
  revisit(uuid: string, idElement: Buffer): void {
    const key = uuid + identityKey(idElement)
    this.#store.has({ key, uuid, idElement: Buffer.from(idElement) })
    if (this.#waiting.has(key)) return
    const recheck = this.#known(uuid, idElement)
    recheck.stored = true
    recheck.attempts = patientAttempts - 1 // still different, it leaves memory at once
  }

  #known(uuid: string, idElement: Buffer): Recheck {
    const key = uuid + identityKey(idElement)
    const known = this.#waiting.get(key)
    if (known) return known
    const recheck: Recheck = {
      key,
      uuid,
      idElement: Buffer.from(idElement),
      changedAt: 0n,
      newestBatch: { source: 0, destination: 0 },
      range: 0,
      stored: false,
      mustStore: false,
      attempts: 0,
      notBefore: 0,
    }
    this.#waiting.set(key, recheck)
    return recheck
  }

  /** Up to `limit` that are due: their last change on the source is applied. To be given back as equal or different. */
  take(limit: number, appliedTime: ClusterTime, now: number): Recheck[] {
    const due: Recheck[] = []
    for (const recheck of this.#waiting.values()) {
      if (due.length >= limit) break
      if (recheck.changedAt > appliedTime || recheck.notBefore > now) continue
      due.push(recheck)
    }
    for (const recheck of due) {
      this.#waiting.delete(recheck.key)
      this.#taken.add(recheck)
    }
    return due
  }

  /** Compared equal, or gone with their collection. One that changed meanwhile waits on its own. */
  equal(rechecks: readonly Recheck[]): void {
    for (const recheck of rechecks) {
      this.#taken.delete(recheck)
      this.#equalInStore(recheck.key)
    }
  }

  /** Not equal yet, or could not be compared: they wait again, together with what changed meanwhile. */
  different(rechecks: readonly Recheck[], now: number): void {
    for (const recheck of rechecks) {
      this.#taken.delete(recheck)
      const newer = this.#waiting.get(recheck.key)
      recheck.attempts += 1
      recheck.notBefore = now + Math.min(backOffMS * 2 ** recheck.attempts, longestBackOffMS)
      if (newer) {
        recheck.stored &&= !this.#isInMemoryAlone(newer)
        merge(recheck, newer)
      }
      this.#waiting.set(recheck.key, recheck)
    }
  }

  /** The number of the last batch of a side that a stored position may stand for. */
  safeBatch(side: Side, newest: number): number {
    let safe = newest
    for (const recheck of this.#open()) {
      const held = recheck.newestBatch[side]
      if (held > 0 && held <= safe && this.#isInMemoryAlone(recheck)) safe = held - 1
    }
    return safe
  }

  /** The number up to which scanned ranges may be stored as done. */
  safeRange(): number {
    let safe = Number.POSITIVE_INFINITY
    for (const recheck of this.#open()) {
      const { range } = recheck
      if (range > 0 && range <= safe && this.#isInMemoryAlone(recheck)) safe = range - 1
    }
    return safe
  }

  /** What is to be stored now, because it stays different; with `everything`, all that is not being compared now. */
  beginStoring(what: 'patient' | 'everything'): Recheck[] {
    // An attempt that failed has stored nothing for certain.
    for (const recheck of this.#storing) recheck.stored = false
    this.#storing.clear()
    const due = this.waiting.filter(
      (recheck) =>
        this.#isInMemoryAlone(recheck) &&
        (what === 'everything' || recheck.mustStore || recheck.attempts >= patientAttempts),
    )
    for (const recheck of due) {
      recheck.stored = true
      this.#storing.add(recheck)
      this.#store.has(recheck)
    }
    return due
  }

  /** They are durable. Real differences leave memory for the store, so that a million of them take none. */
  endStoring(): void {
    this.#storing.clear()
    for (const [key, recheck] of this.#waiting) {
      if (!recheck.stored || recheck.attempts < patientAttempts) continue
      this.#waiting.delete(key)
      this.#store.forget(key)
    }
  }

  /** Read from the store and compared equal. */
  equalInStore(uuid: string, idElement: Buffer): void {
    const key = uuid + identityKey(idElement)
    this.#store.has({ key, uuid, idElement })
    this.#equalInStore(key)
  }

  /** One that waits may rely on the stored entry; that one leaves the store when both are resolved. */
  #equalInStore(key: string): void {
    if (!this.#waiting.has(key)) this.#store.equal(key)
  }

  /** Entries that are in the store and were compared equal, up to a thousand: the store may forget them. */
  takeRemovable(): Identified[] {
    return this.#store.takeRemovable(removedAtOnce)
  }

  #isInMemoryAlone(recheck: Recheck): boolean {
    return !recheck.stored || this.#storing.has(recheck)
  }

  *#open(): Generator<Recheck> {
    yield* this.#waiting.values()
    yield* this.#taken
  }
}

function merge(into: Recheck, newer: Recheck): void {
  into.changedAt = laterOf(into.changedAt, newer.changedAt)
  for (const side of sides) into.newestBatch[side] = Math.max(into.newestBatch[side], newer.newestBatch[side])
  const isNamed = newer.newestBatch.source > 0 || newer.newestBatch.destination > 0
  into.range = isNamed ? 0 : into.range || newer.range
  into.mustStore ||= newer.mustStore
  into.notBefore = 0
  into.attempts = 0
}
