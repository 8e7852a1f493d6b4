import type { KeyValues } from './choose-chunks.ts'
import { compareKeys } from './compare-values.ts'
import { hashedValue } from './hashed-value.ts'
import { bsonType, type TypedValue } from './raw-bson.ts'
import type { ShardKey } from './shard-key.ts'

/** A chunk by its lower bound, which is inclusive. The fields of the bound are those of the shard key. */
export interface ChunkStart {
  min: KeyValues
  shard: string
}

export interface ChunkLocation {
  shard: string
  /**
   * The number of leading fields of the key that decide the shard. All documents with the same values of these fields
   * are on the same shard.
   */
  fields: number
}

const minKey: TypedValue = Buffer.from([bsonType.minKey])
const maxKey: TypedValue = Buffer.from([bsonType.maxKey])

/**
 * Tells on which shard a document of a collection was when the chunks were read. tandem uses this only to divide a batch
 * into commands. The router decides to which shards it sends a command, so an outdated map causes additional requests
 * but no wrong results.
 */
export class ChunkMap {
  readonly key: ShardKey
  /**
   * False if the bound of a chunk does not have as many fields as the key. This happens if the key is refined between the
   * read of the key and the read of the chunks.
   */
  readonly isConsistent: boolean
  /** The first chunk of each group of adjacent chunks on one shard, ascending. */
  readonly #starts: readonly ChunkStart[]

  /** @param chunks all chunks of the collection, ascending */
  constructor(key: ShardKey, chunks: readonly ChunkStart[]) {
    this.key = key
    this.isConsistent = chunks.every(({ min }) => min.length === key.length)
    this.#starts = chunks.filter(({ shard }, at) => shard !== chunks[at - 1]?.shard)
  }

  /** False if one shard has all chunks. A router then sends every request to that shard alone. */
  get isDistributed(): boolean {
    return this.#starts.length > 1
  }

  /**
   * Finds the shard of a document; null if it is not known.
   * @param values the values of all fields of the shard key
   */
  locate(values: KeyValues): ChunkLocation | null {
    const bounded: TypedValue[] = []
    for (const [at, value] of values.entries()) {
      const one = this.key[at]?.hashed ? hashedValue(value) : value
      if (one === null) return null
      bounded.push(one)
    }
    const at = this.#lastAtOrBelow(bounded)
    const start = this.#starts[at]
    if (!start) return null
    const end = this.#starts[at + 1]
    let fields = 1
    while (fields < bounded.length && !isInside(bounded, fields, start, end)) fields++
    return { shard: start.shard, fields }
  }

  #lastAtOrBelow(values: KeyValues): number {
    let from = 0
    let to = this.#starts.length
    while (from < to) {
      const middle = (from + to) >> 1
      if (compareKeys((this.#starts[middle] as ChunkStart).min, values) <= 0) from = middle + 1
      else to = middle
    }
    return from - 1
  }
}

/** True if all keys that begin with the first `fields` values are at `start` or above, and below `end`. */
function isInside(values: KeyValues, fields: number, start: ChunkStart, end: ChunkStart | undefined): boolean {
  const filledWith = (value: TypedValue): KeyValues => values.map((one, at) => (at < fields ? one : value))
  if (compareKeys(start.min, filledWith(minKey)) > 0) return false
  return end === undefined || compareKeys(filledWith(maxKey), end.min) < 0
}
