import { setTimeout as sleep } from 'node:timers/promises'
import { type Collection, type Document, type MongoClient, MongoServerError } from 'mongodb'
import { thingsCount } from './cutover-data.ts'
import type { Random } from './random.ts'

/** The server's error code UserWritesBlocked. */
const userWritesBlocked = 371
const intervalMS = 3

interface Row extends Document {
  _id: number | string
}

export interface CutoverClientOptions {
  client: MongoClient
  /** Part of the `_id` of every document that this client inserts. */
  name: string
  /** The seed documents of `app.things` that only this client changes: those whose `_id` is odd or even. */
  changes: 'odd' | 'even'
  random: Random
}

/**
 * An application that writes to one cluster. It sends one write after another with majority write concern and remembers the
 * result of every acknowledged write. It does not retry a write that user write blocking rejects, but continues with the next.
 */
export class CutoverClient {
  acknowledged = 0
  refused = 0
  /**
   * Number of writes that were rejected after an acknowledged one. On the destination there must be none, because a
   * lifted block must stay lifted.
   */
  refusedLater = 0
  /** Errors other than UserWritesBlocked. */
  readonly errors: string[] = []
  readonly #options: CutoverClientOptions
  /** The last acknowledged state of each document by collection and `_id`; null for a deleted document. */
  readonly #states = new Map<string, Map<Row['_id'], Row | null>>()
  #stopped: AbortController | null = null
  #writing: Promise<void> = Promise.resolve()
  #number = 0

  constructor(options: CutoverClientOptions) {
    this.#options = options
  }

  /** Starts to write until `stop` is called. Has no effect while the client is already writing. */
  begin(): void {
    if (this.#stopped) return
    const stopped = new AbortController()
    this.#stopped = stopped
    this.#writing = this.#writing.then(() => this.#write(stopped.signal))
  }

  /** Stops writing and resolves when the last write has been answered. */
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
      await sleep(intervalMS)
    }
  }

  async #step(): Promise<void> {
    const { random, name, changes } = this.#options
    const _id = `${name} ${this.#number++}`
    const seedId = 2 * random.int(0, thingsCount / 2 - 1) + (changes === 'odd' ? 1 : 0)
    const all = this.#collection('things')
    await random.weighted([
      [4, () => this.#insert('things', { _id, u: _id, by: name })],
      [2, () => this.#insert('log', { _id })],
      [2, () => this.#insert('expiring', { _id, at: new Date() })],
      [
        4,
        async () => {
          const by = `${name} ${this.#number}`
          const { matchedCount } = await all.updateOne({ _id: seedId }, { $set: { by } })
          // No match means that this client deleted the document earlier, because no other client changes it.
          if (matchedCount > 0) this.#remember('things', seedId, { _id: seedId, u: seedId, by })
        },
      ],
      [
        1,
        async () => {
          await all.deleteOne({ _id: seedId })
          this.#remember('things', seedId, null)
        },
      ],
      // Moves a value of the unique index from a document that is deleted to one that is inserted.
      [1, () => this.#reuseUniqueValue(_id)],
    ])()
  }

  async #reuseUniqueValue(to: string): Promise<void> {
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
    const states = this.#states.get(collection) ?? new Map()
    states.set(_id, document)
    this.#states.set(collection, states)
  }

  #collection(name: string): Collection<Row> {
    return this.#options.client.db('app').collection<Row>(name, { writeConcern: { w: 'majority' } })
  }

  /** Returns one line for each acknowledged write that a cluster does not contain. */
  async missingOn(client: MongoClient): Promise<string[]> {
    const missing: string[] = []
    for (const [collection, states] of this.#states) {
      const found = await client
        .db('app')
        .collection<Row>(collection)
        .find({ _id: { $in: [...states.keys()] } })
        .toArray()
      const byId = new Map(found.map((document) => [document._id, JSON.stringify(document)]))
      for (const [_id, document] of states) {
        const expected = document === null ? undefined : JSON.stringify(document)
        const actual = byId.get(_id)
        if (actual !== expected)
          missing.push(`app.${collection}, _id ${_id}: acknowledged ${expected}, found ${actual}`)
      }
    }
    return missing
  }

  /** Restores every document that this client changed on its cluster to its state on the other cluster. */
  async undo(other: MongoClient): Promise<void> {
    for (const [collection, states] of this.#states) {
      const ids = [...states.keys()]
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
