import { setTimeout as sleep } from 'node:timers/promises'
import { OwnershipStore } from '../coordination/ownership-store.ts'
import { writesEnded } from '../mongo/predecessors.ts'
import type { DatabaseOf } from './live-instances.ts'

/**
 * Evicts ended instances, and resolves when the clusters run none of their writes, as in a takeover. A replica set that
 * stores the lease of an instance rejects its delayed writes, but a sharded cluster does not. The caller has observed
 * that all instances have ended, so they begin no further writes. This is repeatable.
 * @returns the mongosyncIDs of instances that are alive, because their lease was renewed in the meantime
 */
export async function endWrites(databases: readonly DatabaseOf[]): Promise<string[]> {
  const clusters = new Set(databases.map(({ cluster }) => cluster))
  const stored = await Promise.all(
    databases.map(async ({ cluster, database }) => {
      const store = new OwnershipStore(cluster, database)
      const { leases } = await store.read()
      // The other leases need nothing more: the instance itself or its successor has already waited for its writes.
      return { store, leases: leases.filter(({ epoch, drained }) => drained <= epoch) }
    }),
  )
  const renewed: string[] = []
  const evictions = stored.flatMap(({ store, leases }) =>
    leases.map(async (lease) => {
      if (!(await store.evict(lease, 0, sleep))) renewed.push(lease.id)
    }),
  )
  // An instance also writes to the cluster that does not store its lease, so both clusters are queried for every
  // instance. All queries run in parallel, because one may take half a minute if the user may not list operations.
  const incarnations = stored.flatMap(({ leases }) => leases.flatMap((one) => [...one.predecessors, one.incarnation]))
  const waits = [...clusters].flatMap((cluster) => incarnations.map((one) => writesEnded(cluster, [one])))
  // This waits for all of them even after an error. Otherwise, a retry would mistake an eviction that this call
  // completes later for a renewal of the lease.
  const ended = await Promise.allSettled([...evictions, ...waits])
  for (const one of ended) if (one.status === 'rejected') throw one.reason
  return renewed.sort()
}
