import { identityKey } from '../apply/identity.ts'
import type { ClusterTime } from '../domain/cluster-time.ts'
import { laterOf } from '../domain/cluster-time.ts'

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
  /** The first stream batch of each side that named it; 0 for none. Positions may not pass it until it is stored. */
  firstBatch: Record<Side, number>
  /** Found by scanning a range, so that range is not done until this is stored or settled. */
  found: boolean
  /** Stands in the store too, with all that is known: it is compared before any verdict, also when this process dies. */
  stored: boolean
  /** How often it was found different. */
  attempts: number
  /** Milliseconds of `performance.now()`. */
  since: number
  notBefore: number
}

/** Above this the streams are read no further and no range is scanned, until some are settled. */
const outstandingMax = 60_000
/** A document that is different is looked at again after this, twice as long each time. */
const backOffMS = 100
const longestBackOffMS = 5_000
/** Different this often: left to the store, for the verdict. */
const patientAttempts = 5
/** An unsettled document holds the stored position back this long; then it is stored itself. */
const holdPositionMS = 5_000

/** Everything that is to be compared (again), by identity: however often a document changes, it is here once. */
export class Rechecks {
  #waiting = new Map<string, Recheck>()
  readonly #taken = new Set<Recheck>()
  #settledStored: Recheck[] = []

  get count(): number {
    return this.#waiting.size + this.#taken.size
  }

  get full(): boolean {
    return this.count >= outstandingMax
  }

  /** All that nobody has taken. */
  get waiting(): Recheck[] {
    return [...this.#waiting.values()]
  }

  changed(uuid: string, idElement: Buffer, side: Side, batch: number, time: ClusterTime, now: number): void {
    const recheck = this.#known(uuid, idElement, now)
    if (recheck.firstBatch[side] === 0) recheck.firstBatch[side] = batch
    if (side === 'source') recheck.changedAt = laterOf(recheck.changedAt, time)
    recheck.notBefore = 0
    recheck.attempts = 0
    // What stands in the store is of before: a predecessor that is not done yet may remove it, and it does not say who wrote this.
    recheck.stored = false
  }

  /** A scan found it different (or on one side only). */
  suspect(uuid: string, idElement: Buffer, now: number): void {
    this.#known(uuid, idElement, now).found = true
  }

  /** Stands in the store alone: to be looked at again, for it may have become equal since it was left there. */
  revisit(uuid: string, idElement: Buffer, now: number): void {
    const key = uuid + identityKey(idElement)
    if (!this.#waiting.has(key)) this.#known(uuid, idElement, now).stored = true
  }

  #known(uuid: string, idElement: Buffer, now: number): Recheck {
    const key = uuid + identityKey(idElement)
    const known = this.#waiting.get(key)
    if (known) return known
    const recheck: Recheck = {
      key,
      uuid,
      idElement: Buffer.from(idElement),
      changedAt: 0n,
      firstBatch: { source: 0, destination: 0 },
      found: false,
      stored: false,
      attempts: 0,
      since: now,
      notBefore: 0,
    }
    this.#waiting.set(key, recheck)
    return recheck
  }

  /** Up to `limit` that are due: their last change on the source is applied. To be given back as settled or different. */
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

  settled(rechecks: readonly Recheck[]): void {
    for (const recheck of rechecks) {
      this.#taken.delete(recheck)
      if (recheck.stored) this.#settledStored.push(recheck)
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
        recheck.changedAt = laterOf(recheck.changedAt, newer.changedAt)
        for (const side of ['source', 'destination'] as const) recheck.firstBatch[side] ||= newer.firstBatch[side]
        recheck.found ||= newer.found
        recheck.stored &&= newer.stored
        recheck.notBefore = 0
        recheck.attempts = 0
      }
      this.#waiting.set(recheck.key, recheck)
    }
  }

  /** The number of the last batch of a side that a stored position may stand for. */
  safeBatch(side: Side, newest: number): number {
    let safe = newest
    const hold = (recheck: Recheck): void => {
      const first = recheck.firstBatch[side]
      if (!recheck.stored && first > 0 && first <= safe) safe = first - 1
    }
    for (const recheck of this.#waiting.values()) hold(recheck)
    for (const recheck of this.#taken) hold(recheck)
    return safe
  }

  /** What should be stored now: what scans found, and what has held positions back for long. */
  dueForStore(now: number): Recheck[] {
    const due: Recheck[] = []
    const look = (recheck: Recheck): void => {
      if (!recheck.stored && (recheck.found || now - recheck.since > holdPositionMS)) due.push(recheck)
    }
    for (const recheck of this.#waiting.values()) look(recheck)
    for (const recheck of this.#taken) look(recheck)
    return due
  }

  /** They stand in the store no longer, so what is known of them here must hold positions back again. */
  removedFromStore(rechecks: readonly { uuid: string; idElement: Buffer }[]): void {
    const keys = new Set(rechecks.map(({ uuid, idElement }) => uuid + identityKey(idElement)))
    const forget = (recheck: Recheck): void => {
      if (keys.has(recheck.key)) recheck.stored = false
    }
    for (const recheck of this.#waiting.values()) forget(recheck)
    for (const recheck of this.#taken) forget(recheck)
  }

  /** After they were stored: real differences leave memory, so that a million of them take none. */
  leavePatientOnesToStore(): void {
    for (const [key, recheck] of this.#waiting) {
      if (recheck.stored && recheck.attempts >= patientAttempts) this.#waiting.delete(key)
    }
  }

  /** Stored ones that were settled since the last call: the store may forget them. */
  takeSettledStored(): Recheck[] {
    const settled = this.#settledStored
    this.#settledStored = []
    if (settled.length === 0) return settled
    // It changed again meanwhile, and that is stored under the same key.
    const again = new Set(
      [...this.#waiting.values(), ...this.#taken].filter(({ stored }) => stored).map(({ key }) => key),
    )
    return settled.filter(({ key }) => !again.has(key))
  }
}
