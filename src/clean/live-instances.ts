import { setTimeout as sleep } from 'node:timers/promises'
import type { Document } from 'mongodb'
import type { Liveness, ObservedInstance } from '../coordination/liveness.ts'
import { Unchanged } from '../domain/unchanged.ts'
import type { Cluster } from '../mongo/cluster.ts'
import { givenUp, leaseMS } from '../mongo/lease-watch.ts'
import { hasHolderEnded } from '../mongo/predecessors.ts'
import { isEvicted } from '../mongo/stored-names.ts'
import { UnfencedMetadata } from '../mongo/unfenced-metadata.ts'

const pollMS = 250
/** All leases must fit into one batch, so that no getMore is needed. No sync has nearly as many instances. */
const leasesMax = 1_000

/** A metadata database on one of the clusters. */
export interface DatabaseOf {
  cluster: Cluster
  database: string
}

export interface LiveInstancesParts {
  databases: readonly DatabaseOf[]
  /** The stores to which the instances send their heartbeats. */
  heartbeats: readonly Liveness[]
  /**
   * True if the heartbeats are in Redis, which may have restarted empty. Missing heartbeats then prove nothing until a
   * live instance has had enough time to send another one.
   */
  mayLoseHeartbeats: boolean
  /** Called once if instances must be observed for a while to find out whether they are alive. */
  onWait: (ids: string[]) => void
  /** How long a lease of these instances lasts. */
  durationMS?: number
}

/**
 * Resolves with the mongosyncIDs of live instances, which renew their leases or send heartbeats. An instance has ended
 * if
 *
 * - its process ran on this host, and the kernel shows that it has ended, or
 * - it has given its lease back and sends no heartbeats, unless heartbeats may have been lost, or
 * - it has neither renewed its lease nor sent a heartbeat for the duration of a lease.
 *
 * It stops at the first renewal or heartbeat that it observes, so the result may not include all live instances.
 */
export async function liveInstances(parts: LiveInstancesParts): Promise<string[]> {
  const renewals = new Unchanged()
  const heartbeats = new Unchanged()
  const { durationMS = leaseMS } = parts
  for (let isFirst = true; ; isFirst = false) {
    const leases = (await Promise.all(parts.databases.map(readLeases))).flat()
    const ended = new Set(leases.filter(hasEnded).map(({ document }) => document['incarnation'] as string))
    const alive = new Set<string>()
    const unknown = new Set<string>()
    for (const lease of leases) {
      // An instance that is paused or has committed may be alive without a lease. Only its heartbeats show this.
      if (hasEnded(lease) || (isGivenBack(lease) && !parts.mayLoseHeartbeats)) continue
      const { key, id, renewal } = lease
      const { hasChanged, unchangedMS } = renewals.observe(key, renewal)
      if (hasChanged) alive.add(id)
      if (unchangedMS < durationMS) unknown.add(id)
    }
    for (const { store, id, incarnation, heartbeatTime } of await beating(parts.heartbeats)) {
      if (ended.has(incarnation)) continue
      // The age of a heartbeat may stand still with the cluster time, so this process measures how long it is the newest.
      const { hasChanged, unchangedMS } = heartbeats.observe(`${store} ${incarnation}`, heartbeatTime)
      if (hasChanged) alive.add(id)
      if (unchangedMS < durationMS) unknown.add(id)
    }
    if (alive.size > 0) return [...alive].sort()
    if (unknown.size === 0) return []
    if (isFirst) parts.onWait([...unknown].sort())
    await sleep(pollMS)
  }
}

interface StoredLease {
  /** The cluster, the metadata database and the name of the lease. */
  key: string
  /** mongosyncID. */
  id: string
  /** Changes with each renewal and each lease term. */
  renewal: string
  document: Document
}

async function readLeases({ cluster, database }: DatabaseOf): Promise<StoredLease[]> {
  const metadata = new UnfencedMetadata(cluster, {}, database)
  const found = await metadata.read({ find: 'leases', filter: {}, limit: leasesMax, batchSize: leasesMax + 1 })
  return found.map((document) => ({
    key: `${cluster.name} ${database} ${String(document['_id'])}`,
    id: String(document['owner'] ?? document['_id']),
    renewal: `${String(document['epoch'])} ${Number(document['expiresAt'])}`,
    document,
  }))
}

/** True if the holder gave its lease back. False if the holder was evicted, because it may not know that yet. */
function isGivenBack({ document }: StoredLease): boolean {
  return Number(document['expiresAt']) === givenUp.getTime() && !isEvicted(document)
}

function hasEnded({ id, document }: StoredLease): boolean {
  return hasHolderEnded(document, id)
}

/** Returns the rows of all stores that count as alive, each with the index of its store. */
async function beating(stores: readonly Liveness[]): Promise<(ObservedInstance & { store: number })[]> {
  const observed = await Promise.all(stores.map((store) => store.instances()))
  return observed.flatMap((rows, store) => rows.filter(({ alive }) => alive).map((row) => ({ ...row, store })))
}
