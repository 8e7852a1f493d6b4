import type { ClusterTime } from './cluster-time.ts'
import { type CollectionDefinition, isCapped, isCollated } from './definition.ts'
import { assert } from './errors.ts'
import { namespace } from './namespace.ts'
import type { NaturalRead } from './natural-order.ts'
import type { ShardKey } from './shard-key.ts'

/**
 * One collection of the source that tandem knows. The key is its UUID on the source, because a new collection often
 * gets the name of an earlier one. A replica set can also create a collection with the UUID of an earlier one
 * (`createdAgain`).
 *
 * copying   the copy may still insert documents; when event application finds that a document is absent on the source,
 *           it records the identity as a tombstone
 * copied    every document has reached the destination once; from now on only change events change the collection
 *
 * The state in memory describes only the partitions that this instance applies. The stored state becomes `copied` when
 * all partitions have ended the copy (`endedPartitions`).
 */
export interface CatalogEntry {
  readonly uuid: string
  readonly database: string
  /** Name on the destination. It is the name that the collection had on the source at the last reconciliation. */
  name: string
  /** UUID on the destination; null until the collection is created there. The entry is stored before that. */
  destinationUUID: string | null
  state: 'copying' | 'copied'
  /**
   * True if the destination's collection may have had documents before this copy. While the state is `copying`, its
   * ranges are compared with those of the source, and only differing documents are written.
   */
  converging: boolean
  /**
   * The start time of the collection's last convergence; null if there was none. The convergence reads the source at
   * this time or later, so it includes every change up to this time, also changes that have no events. An event up to
   * this time may therefore contain an older version of its document than the destination has (`unlessOlder`).
   */
  convergedFrom: ClusterTime | null
  /** The definition on the source at the last reconciliation. */
  wanted: CollectionDefinition
  /** Names of the indexes that the destination has refused so far. tandem tries to build them again. */
  refusedIndexes: string[]
  /**
   * True while the indexes are delayed until the copy of the collection has ended. Indexes that its shard key needs are
   * built earlier.
   */
  awaitsIndexes: boolean
  /** The shard key on the destination; null if the collection is not sharded there. */
  shardKey: ShardKey | null
  /** The name on the source. Differs from `name` if a read of the source found a rename before its event arrived. */
  sourceName: string
  estimatedBytes: number
  estimatedDocuments: number
  /** Bytes copied by this instance. */
  copiedBytes: number
  /** Bytes copied by all instances, once every partition has ended the copy; null before. */
  totalCopied: number | null
  /**
   * Partitions that have reconciled the tombstones recorded during the copy. The collection is copied when all
   * partitions are in this set.
   */
  endedPartitions: Set<number>
  /** True if the collection is split into segments and these are stored. */
  planned: boolean
  /** True if this instance knows that tombstones are recorded. Other instances may have recorded some as well. */
  hasTombstones: boolean
}

export class Catalog {
  readonly #byUuid = new Map<string, CatalogEntry>()

  get(uuid: string): CatalogEntry | undefined {
    return this.#byUuid.get(uuid)
  }

  add(entry: CatalogEntry): void {
    assert(!this.#byUuid.has(entry.uuid), `collection ${namespace(entry.database, entry.name)} is in the catalog twice`)
    this.#byUuid.set(entry.uuid, entry)
  }

  remove(uuid: string): void {
    this.#byUuid.delete(uuid)
  }

  entries(): CatalogEntry[] {
    return [...this.#byUuid.values()]
  }

  inDatabase(database: string): CatalogEntry[] {
    return this.entries().filter((entry) => entry.database === database)
  }

  byDatabase(): Map<string, CatalogEntry[]> {
    const databases = new Map<string, CatalogEntry[]>()
    for (const entry of this.#byUuid.values()) {
      const known = databases.get(entry.database)
      if (known) known.push(entry)
      else databases.set(entry.database, [entry])
    }
    return databases
  }

  databases(): Set<string> {
    return new Set(this.entries().map((entry) => entry.database))
  }
}

/** Returns the entry of a collection that was found on the source and does not exist on the destination yet. */
export function newEntry(
  database: string,
  { uuid, name }: { uuid: string; name: string },
  wanted: CollectionDefinition,
  state: CatalogEntry['state'],
): CatalogEntry {
  return {
    uuid,
    database,
    name,
    sourceName: name,
    destinationUUID: null,
    state,
    converging: false,
    convergedFrom: null,
    wanted,
    refusedIndexes: [],
    awaitsIndexes: false,
    shardKey: null,
    estimatedBytes: 0,
    estimatedDocuments: 0,
    copiedBytes: 0,
    totalCopied: state === 'copied' ? 0 : null,
    endedPartitions: new Set(),
    planned: false,
    hasTombstones: false,
  }
}

/**
 * True if events must wait until the copy has ended, because insertion order is part of a capped collection's content.
 */
export function waitsForCopy(entry: CatalogEntry): boolean {
  return entry.state === 'copying' && isCapped(entry.wanted.options)
}

/** True if changes of all documents of the collection must be applied in one sequence (in one of the `Lanes`). */
export function needsOneLane(entry: CatalogEntry): boolean {
  return isCapped(entry.wanted.options) || isCollated(entry.wanted.options)
}

/**
 * Intended size of a segment. It is small enough to be copied again within two seconds, and large enough that storing
 * its progress costs little.
 */
export const segmentBytes = 32 * 1024 * 1024

/**
 * One contiguous range of a collection's `_id`s, the unit of the copy. An interrupted copy resumes after the last
 * acknowledged `_id` of the segment. A collection that is read in natural order has one segment without bounds. That
 * segment resumes at a token in `natural`. Until that segment is done, no `_id` shows which documents are copied.
 */
export interface Segment {
  /** UUID on the source. */
  collection: string
  /** Position of the range among those of the collection, from 0. */
  ordinal: number
  /** Segments with a lower value are copied first. */
  priority: number
  /** The bounds as typed values; null for no bound. `from` is inclusive, `to` is exclusive. */
  from: Buffer | null
  to: Buffer | null
  /** The inserts of the segment's documents up to this `_id` are acknowledged; null before the first of them. */
  last: Buffer | null
  /** Null if the segment is read in `_id` order. */
  natural: NaturalRead | null
  done: boolean
  /** Documents and bytes that are copied so far. */
  documents: number
  bytes: number
  /** True if the instance that owns the segment was also its previous owner. */
  wasOwn: boolean
  /** The number of the claim by which the owner got this segment. */
  claim: number
  /** How many times the copy of the segment was started: 0 before the first time, more than 1 after an interruption. */
  attempts: number
}
