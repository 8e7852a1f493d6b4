import type { AnyBulkWriteOperation, Collection } from 'mongodb'
import { Random } from './random.ts'
import type { Row } from './rows.ts'

/** The share of each kind of write. The others are updates. */
const shares = { insert: 0.25, delete: 0.08, keyChange: 0.03 }
/** A round has at most one write of each document, because the writes of a round may be executed in any order. */
const roundWrites = 500
export const keyValues = 1_000
const regions = 4
/** How far a key change moves `k`. It is more than the width of one chunk when four shards share the keys. */
const keyStep = 400

interface Keyed {
  _id: number
  k: number
  region: number
}

/**
 * Performs random single-document writes on a collection whose shard key consists of `k`, `region` or both. Each write
 * contains the shard key, so the router sends it to one shard.
 */
export class KeyedWrites {
  /** `removed` counts the documents that were deleted or moved to another key. */
  readonly counts = { writes: 0, inserts: 0, keyChanges: 0, removed: 0 }
  readonly #collection: Collection<Row>
  readonly #random: Random
  readonly #live: Keyed[]
  #nextId: number

  private constructor(collection: Collection<Row>, live: Keyed[], seed: string) {
    this.#collection = collection
    this.#live = live
    this.#nextId = live.length
    this.#random = new Random(seed)
  }

  /** Inserts the documents that exist before the writes. */
  static async on(collection: Collection<Row>, documents: number, seed: string): Promise<KeyedWrites> {
    const live = Array.from({ length: documents }, (_, _id) => ({
      ...{ _id, k: (_id * 7) % keyValues, region: _id % regions },
    }))
    await collection.insertMany(live.map((row) => ({ ...row, n: 0 })))
    return new KeyedWrites(collection, live, seed)
  }

  async run(writes: number): Promise<void> {
    for (let left = writes; left > 0; left -= roundWrites) await this.#round(Math.min(left, roundWrites))
  }

  async #round(writes: number): Promise<void> {
    const operations: AnyBulkWriteOperation<Row>[] = []
    const keyChanges: { filter: Keyed; k: number }[] = []
    const touched = new Set<number>()
    while (touched.size < writes) {
      const chance = this.#random.fraction()
      if (chance < shares.insert) {
        const row = this.#newRow()
        operations.push({ insertOne: { document: { ...row, n: 0 } } })
        touched.add(row._id)
        this.#live.push(row)
        this.counts.inserts += 1
        continue
      }
      const at = this.#random.int(0, this.#live.length - 1)
      const row = this.#live[at] as Keyed
      if (touched.has(row._id)) continue
      touched.add(row._id)
      if (chance < shares.insert + shares.delete) {
        operations.push({ deleteOne: { filter: row } })
        this.#live[at] = this.#live.at(-1) as Keyed
        this.#live.pop()
        this.counts.removed += 1
      } else if (chance < shares.insert + shares.delete + shares.keyChange) {
        const moved = { ...row, k: (row.k + keyStep) % keyValues }
        keyChanges.push({ filter: row, k: moved.k })
        this.#live[at] = moved
        this.counts.keyChanges += 1
        this.counts.removed += 1
      } else operations.push({ updateOne: { filter: { ...row }, update: { $inc: { n: 1 } } } })
    }
    await this.#collection.bulkWrite(operations, { ordered: false })
    // A router accepts an update of a shard key only if it is the only statement of its command.
    for (const { filter, k } of keyChanges) await this.#collection.updateOne({ ...filter }, { $set: { k } })
    this.counts.writes += writes
  }

  #newRow(): Keyed {
    return { _id: this.#nextId++, k: this.#random.int(0, keyValues - 1), region: this.#random.int(0, regions - 1) }
  }
}
