import { setTimeout as sleep } from 'node:timers/promises'
import { OwnershipStore } from '../coordination/ownership-store.ts'
import { writesEnded } from '../mongo/predecessors.ts'
import type { DatabaseOf } from './live-instances.ts'

/**
 * Ends the writes of ended instances by the steps of a takeover. Resolves when none of these writes runs on the
 * clusters. A delayed write that arrives later is rejected by a replica set that stores the lease of its instance, but
 * not by a sharded cluster. The caller has observed that all instances have ended, so none of them begins another
 * write. May be repeated.
 * @returns the mongosyncIDs of instances that are alive after all, because their lease was renewed in the meantime
 */
export async function endWrites(databases: readonly DatabaseOf[]): Promise<string[]> {
  const clusters = new Set(databases.map(({ cluster }) => cluster))
  const stored = await Promise.all(
    databases.map(async ({ cluster, database }) => {
      const store = new OwnershipStore(cluster, database)
      const { leases } = await store.read()
      // For the other leases this has been done already: the instance itself, or its successor, has waited for its writes.
      return { store, leases: leases.filter(({ epoch, drained }) => drained <= epoch) }
    }),
  )
  const renewed: string[] = []
  const evictions = stored.flatMap(({ store, leases }) =>
    leases.map(async (lease) => {
      if (!(await store.evict(lease, 0, sleep))) renewed.push(lease.id)
    }),
  )
  // An instance also writes to the cluster that does not store its lease, so both clusters are asked about every
  // instance. All questions are asked at once, because an answer may take half a minute if the user may not list
  // operations.
  const incarnations = stored.flatMap(({ leases }) => leases.flatMap((one) => [...one.predecessors, one.incarnation]))
  const waits = [...clusters].flatMap((cluster) => incarnations.map((one) => writesEnded(cluster, [one])))
  // Waits for all, also after an error. Otherwise a retry would mistake an eviction that this call completes later for
  // a renewal of the lease.
  const ended = await Promise.allSettled([...evictions, ...waits])
  for (const one of ended) if (one.status === 'rejected') throw one.reason
  return renewed.sort()
}
