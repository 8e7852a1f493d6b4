import type { Binary, Document } from 'mongodb'
import type { ClusterTime } from '../domain/cluster-time.ts'
import type { SeenDatabase } from '../domain/seen-database.ts'
import { notOfLater, type StoredDocuments } from '../mongo/stored-documents.ts'
import { fromUuid, toUuid } from '../mongo/uuid.ts'

/** What definitions changed at one cluster time: by database, the UUIDs of collections whose indexes may have changed. */
export type Touched = ReadonlyMap<string, ReadonlySet<string>>

/** When definitions changed that are followed together: at one time, unless one instance has all partitions. */
export interface ChangeTimes {
  first: ClusterTime
  last: ClusterTime
}

export interface Barrier {
  time: ClusterTime
  touched: Touched
  /** Partitions that have applied everything before `time`, and wait, here or at a later one. */
  reached: Set<number>
}

/**
 * Points in the source's total order where definitions changed. Every partition stops there; when all have, the
 * coordinator makes the destination's definitions equal, once, and all go on. Stored, so that a coordinator's death in the
 * middle leaves its successor the same work: definitions are reconciled by what the source has now, so doing it again is
 * harmless.
 */
export class Barriers {
  readonly #stored: StoredDocuments
  readonly #term: () => number

  /** @param term the coordinator's: one of an earlier term ends no barrier that a later one has taken over */
  constructor(stored: StoredDocuments, term: () => number = () => 0) {
    this.#stored = stored
    this.#term = term
  }

  /**
   * First in each term: what a coordinator of an earlier one has still under way changes none of these any more. Barriers that come
   * to be later need it not, for what it has under way is about those that it had seen.
   */
  async takeOver(): Promise<void> {
    const term = this.#term()
    await this.#stored.update('barriers', [{ q: { term: notOfLater(term) }, u: { $set: { term } }, multi: true }])
  }

  /**
   * These partitions have come to the barrier. Events of one transaction share their time, and partitions see different
   * ones of its documents in between: what comes to light of a barrier that is done already opens it again.
   */
  async reach(time: ClusterTime, touched: Touched, partitions: number[]): Promise<void> {
    const _id = keyOf(time)
    const items = toStored(touched)
    const add = { reached: { $each: partitions }, touched: { $each: items } }
    const u = { $set: {}, $setOnInsert: { done: false }, $addToSet: add }
    await this.#stored.update('barriers', [
      { q: { _id }, u, upsert: true },
      { q: { _id, done: true, covered: { $not: { $all: items } } }, u: { $set: { done: false } } },
    ])
  }

  /** What was seen when it was done; null while it is not. */
  async whenDone(time: ClusterTime, touched: Touched): Promise<SeenDatabase[] | null> {
    const covered = { $all: toStored(touched) }
    const found = await this.#stored.findOne('barriers', { _id: keyOf(time), done: true, covered })
    // An earlier version stored nothing of it.
    return found && ((found['seen'] as Document[] | undefined) ?? []).map(fromSeen)
  }

  /**
   * The first that is not done. Who has come to a later one has come to this one, too: it may have gone by here, knowing what was
   * to be followed as followed, and its stored position is not beyond as long as it waits there within what it read at once.
   */
  async next(): Promise<Barrier | null> {
    const [found] = await this.#stored.find('barriers', { done: false }, { sort: { _id: 1 }, limit: 1 })
    if (!found) return null
    const projection = { schemaVersion: 1, reached: 1 }
    const later = await this.#stored.find('barriers', { _id: { $gt: found['_id'] } }, { projection })
    return {
      time: timeOf(found['_id'] as string),
      touched: fromStored(found['touched'] as Document[]),
      reached: new Set([found, ...later].flatMap((one) => one['reached'] as number[])),
    }
  }

  /** Unless more has come to light since: then it is not done, and comes again. */
  async done({ time, touched }: Barrier, seen: readonly SeenDatabase[]): Promise<void> {
    const covered = toStored(touched)
    const u = { $set: { done: true, covered, seen: seen.map(toSeen) } }
    const q = { _id: keyOf(time), touched: { $size: covered.length }, term: notOfLater(this.#term()) }
    await this.#stored.update('barriers', [{ q, u }])
  }

  /** One that somebody had come to before he got all partitions, and did what it asks for by himself. Without one, nothing. */
  async settle(time: ClusterTime, touched: Touched): Promise<void> {
    const u = { $set: { done: true, covered: toStored(touched) } }
    const q = { _id: keyOf(time), done: false, term: notOfLater(this.#term()) }
    await this.#stored.update('barriers', [{ q, u }])
  }

  /** Those that are done and that no partition will come to again, whoever gets it: all stored positions are beyond. */
  async forget(before: ClusterTime): Promise<void> {
    const q = { _id: { $lt: keyOf(before) }, done: true, term: notOfLater(this.#term()) }
    await this.#stored.delete('barriers', [{ q, limit: 0 }])
  }
}

function toSeen({ database, time, indexesOf }: SeenDatabase): Document {
  return { database, time: keyOf(time), indexesOf: [...indexesOf].map(toUuid) }
}

function fromSeen(stored: Document): SeenDatabase {
  const indexesOf = new Set((stored['indexesOf'] as Binary[]).map(fromUuid))
  return { database: stored['database'] as string, time: timeOf(stored['time'] as string), indexesOf }
}

function timeOf(key: string): ClusterTime {
  return BigInt(`0x${key}`)
}

/** In the order of the times. */
function keyOf(time: ClusterTime): string {
  return time.toString(16).padStart(16, '0')
}

/** One item for each database and for each collection of it, in the same order of fields: compared as a whole. */
function toStored(touched: Touched): Document[] {
  return [...touched].flatMap(([database, uuids]) => [
    { database, uuid: null },
    ...[...uuids].map((uuid) => ({ database, uuid: toUuid(uuid) })),
  ])
}

function fromStored(items: Document[]): Touched {
  const touched = new Map<string, Set<string>>()
  for (const { database, uuid } of items) {
    const uuids = touched.get(database) ?? new Set()
    touched.set(database, uuids)
    if (uuid) uuids.add(fromUuid(uuid as Binary))
  }
  return touched
}
