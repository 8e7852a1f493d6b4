import type { Document } from 'mongodb'
import type { Cluster } from './cluster.ts'
import { isTransient, isUnanswered } from './errors.ts'
import { askShards, type ShardAnswer, ShardConnections, type ShardRead, shardReadMS } from './shard-connections.ts'

/**
 * Shares of WiredTiger's cache. Above `eviction_dirty_trigger` (20 %) or `eviction_trigger` (95 %), the server makes
 * application threads evict pages, and every operation becomes slow (WiredTiger's eviction tuning guide).
 */
const dirtyShareMax = 0.2
const usedShareMax = 0.96
/**
 * If a server becomes unreachable, its last reported load remains valid for this many milliseconds after its last answer.
 * An election takes less time. After that, only the duration of writes shows the load.
 */
const heldMS = 60_000

/**
 * Reads the load of the destination's primary or, on a sharded destination, of each shard's primary, because mongos has
 * no storage engine. The user may lack the privilege `serverStatus`, and shards may be unreachable or may not know the
 * user. Then only the duration of writes shows the load.
 */
export class DestinationPressure {
  readonly #destination: Cluster
  readonly #shards: ShardConnections
  readonly #answerMS: number
  /** When each server last answered, in ms of performance.now(). */
  readonly #answeredAt = new Map<string, number>()

  /** @param answerMS a server that was reached and does not answer within this time (ms) counts as overloaded */
  constructor(destination: Cluster, answerMS = shardReadMS) {
    this.#destination = destination
    this.#answerMS = answerMS
    this.#shards = new ShardConnections(destination, { answerMS })
  }

  /**
   * Returns why the destination is overloaded, as text for the operator. A server that was reached and does not answer in
   * time counts as overloaded. Returns null when the destination is not overloaded, or when tandem is not able to read
   * its load. Returns undefined while a server has been unreachable for less than `heldMS`: the last result of this
   * method then remains valid.
   */
  async read(): Promise<string | null | undefined> {
    const judged = (await this.#statuses()).map((status) => this.#judge(status))
    return judged.find((one) => typeof one === 'string') ?? (judged.includes(undefined) ? undefined : null)
  }

  /** One status for each shard, or that of the replica set. Rejects only when `config.shards` cannot be read. */
  async #statuses(): Promise<ServerStatus[]> {
    if (this.#destination.sharded) {
      const answers = await this.#shards.each(readStatus)
      return answers.map(({ shard, ...answer }) => ({ where: `the shard ${shard} of the destination`, ...answer }))
    }
    const where = 'the destination'
    const options = { timeoutMS: this.#answerMS }
    return [
      await this.#destination.read('admin', { ...serverStatusCommand }, options).then(
        (result) => ({ where, result }),
        (error: unknown) => ({ where, error }),
      ),
    ]
  }

  #judge({ where, ...answer }: ServerStatus): string | null | undefined {
    const now = performance.now()
    if ('result' in answer) {
      this.#answeredAt.set(where, now)
      return describePressure(answer.result, where)
    }
    const { error } = answer
    if (isUnanswered(error)) return `${where} does not answer serverStatus within ${this.#answerMS / 1_000} seconds`
    const answeredAt = this.#answeredAt.get(where) ?? Number.NEGATIVE_INFINITY
    return isTransient(error) && now - answeredAt < heldMS ? undefined : null
  }

  close(): Promise<void> {
    return this.#shards.close()
  }
}

type ServerStatus = { where: string } & ({ result: Document } | { error: unknown })

/**
 * Reads once, for `check`, what `DestinationPressure` reads repeatedly from each shard. Also reads from shards that have
 * recently refused the user. Rejects only when `config.shards` cannot be read.
 */
export function readShardStatus(destination: Cluster): Promise<ShardAnswer<Document>[]> {
  return askShards(destination, readStatus, { retriesRefusedLogins: true })
}

const readStatus = (read: ShardRead): Promise<Document> => read('admin', { ...serverStatusCommand })

/** serverStatus returns all sections that are not excluded, and most of them cost more than the sections read here. */
const serverStatusCommand = {
  serverStatus: 1,
  asserts: 0,
  connections: 0,
  extra_info: 0,
  globalLock: 0,
  locks: 0,
  metrics: 0,
  network: 0,
  opcounters: 0,
  opcountersRepl: 0,
  repl: 0,
  tcmalloc: 0,
  transactions: 0,
}

/**
 * Returns why the server is overloaded; null if it is not.
 * @param where the server whose serverStatus this is, as text for the operator
 */
export function describePressure(status: Document, where: string): string | null {
  if (status['flowControl']?.isLagged === true) return `flow control of ${where} holds writes back: its secondaries lag`
  const cache = (status['wiredTiger']?.cache ?? {}) as Record<string, number>
  const size = cache['maximum bytes configured'] ?? 0
  if (!(size > 0)) return null
  const share = (name: string): number => (cache[name] ?? 0) / size
  if (share('tracked dirty bytes in the cache') >= dirtyShareMax) {
    return `too much of the cache of ${where} is not written to disk yet`
  }
  if (share('bytes currently in the cache') >= usedShareMax) return `the cache of ${where} is full`
  return null
}
