import type { Document, MongoClient } from 'mongodb'
import type { Cluster } from './cluster.ts'
import { readShards } from './config-database.ts'
import { code, codeOf, isUnanswered } from './errors.ts'

/**
 * Time limit of one command to a shard, in ms. The time to connect to the shard counts too. It has shorter limits of its
 * own (`Cluster.openShard`).
 */
export const shardReadMS = 10_000
/**
 * After a read has failed, the shard gets no further read for this long (ms), so that a shard that cannot be reached
 * does not delay the answers of the others.
 */
const backoffMS = 30_000
/**
 * After a shard has refused the login, it gets no further read for this long (ms), because each attempt adds a failed
 * login to its log and its audit log.
 */
const loginBackoffMS = 30 * 60_000

/** A period in which a shard is not read. */
interface Backoff {
  /** The end of the period (ms, `performance.now()`). */
  untilMS: number
  /** The error of the read that failed. It is the answer of the shard until then. */
  error: unknown
}

/** The shards that have refused the login, by host. All ShardConnections of a cluster share its map. */
const refusedLogins = new WeakMap<Cluster, Map<string, Backoff>>()

/** Sends a command to the primary of one shard. */
export type ShardRead = (database: string, command: Document) => Promise<Document>

/** The result of the work on one shard, or the error with which it failed. */
export type ShardAnswer<Result> = { shard: string } & ({ result: Result } | { error: unknown })

/**
 * Direct connections to the shards of a cluster, for what a router does not show: oplogs, caches and flow control. A
 * sync must work without these connections. Shards may be unreachable for tandem, and may not know its user, because
 * the config servers store the users of a sharded cluster
 * (https://www.mongodb.com/docs/manual/core/sharded-cluster-shards/#shard-local-users). Therefore each connection is
 * opened when it is first used, reads have short time limits, and an error of one shard is returned as its answer.
 */
export class ShardConnections {
  readonly #cluster: Cluster
  /** The clients by the `host` field of `config.shards`, which changes with the members of the shard. */
  readonly #clients = new Map<string, MongoClient>()
  /** The shards whose last read failed, by host. */
  readonly #backoffs = new Map<string, Backoff>()
  readonly #refusedLogins: Map<string, Backoff>
  readonly #retriesRefusedLogins: boolean
  readonly #answerMS: number
  #closed = false

  /**
   * @param options `retriesRefusedLogins`: also read shards that have refused the login in the last half hour; `answerMS`:
   * the time limit of one command, ms
   */
  constructor(cluster: Cluster, { retriesRefusedLogins = false, answerMS = shardReadMS } = {}) {
    this.#cluster = cluster
    this.#answerMS = answerMS
    this.#retriesRefusedLogins = retriesRefusedLogins
    this.#refusedLogins = refusedLogins.get(cluster) ?? new Map()
    refusedLogins.set(cluster, this.#refusedLogins)
  }

  /**
   * Runs `work` on all current shards of the cluster in parallel. Returns the answers in the order of the shards' names.
   * Rejects only when `config.shards` cannot be read.
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
    const backoff = this.#backoffOf(host)
    if (backoff) return { error: backoff.error }
    try {
      const client = this.#open(host)
      // The driver's own timeoutMS has no effect in 7.8.
      const read: ShardRead = (database, command) =>
        client.db(database).command(command, { signal: AbortSignal.timeout(this.#answerMS) } as object)
      const result = await work(read)
      this.#refusedLogins.delete(host)
      return { result }
    } catch (error) {
      this.#backOff(host, error)
      return { error }
    }
  }

  #backoffOf(host: string): Backoff | null {
    const refused = this.#retriesRefusedLogins ? undefined : this.#refusedLogins.get(host)
    const backoffs = [this.#backoffs.get(host), refused]
    return backoffs.find((backoff) => backoff && performance.now() < backoff.untilMS) ?? null
  }

  #backOff(host: string, error: unknown): void {
    // A shard that has received a command and has not answered may be overloaded. Only another read shows whether it is
    // still overloaded, so the next call of `each` reads it again.
    if (isUnanswered(error)) return
    const isRefused = codeOf(error) === code.authenticationFailed
    const backoffs = isRefused ? this.#refusedLogins : this.#backoffs
    backoffs.set(host, { untilMS: performance.now() + (isRefused ? loginBackoffMS : backoffMS), error })
  }

  /** Returns the client for a shard. Throws after `close`. */
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
 * Does what `ShardConnections.each` does, over connections that are closed afterwards.
 * @param options the options of `ShardConnections`
 */
export async function askShards<Result>(
  cluster: Cluster,
  work: (read: ShardRead) => Promise<Result>,
  options: { retriesRefusedLogins?: boolean } = {},
): Promise<ShardAnswer<Result>[]> {
  const connections = new ShardConnections(cluster, options)
  try {
    return await connections.each(work)
  } finally {
    await connections.close()
  }
}
