import type { ClientSession, Db, IndexDescription } from 'mongodb'
import { Random } from '../test/support/random.ts'
import { TextPool } from './text.ts'

/**
 * The business of a wholesaler in the manner of TPC-C: several collections with secondary indexes, in which transactions insert,
 * update and delete a few documents each. It is the load of the section `directions`.
 */
export const orderCollections: Record<string, IndexDescription[]> = {
  customers: [{ key: { name: 1 } }, { key: { city: 1, balance: -1 } }],
  districts: [{ key: { region: 1 } }],
  stock: [{ key: { item: 1, quantity: 1 } }, { key: { supplier: 1 } }],
  orders: [{ key: { number: 1 }, unique: true }, { key: { customer: 1, at: -1 } }, { key: { state: 1 } }],
  lines: [{ key: { order: 1 } }, { key: { item: 1 } }],
  queue: [{ key: { district: 1, at: 1 } }],
}

export interface OrderData {
  customers: number
  districts: number
  stock: number
}

const linesOfOrder = 5
/** One in so many transactions delivers the oldest order of its writer instead of entering a new one. */
const deliveryShare = 0.4
const insertBatch = 5_000

/** Creates the collections with their indexes, and the documents that exist before the load. */
export async function fillOrders(db: Db, data: OrderData): Promise<void> {
  const random = new Random('orders')
  const pool = new TextPool('orders', 200_000)
  for (const [name, indexes] of Object.entries(orderCollections)) await db.collection(name).createIndexes(indexes)
  const documents = {
    customers: (): object => ({
      ...{ name: pool.piece(16), city: random.int(0, 200) },
      balance: 0,
      text: pool.piece(400),
    }),
    districts: (): object => ({ region: random.int(0, 9), sold: 0, text: pool.piece(80) }),
    stock: (): object => ({ ...stockKeys(random), quantity: 1_000, sold: 0, text: pool.piece(250) }),
  }
  for (const [name, make] of Object.entries(documents)) {
    const count = data[name as keyof OrderData]
    for (let from = 0; from < count; from += insertBatch) {
      const length = Math.min(insertBatch, count - from)
      const batch = Array.from({ length }, (_, offset) => ({ _id: from + offset, ...make() }))
      await db.collection<{ _id: number }>(name).insertMany(batch, { ordered: false })
    }
  }
}

function stockKeys(random: Random): object {
  return { item: random.int(0, 50_000), supplier: random.int(0, 100) }
}

/** The transactions of one writer. The seed determines which documents they change. */
export class OrderMix {
  readonly #db: Db
  readonly #data: OrderData
  readonly #random: Random
  readonly #pool = new TextPool('order mix', 100_000)
  readonly #seed: string
  /** Orders that this writer has entered and not delivered. */
  readonly #open: string[] = []
  #entered = 0

  constructor(db: Db, data: OrderData, seed: string) {
    this.#db = db
    this.#data = data
    this.#seed = seed
    this.#random = new Random(seed)
  }

  /** Chooses the next transaction. The returned function may run several times, because the driver repeats a conflicting one. */
  next(): (session: ClientSession) => Promise<void> {
    const delivered = this.#random.chance(deliveryShare) ? this.#open.shift() : undefined
    return delivered === undefined ? this.#enter() : this.#deliver(delivered)
  }

  #enter(): (session: ClientSession) => Promise<void> {
    const number = `${this.#seed} ${this.#entered++}`
    this.#open.push(number)
    const random = this.#random
    const customer = random.int(0, this.#data.customers - 1)
    const district = random.int(0, this.#data.districts - 1)
    const at = this.#entered
    const items = [...new Set(Array.from({ length: linesOfOrder }, () => random.int(0, this.#data.stock - 1)))]
    const lines = items.map((item, line) => ({
      ...{ _id: `${number} ${line}`, order: number, item, quantity: random.int(1, 10) },
      text: this.#pool.piece(120),
    }))
    const order = { _id: number, number, customer, at, state: 'open', text: this.#pool.piece(200) }
    return async (session) => {
      const options = { session }
      const of = (name: string) => this.#db.collection<{ _id: string | number }>(name)
      await of('orders').insertOne(order, options)
      await of('lines').insertMany(lines, options)
      const sold = lines.map(({ item, quantity }) => ({
        updateOne: { filter: { _id: item }, update: { $inc: { quantity: -quantity, sold: quantity } } },
      }))
      await of('stock').bulkWrite(sold, { session, ordered: false })
      await of('queue').insertOne({ _id: number, ...{ district, at } }, options)
      await of('districts').updateOne({ _id: district }, { $inc: { sold: 1 } }, options)
    }
  }

  #deliver(number: string): (session: ClientSession) => Promise<void> {
    const customer = this.#random.int(0, this.#data.customers - 1)
    return async (session) => {
      const options = { session }
      const of = (name: string) => this.#db.collection<{ _id: string | number }>(name)
      await of('queue').deleteOne({ _id: number }, options)
      await of('orders').updateOne({ _id: number }, { $set: { state: 'delivered' } }, options)
      await of('customers').updateOne({ _id: customer }, { $inc: { balance: 1 } }, options)
    }
  }
}
