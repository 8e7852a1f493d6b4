import { type CollectionDefinition, isCapped, isCollated } from './definition.ts'
import { assert } from './errors.ts'
import { namespace } from './namespace.ts'
import type { ShardKey } from './shard-key.ts'

/**
 * Every collection of the source that tandem knows, keyed by its UUID there: names are re-used, UUIDs never are.
 *
 * copying   segments may still insert; identities applied as absent are recorded as tombstones
 * copied    every document of it reached the destination once; from here on events alone keep it equal
 *
 * In memory the state is that of the partitions this instance applies; the stored one turns to copied when all have.
 */
export interface CatalogueEntry {
  readonly uuid: string
  readonly database: string
  /** Name on the destination: what the source called it when it was last reconciled. */
  name: string
  /** The destination's UUID for it; null between the intent to create it and the creation. */
  destinationUUID: string | null
  state: 'copying' | 'copied'
  wanted: CollectionDefinition
  /** Names of indexes that the destination has refused so far: they are tried again. */
  refusedIndexes: string[]
  /** How the destination distributes it; null where it is not sharded there. */
  shardKey: ShardKey | null
  /** Where the source has it now, when a read found it renamed ahead of the event. */
  sourceName: string
  estimatedBytes: number
  estimatedDocuments: number
  /** By this instance. */
  copiedBytes: number
  /** By all instances, once it is copied everywhere; null before. */
  totalCopied: number | null
  /** Partitions that have reconciled what they recorded while it was copied: it is copied when all have. */
  endedPartitions: Set<number>
  /** Its segments are cut and stored. */
  planned: boolean
  /** Identities are recorded for it. */
  hasTombstones: boolean
}

export class Catalogue {
  readonly #byUuid = new Map<string, CatalogueEntry>()

  get(uuid: string): CatalogueEntry | undefined {
    return this.#byUuid.get(uuid)
  }

  add(entry: CatalogueEntry): void {
    assert(!this.#byUuid.has(entry.uuid), `collection ${namespace(entry.database, entry.name)} is catalogued twice`)
    this.#byUuid.set(entry.uuid, entry)
  }

  remove(uuid: string): void {
    this.#byUuid.delete(uuid)
  }

  entries(): CatalogueEntry[] {
    return [...this.#byUuid.values()]
  }

  inDatabase(database: string): CatalogueEntry[] {
    return this.entries().filter((entry) => entry.database === database)
  }

  byDatabase(): Map<string, CatalogueEntry[]> {
    const databases = new Map<string, CatalogueEntry[]>()
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

/** A collection as it was found on the source, and nothing else is known of it. */
export function newEntry(
  database: string,
  { uuid, name }: { uuid: string; name: string },
  wanted: CollectionDefinition,
  state: CatalogueEntry['state'],
): CatalogueEntry {
  return {
    uuid,
    database,
    name,
    sourceName: name,
    destinationUUID: null,
    state,
    wanted,
    refusedIndexes: [],
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

/** Order is part of a capped collection's content, so its events wait until its copy has ended. */
export function waitsForCopy(entry: CatalogueEntry): boolean {
  return entry.state === 'copying' && isCapped(entry.wanted.options)
}

/** Collections whose documents must all pass through one lane. */
export function needsOneLane(entry: CatalogueEntry): boolean {
  return isCapped(entry.wanted.options) || isCollated(entry.wanted.options)
}

/** A segment is small enough to be copied anew in a second or two, and large enough that its bookkeeping is nothing. */
export const segmentBytes = 32 * 1024 * 1024

/** One contiguous range of a collection's `_id`s: the unit of copying, resumable after its last acknowledged `_id`. */
export interface Segment {
  collection: string
  ordinal: number
  /** Lower ones are copied first. */
  rank: number
  /** Typed values; null is open-ended. `from` inclusive, `to` exclusive. */
  from: Buffer | null
  to: Buffer | null
  /** Last `_id` whose insert (and that of all before it) was acknowledged. */
  last: Buffer | null
  done: boolean
  documents: number
  bytes: number
  /** The instance that copies it now had it last, too. */
  wasOwn: boolean
  /** Of this owner's claims, the one by which it has it. */
  claim: number
  /** How many times a cursor was opened for it: 1 unless it was interrupted. */
  attempts: number
}
