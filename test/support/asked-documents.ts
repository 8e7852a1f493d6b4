import { type Document, MongoClient } from 'mongodb'
import type { ShardedCluster } from './sharded-cluster.ts'

/** The finds by `_id` that one shard has received. */
export interface Asked {
  commands: number
  /** The number of `_id`s in these commands. */
  documents: number
}

interface ProfiledFind extends Document {
  command: { filter: { _id: { $in: unknown[] } } }
}

const bytes = 64 * 1024 * 1024
/** Above this share of `bytes`, the oldest entries may be overwritten already. */
const filledShareMax = 0.95

/** Counts the reads by `_id` of a collection in `app` on each shard, with the profiler of the shard. */
export class AskedDocuments {
  readonly #clients: MongoClient[]
  readonly #collection: string
  #since = new Date(0)

  private constructor(clients: MongoClient[], collection: string) {
    this.#clients = clients
    this.#collection = collection
  }

  static async from(cluster: ShardedCluster, collection: string): Promise<AskedDocuments> {
    const clients = cluster.shards.map(({ uri }) => new MongoClient(uri))
    for (const client of clients) {
      await client.db('app').createCollection('system.profile', { capped: true, size: bytes })
      await client.db('app').command({ profile: 2 })
    }
    return new AskedDocuments(clients, collection)
  }

  /** From now on, only commands after this call count. */
  restart(): void {
    this.#since = new Date()
  }

  /** Returns the finds of each shard, in the cluster's order of shards. */
  async read(): Promise<Asked[]> {
    return await Promise.all(
      this.#clients.map(async (client) => {
        await assertComplete(client)
        const entries = client.db('app').collection<ProfiledFind>('system.profile')
        const finds = { ns: `app.${this.#collection}`, op: 'query', ts: { $gte: this.#since } }
        // The profiler replaces a command above 50 KB with a part of its text.
        const shortened = await entries.countDocuments({ ...finds, 'command.find': { $exists: false } })
        if (shortened > 0) throw new Error(`the profiler has shortened ${shortened} finds, so they cannot be counted`)
        const found = await entries.find({ ...finds, 'command.filter._id.$in': { $exists: true } }).toArray()
        const documents = found.reduce((sum, { command }) => sum + command.filter._id.$in.length, 0)
        return { commands: found.length, documents }
      }),
    )
  }

  /** Returns, for each shard, the number of statements of this kind for a collection in `app`. */
  async statements(collection: string, op: 'update' | 'remove'): Promise<number[]> {
    const filter = { ns: `app.${collection}`, op, ts: { $gte: this.#since } }
    return await Promise.all(
      this.#clients.map(async (client) => {
        await assertComplete(client)
        return await client.db('app').collection('system.profile').countDocuments(filter)
      }),
    )
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const client of this.#clients) {
      await client.db('app').command({ profile: 0 })
      await client.close()
    }
  }
}

/** @throws when the profile has reached its size, because its oldest entries are then overwritten */
async function assertComplete(client: MongoClient): Promise<void> {
  const { size } = await client.db('app').command({ collStats: 'system.profile' })
  if (size > bytes * filledShareMax) throw new Error('the profile of a shard is full, so its entries are incomplete')
}
