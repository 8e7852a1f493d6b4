import type { Binary, Document } from 'mongodb'
import type { ClusterTime } from '../domain/cluster-time.ts'
import type { ObservedDatabase } from '../domain/observed-database.ts'
import { notOfLater, type StoredDocuments, type StoredVersion } from '../mongo/stored-documents.ts'
import { fromUuid, toUuid } from '../mongo/uuid.ts'

/**
 * The definitions that changed at one cluster time: for each database, the UUIDs of collections whose indexes may have
 * changed.
 */
export type Touched = ReadonlyMap<string, ReadonlySet<string>>

/**
 * Range of the cluster times of definition changes that are applied together. `first` and `last` are equal unless one
 * instance owns all partitions.
 */
export interface ChangeTimes {
  first: ClusterTime
  last: ClusterTime
}

export interface Barrier {
  time: ClusterTime
  touched: Touched
  /** Partitions that have applied everything before `time` and wait at this barrier or at a later one. */
  reached: Set<number>
}

/**
 * The version of stored barriers. Version 2 stores what the coordinator read from the catalog in the field `observed`.
 * Earlier releases read it from `seen`, where they would find nothing.
 */
export const barriersVersion: StoredVersion = { writes: 2, reads: [1, 2] }

/**
 * Cluster times at which definitions changed on the source. Every partition stops at a barrier. When all partitions
 * have stopped, the coordinator reconciles the destination's definitions once, and all partitions continue. Barriers
 * are stored, so that a new coordinator finds the work that its predecessor left unfinished. It may repeat the work
 * safely, because definitions are reconciled with the current definitions of the source.
 */
export class Barriers {
  readonly #stored: StoredDocuments
  readonly #coordinator: { readonly term: number }

  /** @param coordinator its term fences the writes: they cannot change barriers that a later term has taken over */
  constructor(stored: StoredDocuments, coordinator: { readonly term: number } = { term: 0 }) {
    this.#stored = stored
    this.#coordinator = coordinator
  }

  /**
   * Call first in each term: from then on, delayed writes of earlier coordinators cannot change the existing barriers.
   * Barriers that are created later need no protection from most of these writes, which concern only barriers that
   * existed when the writes were sent. The exception is a delayed `removeAll`, which also matches later barriers.
   */
  async takeOver(): Promise<void> {
    const { term } = this.#coordinator
    await this.#stored.update('barriers', [{ q: { term: notOfLater(term) }, u: { $set: { term } }, multi: true }])
  }

  /**
   * Records that these partitions have reached the barrier. Events of one transaction share a cluster time, and each
   * partition receives the events of only some documents, so definition changes may be found after the barrier is done.
   * Then the barrier is no longer done.
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

  /**
   * Returns what the coordinator read from the catalog when it finished the barrier; null while the barrier is not done
   * for all of these changes.
   */
  async whenDone(time: ClusterTime, touched: Touched): Promise<ObservedDatabase[] | null> {
    const covered = { $all: toStored(touched) }
    const found = await this.#stored.findOne('barriers', { _id: keyOf(time), done: true, covered })
    // Version 1 has the field `seen` instead. A barrier may have neither field, for example after `markDone`.
    return found && ((found['observed'] ?? found['seen'] ?? []) as Document[]).map(fromStoredRead)
  }

  /**
   * Returns the first barrier that is not done. A partition that waits at a later barrier counts as having reached the
   * returned one. The partition may have passed the returned barrier while that barrier was done, before another
   * partition reported more changes. The partition's stored position does not show this, because the position stays
   * before the returned barrier while the partition waits within the same batch.
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

  /**
   * Marks the barrier as done, unless more changes were recorded since the barrier was read. In that case `next`
   * returns it again.
   */
  async done({ time, touched }: Barrier, observed: readonly ObservedDatabase[]): Promise<void> {
    const covered = toStored(touched)
    const u = { $set: { done: true, covered, observed: observed.map(toStoredRead) }, $unset: { seen: '' } }
    const q = { _id: keyOf(time), touched: { $size: covered.length }, term: notOfLater(this.#coordinator.term) }
    await this.#stored.update('barriers', [{ q, u }])
  }

  /**
   * Marks a barrier as done if it exists. An instance that owns all partitions calls this after it has applied the
   * changes alone. The barrier may have been recorded before this instance owned all partitions.
   */
  async markDone(time: ClusterTime, touched: Touched): Promise<void> {
    const u = { $set: { done: true, covered: toStored(touched) } }
    const q = { _id: keyOf(time), done: false, term: notOfLater(this.#coordinator.term) }
    await this.#stored.update('barriers', [{ q, u }])
  }

  /** Removes all barriers. The caller owns all partitions, and moves them to a position after every barrier. */
  async removeAll(): Promise<void> {
    await this.#stored.delete('barriers', [{ q: { term: notOfLater(this.#coordinator.term) }, limit: 0 }])
  }

  /**
   * Removes the barriers that are done and that no partition can reach again, because all stored positions are after
   * them.
   */
  async removePassed(before: ClusterTime): Promise<void> {
    const q = { _id: { $lt: keyOf(before) }, done: true, term: notOfLater(this.#coordinator.term) }
    await this.#stored.delete('barriers', [{ q, limit: 0 }])
  }
}

function toStoredRead({ database, time, indexesOf }: ObservedDatabase): Document {
  return { database, time: keyOf(time), indexesOf: [...indexesOf].map(toUuid) }
}

function fromStoredRead(stored: Document): ObservedDatabase {
  const indexesOf = new Set((stored['indexesOf'] as Binary[]).map(fromUuid))
  return { database: stored['database'] as string, time: timeOf(stored['time'] as string), indexesOf }
}

function timeOf(key: string): ClusterTime {
  return BigInt(`0x${key}`)
}

/** Keys sort in the order of their times. */
function keyOf(time: ClusterTime): string {
  return time.toString(16).padStart(16, '0')
}

/**
 * One item for each database and one for each of its collections. The field order is fixed, because the server compares
 * items as a whole.
 */
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
