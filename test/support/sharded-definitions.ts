import { setTimeout as sleep } from 'node:timers/promises'
import type { MongoClient } from 'mongodb'
import type { Random } from './random.ts'
import { classify } from './workload-errors.ts'

const database = 'extra'
const names = ['north', 'south', 'east', 'west']
/** Error codes that a DDL command may return because of concurrent DDL or moving chunks. */
const expectedCodes = new Set([26, 27, 46, 48, 85, 86, 112, 117, 12_587, 13_388, 244, 246, 251, 336])

/** An election ends within this many attempts, which are 100 ms apart, even on a busy machine. */
const transientAttemptsMax = 300

/** Changes definitions at random on a sharded cluster (or a replica set) in a separate database. */
export class ShardedDefinitions {
  readonly #client: MongoClient
  readonly #random: Random
  readonly #sharded: boolean

  constructor(client: MongoClient, random: Random, sharded: boolean) {
    this.#client = client
    this.#random = random
    this.#sharded = sharded
  }

  /** Makes one change and returns its name. */
  async change(): Promise<string> {
    const random = this.#random
    const name = random.pick(names)
    const other = random.pick(names)
    const db = this.#client.db(database)
    const [what, work] = random.pick<[string, () => Promise<unknown>]>([
      ['create', () => this.#create(name)],
      ['create', () => this.#create(name)],
      ['drop', () => db.collection(name).drop()],
      ['rename', () => (name === other ? Promise.resolve() : db.collection(name).rename(other, { dropTarget: true }))],
      ['createIndex', () => db.collection(name).createIndex({ [random.pick(['a', 'b'])]: 1 })],
      ['dropIndex', () => db.collection(name).dropIndex(`${random.pick(['a', 'b'])}_1`)],
      ['collMod', () => db.command({ collMod: name, validator: random.chance(0.5) ? {} : { a: { $exists: true } } })],
    ])
    await this.#withRetries(work)
    return what
  }

  async #create(name: string): Promise<void> {
    const db = this.#client.db(database)
    const sharded = this.#sharded && this.#random.chance(0.5)
    if (sharded) {
      await this.#client.db('admin').command({
        shardCollection: `${database}.${name}`,
        key: this.#random.pick<Record<string, unknown>>([{ k: 1 }, { _id: 'hashed' }, { k: 'hashed' }]),
      })
    } else await db.createCollection(name)
    const documents = Array.from({ length: this.#random.int(1, 40) }, () => ({
      k: this.#random.int(0, 40),
      a: this.#random.word(4),
    }))
    await db.collection(name).insertMany(documents, { ordered: false })
  }

  /** Repeats work that an election or the restart of a router interrupts. */
  async #throughElections(work: () => Promise<unknown>): Promise<void> {
    for (let attempt = 1; ; attempt++) {
      try {
        await work()
        return
      } catch (error) {
        const isOurs = expectedCodes.has((error as { code?: number }).code ?? 0)
        if (isOurs || classify(error).kind !== 'transient' || attempt === transientAttemptsMax) throw error
        await sleep(100)
      }
    }
  }

  /**
   * Retries while concurrent operations block the command, and skips a command that is impossible (the collection
   * already exists, is gone, or has another shard key).
   */
  async #withRetries(work: () => Promise<unknown>): Promise<void> {
    for (let attempt = 0; attempt < 10; attempt++) {
      try {
        await this.#throughElections(work)
        return
      } catch (error) {
        const { code } = error as { code?: number }
        if (code === undefined) throw error
        if (![46, 112, 117, 12_587, 13_388, 244, 246, 251, 336].includes(code)) {
          if (!expectedCodes.has(code) && ![20, 23, 72, 10_026].includes(code)) throw error
          return
        }
        await sleep(50)
      }
    }
  }
}
