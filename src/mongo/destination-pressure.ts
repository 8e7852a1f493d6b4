import type { Document } from 'mongodb'
import type { Cluster } from './cluster.ts'

/**
 * Shares of WiredTiger's cache. Above `eviction_dirty_trigger` (20 %) and `eviction_trigger` (95 %), the server makes
 * application threads evict pages, and every operation becomes slow (WiredTiger's eviction tuning guide).
 */
const dirtyShareMax = 0.2
const usedShareMax = 0.96

/**
 * Why the primary is overloaded, as text for the operator. Null when it is not, or when it is unknown: mongos has no
 * storage engine, and the user may lack the privilege `serverStatus`. Then only the duration of writes shows the load.
 */
export async function pressureOn(destination: Cluster): Promise<string | null> {
  if (destination.sharded) return null
  return describePressure(await destination.read('admin', { ...serverStatusCommand }, { timeoutMS: 5_000 }))
}

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

export function describePressure(status: Document): string | null {
  if (status['flowControl']?.isLagged === true)
    return 'flow control of the destination holds writes back: its secondaries lag'
  const cache = (status['wiredTiger']?.cache ?? {}) as Record<string, number>
  const size = cache['maximum bytes configured'] ?? 0
  if (!(size > 0)) return null
  const share = (name: string): number => (cache[name] ?? 0) / size
  if (share('tracked dirty bytes in the cache') >= dirtyShareMax) {
    return 'too much of the destination’s cache is not written to disk yet'
  }
  if (share('bytes currently in the cache') >= usedShareMax) return 'the destination’s cache is full'
  return null
}
