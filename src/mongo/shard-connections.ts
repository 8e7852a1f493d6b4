import type { Document, MongoClient } from 'mongodb'
import type { Cluster } from './cluster.ts'
import { readShards } from './config-database.ts'
import { code, codeOf, isUnanswered } from './errors.ts'

/** Time limit of one read of a connected shard, in ms. */
export const shardReadMS = 10_000
/**
 * A shard that cannot be reached gets no further read for this long (ms), so that it does not delay the answers of the
 * others.
 */
const restMS = 30_000
/**
 * A shard that does not know the user gets no further read for this long (ms), because each attempt is a failed login in
 * its log and in its audit.
 */
const refusedRestMS = 30 * 60_000

interface Rest {
  untilMS: number
  error: unknown
}

/** The shards that have refused the user of the cluster, by host. All ShardConnections of the cluster share this map. */
const refused = new WeakMap<Cluster, Map<string, Rest>>()

/** Sends a command to the primary of one shard. */
export type ShardRead = (database: string, command: Document) => Promise<Document>

/** The answer of one shard, or the error if it has not answered. */
export type ShardAnswer<Result> = { shard: string } & ({ result: Result } | { error: unknown })

/**
 * Connections to the shards of a cluster, past the routers, for what a router does not show: oplogs, caches and flow
 * control. A sync must work without them. Shards may be unreachable for tandem, and may not know its user, because the
 * config servers store the users of a sharded cluster
 * (https://www.mongodb.com/docs/manual/core/sharded-cluster-shards/#shard-local-users). Therefore each connection is
 * opened when it is first used, reads have short time limits, and the answer of a shard that fails contains the error.
 */
export class ShardConnections {
  readonly #cluster: Cluster
  /** By the host in `config.shards`, which changes with the members of the shard. */
  readonly #clients = new Map<string, MongoClient>()
  readonly #resting = new Map<string, Rest>()
  readonly #refused: Map<string, Rest>
  readonly #asksRefusing: boolean
  #closed = false

  /** @param asksRefusing true if shards that have refused the user in the last half hour are read, too */
  constructor(cluster: Cluster, { asksRefusing = false } = {}) {
    this.#cluster = cluster
    this.#asksRefusing = asksRefusing
    this.#refused = refused.get(cluster) ?? new Map()
    refused.set(cluster, this.#refused)
  }

  /**
   * Runs `work` on each shard that the cluster has now, and returns each answer with its shard's name. Rejects only
   * when `config.shards` cannot be read.
   */
  async each<Result>(work: (read: ShardRead) => Promise<Result>): Promise<ShardAnswer<Result>[]> {
    const shards = await readShards(this.#cluster)
    await this.#closeExcept(new Set(shards.map(({ host }) => host)))
    return await Promise.all(shards.map(async ({ name, host }) => ({ shard: name, ...(await this.#ask(host, work)) })))
  }

  async close(): Promise<void> {
    this.#closed = true
    await this.#closeExcept(new Set())
  }

  async #ask<Result>(
    host: string,
    work: (read: ShardRead) => Promise<Result>,
  ): Promise<{ result: Result } | { error: unknown }> {
    const resting = this.#restOf(host)
    if (resting) return { error: resting.error }
    try {
      const client = this.#open(host)
      // The driver's own timeoutMS has no effect in 7.8.
      const read: ShardRead = (database, command) =>
        client.db(database).command(command, { signal: AbortSignal.timeout(shardReadMS) } as object)
      const result = await work(read)
      this.#refused.delete(host)
      return { result }
    } catch (error) {
      this.#rest(host, error)
      return { error }
    }
  }

  #restOf(host: string): Rest | null {
    const rests = [this.#resting.get(host), this.#asksRefusing ? undefined : this.#refused.get(host)]
    return rests.find((rest) => rest && performance.now() < rest.untilMS) ?? null
  }

  #rest(host: string, error: unknown): void {
    // A shard that has received a command and has not answered may be overloaded. Only another read shows whether it
    // still is, so the next read includes this shard.
    if (isUnanswered(error)) return
    const isRefused = codeOf(error) === code.authenticationFailed
    const rests = isRefused ? this.#refused : this.#resting
    rests.set(host, { untilMS: performance.now() + (isRefused ? refusedRestMS : restMS), error })
  }

  #open(host: string): MongoClient {
    const known = this.#clients.get(host)
    if (known) return known
    if (this.#closed) throw new Error('the connections to the shards are closed')
    const client = this.#cluster.openShard(host)
    this.#clients.set(host, client)
    return client
  }

  async #closeExcept(hosts: ReadonlySet<string>): Promise<void> {
    const unused = [...this.#clients].filter(([host]) => !hosts.has(host))
    for (const [host] of unused) this.#clients.delete(host)
    await Promise.all(unused.map(([, client]) => this.#cluster.closeShard(client)))
  }
}

/**
 * Asks each shard once, over connections that are closed afterwards. Rejects only when `config.shards` cannot be read.
 * @param options those of `ShardConnections`
 */
export async function askShards<Result>(
  cluster: Cluster,
  work: (read: ShardRead) => Promise<Result>,
  options: { asksRefusing?: boolean } = {},
): Promise<ShardAnswer<Result>[]> {
  const connections = new ShardConnections(cluster, options)
  try {
    return await connections.each(work)
  } finally {
    await connections.close()
  }
}
