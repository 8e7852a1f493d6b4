import type { Document } from 'mongodb'
import type { Cluster } from './cluster.ts'

/**
 * Shares of WiredTiger's cache. At `eviction_dirty_trigger` (20 %) and `eviction_trigger` (95 %) of it the server makes the threads
 * that serve applications evict pages themselves, and every operation on it becomes slow (WiredTiger's eviction tuning guide).
 */
const dirtyShareMax = 0.2
const usedShareMax = 0.96

/**
 * Why the member that takes the writes cannot keep up, in words; null when it can, or does not say: mongos has no storage
 * engine, and without the privilege `serverStatus` only the time its writes take tells.
 */
export async function sufferingOf(destination: Cluster): Promise<string | null> {
  if (destination.sharded) return null
  return describeSuffering(await destination.read('admin', { ...onlyWhatIsRead }, { timeoutMS: 5_000 }))
}

/** All sections come unless they are declined; most of these cost more than what is read here. */
const onlyWhatIsRead = {
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

export function describeSuffering(status: Document): string | null {
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
