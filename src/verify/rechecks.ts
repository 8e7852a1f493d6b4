import { randomUUID } from 'node:crypto'
import { identityKey } from '../documents/identity.ts'
import type { ClusterTime } from '../domain/cluster-time.ts'
import { laterOf } from '../domain/cluster-time.ts'
import { type Identified, KnownInStore } from './known-in-store.ts'

export type Side = 'source' | 'destination'

/** A document that must be compared (again), because it changed or a comparison found it different. */
export interface Recheck {
  readonly key: string
  /** UUID of its collection on the source. */
  readonly uuid: string
  /** The whole `_id` element, copied from the event or document. */
  readonly idElement: Buffer
  /**
   * The document key in all events of the document, by which it is read on the source; null if it must be read by
   * `_id`. Only a read by `_id` finds two source documents with the same `_id`. The second one appears through an
   * insert, or the scan finds it. So only a recheck that updates or replacements alone created has a key, and it loses
   * the key when it is found different or is stored.
   */
  documentKey: Buffer | null
  /** Time of the document's newest change on the source. The comparison waits until that change is applied. */
  changedAt: ClusterTime
  /**
   * The newest batch of each stream with an event of the document; 0 for none. Stored positions stay before that batch
   * (`safeBatch`).
   */
  newestBatch: Record<Side, number>
  /**
   * Number of the range in which the scan found the document different; 0 if the scan did not, or if a stream has an
   * event of the document (`safeRange`).
   */
  range: number
  /** True if the stored entry is enough for the document to be compared before any verdict even after a crash. */
  stored: boolean
  /** The token of its entry in the store; null if this verifier has not stored it. */
  token: string | null
  /**
   * True if neither a stream nor the scan would create this recheck again after a restart. It is then stored before any
   * position advances.
   */
  mustStore: boolean
  /** Number of comparisons since its last change that did not find it equal. */
  attempts: number
  /** The earliest time of the next comparison, in milliseconds of `performance.now()`. */
  notBefore: number
}

/** With this many open rechecks, the streams and the scan pause until some are resolved. */
const outstandingMax = 60_000
/** Half the first delay (ms) before a different document is compared again. The delay doubles each time. */
const retryDelayMS = 100
const retryDelayMaxMS = 5_000
/** After this many comparisons (about 3 s with these delays), a recheck that stays different moves to the store. */
const attemptsInMemory = 5

/** Number of entries that one call removes from the store. Such a call takes the destination tens of milliseconds. */
const removedAtOnce = 1_000

/** Document keys of more bytes than this are not kept, so that `outstandingMax` keys take at most 15 MB. */
const documentKeyMax = 256

const sides = ['source', 'destination'] as const

/**
 * All documents that must be compared (again), by identity. There is one recheck per document, however often it
 * changes. The change streams are the durable queue: most rechecks exist only in memory, and the stored position of
 * each stream stays before the newest batch with an event of such a document. This is safe if the process crashes at
 * any time:
 *
 * - Assume that a document changed on one side after it was last compared equal, and that `newest` is the last batch of
 *   that side's stream with an event of the document. The stored position is before `newest`, so a restart reads
 *   `newest` again and creates the recheck again. The events of earlier batches are not needed: they are of the same
 *   side, and a comparison reads the current document, not the event.
 * - Therefore a document that changes often does not hold the position back: each change lets the position advance to
 *   the batch before that change.
 * - A document that a scan found different may have no event. Its range is not stored as done until the document is
 *   resolved or stored, or until a stream has an event of it. From then on, the position of that stream covers it.
 * - Only a document that stays different over several comparisons is stored on its own. The store then covers it until
 *   it changes again.
 */
export class Rechecks {
  readonly #waiting = new Map<string, Recheck>()
  readonly #taken = new Set<Recheck>()
  /** Rechecks being written to the store. Positions stay before them until the write has ended. */
  readonly #storing = new Set<Recheck>()
  readonly #store = new KnownInStore()

  get count(): number {
    return this.#waiting.size + this.#taken.size
  }

  get full(): boolean {
    return this.count >= outstandingMax
  }

  /** All rechecks that are not being compared now. */
  get waiting(): Recheck[] {
    return [...this.#waiting.values()]
  }

  /** @param documentKey the document key of an update or a replacement; null for other events */
  changed(
    uuid: string,
    idElement: Buffer,
    side: Side,
    batch: number,
    time: ClusterTime,
    documentKey: Buffer | null = null,
  ): void {
    const recheck = this.#known(uuid, idElement, documentKey)
    recheck.newestBatch[side] = batch
    if (side === 'source') recheck.changedAt = laterOf(recheck.changedAt, time)
    recheck.range = 0
    recheck.notBefore = 0
    recheck.attempts = 0
    // The stored entry does not record which side this change was on, and a delayed removal by an earlier verifier may
    // delete it.
    recheck.stored = false
  }

  /** Called when the scan of this range (numbered from 1) found the document different or on one side only. */
  suspect(uuid: string, idElement: Buffer, range: number): void {
    const recheck = this.#known(uuid, idElement)
    if (recheck.newestBatch.source === 0 && recheck.newestBatch.destination === 0) recheck.range ||= range
  }

  /** Called when a comparison of another `_id`, equal to this one under a collation, also found this document different. */
  foundDifferent(uuid: string, idElement: Buffer): void {
    this.#known(uuid, idElement).mustStore = true
  }

  /** Adds a stored recheck to be compared again, because it may have become equal since it was stored. */
  revisit({ uuid, idElement, token }: Omit<Identified, 'key'>): void {
    const key = uuid + identityKey(idElement)
    this.#store.add({ key, uuid, idElement: Buffer.from(idElement), token })
    const isWaiting = this.#waiting.has(key)
    const recheck = this.#known(uuid, idElement)
    if (isWaiting) return
    recheck.stored = true
    recheck.attempts = attemptsInMemory - 1 // if it is still different, it leaves memory at once
  }

  #known(uuid: string, idElement: Buffer, documentKey: Buffer | null = null): Recheck {
    const key = uuid + identityKey(idElement)
    const known = this.#waiting.get(key)
    if (known) {
      if (!documentKey || !known.documentKey?.equals(documentKey)) known.documentKey = null
      return known
    }
    const recheck: Recheck = {
      key,
      uuid,
      idElement: Buffer.from(idElement),
      documentKey: documentKey && documentKey.length <= documentKeyMax ? Buffer.from(documentKey) : null,
      changedAt: 0n,
      newestBatch: { source: 0, destination: 0 },
      range: 0,
      stored: false,
      token: null,
      mustStore: false,
      attempts: 0,
      notBefore: 0,
    }
    this.#waiting.set(key, recheck)
    return recheck
  }

  /**
   * Takes up to `limit` rechecks that are due: their last change on the source is applied and their delay is over. The
   * caller must return each with `equal` or `different`.
   */
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

  /**
   * Resolves rechecks that were compared equal or whose collection was dropped. If the document has changed since, the
   * recheck of that change stays. A stored entry may exist because of a second document with the same `_id`, which a
   * read by document key does not find. The entry stays until a read by `_id` has compared it.
   */
  equal(rechecks: readonly Recheck[]): void {
    for (const recheck of rechecks) {
      this.#taken.delete(recheck)
      if (!recheck.documentKey) this.#equalInStore(recheck.key)
    }
  }

  /**
   * Takes back rechecks that are not equal yet or were not compared. They wait again, and newer changes are merged into
   * them.
   */
  different(rechecks: readonly Recheck[], now: number): void {
    for (const recheck of rechecks) {
      this.#taken.delete(recheck)
      const newer = this.#waiting.get(recheck.key)
      recheck.attempts += 1
      recheck.documentKey = null
      recheck.notBefore = now + Math.min(retryDelayMS * 2 ** recheck.attempts, retryDelayMaxMS)
      if (newer) {
        recheck.stored &&= !this.#isOnlyInMemory(newer)
        merge(recheck, newer)
      }
      this.#waiting.set(recheck.key, recheck)
    }
  }

  /** Returns the number of the last batch of this side that the stored position may pass. */
  safeBatch(side: Side, newest: number): number {
    let safe = newest
    for (const recheck of this.#open()) {
      const held = recheck.newestBatch[side]
      if (held > 0 && held <= safe && this.#isOnlyInMemory(recheck)) safe = held - 1
    }
    return safe
  }

  /** Returns the number of the last scanned range that may be stored as done. */
  safeRange(): number {
    let safe = Number.POSITIVE_INFINITY
    for (const recheck of this.#open()) {
      const { range } = recheck
      if (range > 0 && range <= safe && this.#isOnlyInMemory(recheck)) safe = range - 1
    }
    return safe
  }

  /**
   * Returns the rechecks to store now, of those that are neither stored nor being compared: those that stay different or
   * must be stored or, with `everything`, all. Positions stay before them until `endStoring` is called.
   */
  beginStoring(what: 'stillDifferent' | 'everything'): Recheck[] {
    // A failed attempt may have stored nothing.
    for (const recheck of this.#storing) recheck.stored = false
    this.#storing.clear()
    const due = this.waiting.filter(
      (recheck) =>
        this.#isOnlyInMemory(recheck) &&
        (what === 'everything' || recheck.mustStore || recheck.attempts >= attemptsInMemory),
    )
    const token = randomUUID()
    for (const recheck of due) {
      recheck.stored = true
      recheck.token = token
      recheck.documentKey = null
      this.#storing.add(recheck)
      this.#store.add(recheck)
    }
    return due
  }

  /** Called when the rechecks of `beginStoring` are stored. Those that stay different are then removed from memory. */
  endStoring(): void {
    this.#storing.clear()
    for (const [key, recheck] of this.#waiting) {
      if (!recheck.stored || recheck.attempts < attemptsInMemory) continue
      this.#waiting.delete(key)
      this.#store.drop(key)
    }
  }

  /** Called when a recheck that was read from the store was compared equal. */
  equalInStore({ uuid, idElement, token }: Omit<Identified, 'key'>): void {
    const key = uuid + identityKey(idElement)
    this.#store.add({ key, uuid, idElement, token })
    this.#equalInStore(key)
  }

  /** Keeps a stored entry while a recheck of its document waits, because the recheck may rely on the entry. */
  #equalInStore(key: string): void {
    if (!this.#waiting.has(key)) this.#store.equal(key)
  }

  /** Returns up to a thousand stored entries that were compared equal and can be removed from the store. */
  takeRemovable(): Identified[] {
    return this.#store.takeRemovable(removedAtOnce)
  }

  #isOnlyInMemory(recheck: Recheck): boolean {
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
