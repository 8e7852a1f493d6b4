import { setTimeout as sleep } from 'node:timers/promises'
import { type Collection, type Document, type MongoClient, MongoServerError } from 'mongodb'
import { thingsCount } from './cutover-data.ts'
import type { Random } from './random.ts'

/** UserWritesBlocked */
const userWritesBlocked = 371
const restMS = 3

interface Row extends Document {
  _id: number | string
}

export interface CutoverClientOptions {
  client: MongoClient
  /** Part of the `_id` of everything that it inserts. */
  name: string
  /** Of `app.things`, the documents of the seed that this client alone changes: those whose `_id` is odd or even. */
  changes: 'odd' | 'even'
  random: Random
}

/**
 * An application that writes on one cluster, one write after another, each with majority, and remembers what every
 * acknowledged write left. A write that is refused because user writes are blocked is not tried again; the next one is.
 */
export class CutoverClient {
  acknowledged = 0
  refused = 0
  /** Refused after a write had been acknowledged: on the destination, where a block once lifted must stay so. */
  refusedLater = 0
  /** Errors other than a refusal. */
  readonly errors: string[] = []
  readonly #options: CutoverClientOptions
  /** By collection, then by `_id`: the document as last acknowledged; null where it was deleted. */
  readonly #left = new Map<string, Map<Row['_id'], Row | null>>()
  #stopped: AbortController | null = null
  #writing: Promise<void> = Promise.resolve()
  #number = 0

  constructor(options: CutoverClientOptions) {
    this.#options = options
  }

  /** Writes until stopped; does nothing where it does already. */
  begin(): void {
    if (this.#stopped) return
    const stopped = new AbortController()
    this.#stopped = stopped
    this.#writing = this.#writing.then(() => this.#write(stopped.signal))
  }

  /** Resolves when the last write has been answered. */
  async stop(): Promise<void> {
    this.#stopped?.abort()
    this.#stopped = null
    await this.#writing
  }

  async #write(stopped: AbortSignal): Promise<void> {
    while (!stopped.aborted) {
      await this.#step().catch((error) => {
        if (!(error instanceof MongoServerError) || error.code !== userWritesBlocked) this.errors.push(String(error))
        this.refused += 1
        if (this.acknowledged > 0) this.refusedLater += 1
      })
      await sleep(restMS)
    }
  }

  async #step(): Promise<void> {
    const { random, name, changes } = this.#options
    const _id = `${name} ${this.#number++}`
    const ofSeed = 2 * random.int(0, thingsCount / 2 - 1) + (changes === 'odd' ? 1 : 0)
    const all = this.#collection('things')
    await random.weighted([
      [4, () => this.#insert('things', { _id, u: _id, by: name })],
      [2, () => this.#insert('log', { _id })],
      [2, () => this.#insert('expiring', { _id, at: new Date() })],
      [
        4,
        async () => {
          const by = `${name} ${this.#number}`
          const { matchedCount } = await all.updateOne({ _id: ofSeed }, { $set: { by } })
          // This client has deleted it before, and no other changes it.
          if (matchedCount > 0) this.#remember('things', ofSeed, { _id: ofSeed, u: ofSeed, by })
        },
      ],
      [
        1,
        async () => {
          await all.deleteOne({ _id: ofSeed })
          this.#remember('things', ofSeed, null)
        },
      ],
      // Hands a value of the unique index on, from a document that is deleted to one that is inserted.
      [1, () => this.#handOn(_id)],
    ])()
  }

  async #handOn(to: string): Promise<void> {
    const from = `${to} was first`
    await this.#insert('things', { _id: from, u: to })
    await this.#collection('things').deleteOne({ _id: from })
    this.#remember('things', from, null)
    await this.#insert('things', { _id: to, u: to })
  }

  async #insert(collection: string, document: Row): Promise<void> {
    await this.#collection(collection).insertOne(document)
    this.#remember(collection, document._id, document)
  }

  #remember(collection: string, _id: Row['_id'], document: Row | null): void {
    this.acknowledged += 1
    const left = this.#left.get(collection) ?? new Map()
    left.set(_id, document)
    this.#left.set(collection, left)
  }

  #collection(name: string): Collection<Row> {
    return this.#options.client.db('app').collection<Row>(name, { writeConcern: { w: 'majority' } })
  }

  /** What of the acknowledged writes a cluster lacks, in a line for each. */
  async missingOn(client: MongoClient): Promise<string[]> {
    const missing: string[] = []
    for (const [collection, left] of this.#left) {
      const found = await client
        .db('app')
        .collection<Row>(collection)
        .find({ _id: { $in: [...left.keys()] } })
        .toArray()
      const byId = new Map(found.map((document) => [document._id, JSON.stringify(document)]))
      for (const [_id, document] of left) {
        const want = document === null ? undefined : JSON.stringify(document)
        const have = byId.get(_id)
        if (have !== want) missing.push(`app.${collection}, _id ${_id}: acknowledged ${want}, found ${have}`)
      }
    }
    return missing
  }

  /** Makes every document that this client changed on its cluster as it is on the other one. */
  async undo(other: MongoClient): Promise<void> {
    for (const [collection, left] of this.#left) {
      const ids = [...left.keys()]
      const wanted = await other
        .db('app')
        .collection<Row>(collection)
        .find({ _id: { $in: ids } })
        .toArray()
      await this.#collection(collection).deleteMany({ _id: { $in: ids } })
      if (wanted.length > 0) await this.#collection(collection).insertMany(wanted)
    }
  }
}
