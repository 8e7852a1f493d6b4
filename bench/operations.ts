import type { AnyBulkWriteOperation, Document } from 'mongodb'
import { Random } from '../test/support/random.ts'
import { TextPool } from './text.ts'

export interface Item extends Document {
  _id: number
}

const textCharacters = 800
const insertShare = 0.6
const updateShare = 0.3
/** While a writer has fewer documents than this, it only inserts, so that updates and deletes have enough targets. */
const documentsMin = 100
const hotDocuments = 500
const hotShare = 0.95
/** The shard key `k` takes this many values, from 0. */
export const keyValues = 1_000

export type Mix = 'mixed' | 'hot'

/**
 * A reproducible stream of operations of one writer. No other writer changes the same documents, so the final content
 * does not depend on how the writers interleave. `mixed` has inserts, updates and deletes (60/30/10). `hot` first
 * inserts 500 documents. Afterwards 95 % of its operations update these documents, and the others are inserts.
 */
export class OperationMix {
  readonly #random: Random
  readonly #pool = new TextPool('operations', 500_000)
  readonly #ids: number[] = []
  #nextId: number
  readonly #mix: Mix
  readonly #keyed: boolean

  /** @param keyed whether documents have a shard key `k`, which every filter then names */
  constructor(writer: number, mix: Mix, keyed = false) {
    this.#mix = mix
    this.#keyed = keyed
    this.#random = new Random(`writer ${writer}`)
    this.#nextId = writer * 100_000_000
  }

  next(): AnyBulkWriteOperation<Item> {
    return this.#mix === 'hot' ? this.#hot() : this.#mixed()
  }

  #hot(): AnyBulkWriteOperation<Item> {
    if (this.#ids.length < hotDocuments || !this.#random.chance(hotShare)) return this.#insert()
    return this.#update(this.#ids[this.#random.int(0, hotDocuments - 1)] as number)
  }

  #mixed(): AnyBulkWriteOperation<Item> {
    const chance = this.#random.fraction()
    if (chance < insertShare || this.#ids.length < documentsMin) return this.#insert()
    const index = this.#random.int(0, this.#ids.length - 1)
    const _id = this.#ids[index] as number
    if (chance < insertShare + updateShare) return this.#update(_id)
    this.#ids[index] = this.#ids.at(-1) as number
    this.#ids.pop()
    return { deleteOne: { filter: this.#identity(_id) } }
  }

  take(count: number): AnyBulkWriteOperation<Item>[] {
    return Array.from({ length: count }, () => this.next())
  }

  #identity(_id: number): Item {
    return this.#keyed ? { _id, k: (_id * 7) % keyValues } : { _id }
  }

  #update(_id: number): AnyBulkWriteOperation<Item> {
    const update = { $set: { value: this.#random.fraction() }, $inc: { changes: 1 } }
    return { updateOne: { filter: this.#identity(_id), update } }
  }

  #insert(): AnyBulkWriteOperation<Item> {
    const _id = this.#nextId++
    this.#ids.push(_id)
    const text = this.#pool.piece(textCharacters)
    return { insertOne: { document: { ...this.#identity(_id), text, value: this.#random.fraction(), changes: 0 } } }
  }
}
