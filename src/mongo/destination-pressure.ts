import type { Document } from 'mongodb'
import type { Cluster } from './cluster.ts'
import { askShards, type ShardAnswer, ShardConnections, type ShardRead } from './shard-connections.ts'

/**
 * Shares of WiredTiger's cache. Above `eviction_dirty_trigger` (20 %) and `eviction_trigger` (95 %), the server makes
 * application threads evict pages, and every operation becomes slow (WiredTiger's eviction tuning guide).
 */
const dirtyShareMax = 0.2
const usedShareMax = 0.96

/**
 * The load of the destination's primary or, on a sharded destination, of each shard's primary: mongos has no storage
 * engine. The user may lack the privilege `serverStatus`, and shards may be unreachable or may not know the user. Then
 * only the duration of writes shows the load.
 */
export class DestinationPressure {
  readonly #destination: Cluster
  readonly #shards: ShardConnections

  constructor(destination: Cluster) {
    this.#destination = destination
    this.#shards = new ShardConnections(destination)
  }

  /** Why the destination is overloaded, as text for the operator. Null when it is not, or when it is unknown. */
  async read(): Promise<string | null> {
    if (!this.#destination.sharded) {
      const status = await this.#destination.read('admin', { ...serverStatusCommand }, { timeoutMS: 5_000 })
      return describePressure(status, 'the destination')
    }
    for (const answer of await this.#shards.each(readStatus)) {
      if (!('result' in answer)) continue
      const pressure = describePressure(answer.result, `the shard ${answer.shard} of the destination`)
      if (pressure !== null) return pressure
    }
    return null
  }

  close(): Promise<void> {
    return this.#shards.close()
  }
}

/** Reads once what `DestinationPressure` reads of each shard. Rejects only when `config.shards` cannot be read. */
export function readShardStatus(destination: Cluster): Promise<ShardAnswer<Document>[]> {
  return askShards(destination, readStatus)
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

/** @param where the server whose serverStatus this is, as text for the operator */
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
