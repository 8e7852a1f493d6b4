import { areWritesBlocked, blocksDestination, blocksSource } from '../commit/write-blocking.ts'
import { SyncStore } from '../coordination/sync-store.ts'
import { DeferredOptions } from '../definitions/deferred-options.ts'
import { olderMetadataDatabase } from '../domain/namespace.ts'
import { NamespaceRemap } from '../domain/namespace-remap.ts'
import type { Cluster, ClusterName } from '../mongo/cluster.ts'
import { code, codeOf } from '../mongo/errors.ts'
import { Metadata, type SyncRecord } from '../mongo/metadata.ts'
import type { RetryContext } from '../mongo/retry.ts'
import { clusterNames } from '../session/find-stored.ts'
import { deferredLeft } from './deferred-left.ts'
import { LeftReservation } from './reservation.ts'

/** The changes that `tandem clean` would make, and what it leaves unchanged. */
export interface CleanPlan {
  /** The stored sync; null if none is stored. */
  sync: { source: ClusterName; destination: ClusterName; state: string } | null
  /** Clusters on which user writes are allowed again. `known` is true if the server reports that it blocks them. */
  unblock: { cluster: ClusterName; known: boolean }[]
  /** The cluster whose balancer is started again; null if no balancer is started. */
  startBalancer: ClusterName | null
  /** The metadata databases that are dropped, in this order. */
  drop: { cluster: ClusterName; database: string }[]
  /** The clusters on which the reservation of the older name is removed, if `drop` does not include its database. */
  reservations: ClusterName[]
  /** The options that the sync has deferred on the destination. They are not restored. */
  deferred: string[]
  /** Blocks of user writes that are not lifted, each with the reason and the remedy. */
  left: string[]
}

export interface PlanParts {
  clusters: Record<ClusterName, Cluster>
  record: SyncRecord | null
  /** The databases that may contain the metadata of the sync. */
  databases: readonly string[]
  /** Clusters on which user writes are allowed again, even if the sync did not block them. */
  unblock: readonly ClusterName[]
  context: RetryContext
}

interface StoredSync {
  record: SyncRecord
  snapshot: Awaited<ReturnType<SyncStore['load']>>
  state: string
}

/** Reads both clusters and changes nothing. */
export async function planClean(parts: PlanParts): Promise<CleanPlan> {
  const { clusters, record, databases, context } = parts
  const stored = record && (await loadStored(clusters[record.configuration.destination], record, context))
  const plan: CleanPlan = {
    sync: null,
    unblock: [],
    startBalancer: null,
    drop: [],
    reservations: [],
    deferred: [],
    left: [],
  }
  for (const name of clusterNames) await planUnblocking(plan, name, parts, stored)
  // The destination comes first, because without its record the metadata that remains on the source is not a sync. The
  // database of earlier releases comes last: a reservation there prevents their instances from starting while the
  // others are dropped.
  const destination = record?.configuration.destination ?? 'cluster1'
  for (const database of databases)
    for (const cluster of [destination, ...clusterNames.filter((one) => one !== destination)])
      if (await hasDatabase(clusters[cluster], database)) plan.drop.push({ cluster, database })
  if (!databases.includes(olderMetadataDatabase))
    for (const cluster of clusterNames)
      if (await new LeftReservation(clusters[cluster], context, databases).exists()) plan.reservations.push(cluster)
  if (!stored) return plan
  plan.sync = { source: stored.record.configuration.source, destination, state: stored.state }
  // The commit has started the balancer and restored the options. If they differ now, somebody else has changed them.
  if (stored.snapshot.matches('committed')) return plan
  clusters[destination].names = new NamespaceRemap(stored.record.configuration.namespaceRemap)
  const metadata = new Metadata(clusters[destination], context)
  if (await isBalancerStopped(clusters[destination], metadata)) plan.startBalancer = destination
  const entries = (await metadata.collections.load()).filter(({ destinationUUID }) => destinationUUID)
  const existing = await new DeferredOptions(clusters[destination], context).read(entries)
  plan.deferred = deferredLeft(entries, existing, clusters[destination].names)
  return plan
}

async function loadStored(destination: Cluster, record: SyncRecord, context: RetryContext): Promise<StoredSync> {
  const store = new SyncStore(destination, context, record.generation)
  return { record, snapshot: await store.load(), state: store.view.state }
}

async function planUnblocking(
  plan: CleanPlan,
  name: ClusterName,
  { clusters, unblock }: PlanParts,
  stored: StoredSync | null,
): Promise<void> {
  const blocked = await isBlocked(clusters[name])
  if (blocked === false) return
  if (unblock.includes(name) || (stored && hasBlocked(name, stored)))
    plan.unblock.push({ cluster: name, known: blocked === true })
  else if (blocked) plan.left.push(`user writes on ${name} stay blocked: ${whyLeft(name, stored)}`)
  else if (!stored)
    plan.left.push(
      `it is unknown whether user writes on ${name} are blocked: the server does not report it to this user; ${lift(name)}`,
    )
}

/**
 * True if the sync may have blocked user writes on this cluster and has not allowed them again: on the destination
 * until `canWrite`, on the source from the beginning of a commit until it is decided or undone.
 */
function hasBlocked(name: ClusterName, { record: { configuration }, snapshot }: StoredSync): boolean {
  if (name === configuration.destination) return blocksDestination(configuration) && !snapshot.hasTag('canWrite')
  const isCommitting = (['committing', 'undoing', 'restoring', 'failed'] as const).some((state) =>
    snapshot.matches(state),
  )
  return blocksSource(configuration) && isCommitting
}

function whyLeft(name: ClusterName, stored: StoredSync | null): string {
  if (!stored) return `no sync is stored that has blocked them; ${lift(name)}`
  const isFormerSource = name === stored.record.configuration.source && stored.snapshot.hasTag('decided')
  if (isFormerSource) return `the sync has ended, and applications must not write to its source any more; ${lift(name)}`
  return `this sync has not blocked them; ${lift(name)}`
}

function lift(name: ClusterName): string {
  return `--unblock ${name} allows them`
}

/** Returns null if the server does not report it to this user. */
async function isBlocked(cluster: Cluster): Promise<boolean | null> {
  if (cluster.before6) return false
  try {
    return await areWritesBlocked(cluster)
  } catch (error) {
    if (codeOf(error) === code.unauthorized) return null
    throw error
  }
}

async function isBalancerStopped(destination: Cluster, metadata: Metadata): Promise<boolean> {
  if (!destination.sharded || (await metadata.sharding.loadBalancer()) !== 'full') return false
  return (await destination.read('admin', { balancerStatus: 1 }))['mode'] !== 'full'
}

async function hasDatabase(cluster: Cluster, name: string): Promise<boolean> {
  const command = { listDatabases: 1, nameOnly: true, authorizedDatabases: false, filter: { name } }
  return ((await cluster.read('admin', command))['databases'] as unknown[]).length > 0
}

/** True if the plan changes nothing. */
export function isClean({ unblock, startBalancer, drop, reservations }: CleanPlan): boolean {
  return unblock.length === 0 && startBalancer === null && drop.length === 0 && reservations.length === 0
}

const deferredShownMax = 20

/** Returns the plan as lines of text for the operator. */
export function planLines({ sync, unblock, startBalancer, drop, reservations, deferred, left }: CleanPlan): string[] {
  const lines = [
    sync ? `sync: ${sync.source} -> ${sync.destination}, ${sync.state}` : 'sync: none is stored on these clusters',
    ...unblock.map(
      ({ cluster, known }) =>
        `unblock: user writes on ${cluster}${known ? '' : ' (the server does not report whether they are blocked)'}`,
    ),
    ...(startBalancer ? [`restart: the balancer of ${startBalancer}, which the sync has stopped`] : []),
    ...drop.map(({ cluster, database }) => `drop: database ${database} on ${cluster}`),
    ...reservations.map((cluster) => `remove: the reservation of ${olderMetadataDatabase} on ${cluster}`),
    ...deferred.slice(0, deferredShownMax).map((what) => `deferred on ${sync?.destination}, and stays so: ${what}`),
  ]
  const more = deferred.length - deferredShownMax
  if (more > 0) lines.push(`deferred on ${sync?.destination}: ${more} more; --json lists all`)
  return [...lines, ...left.map((what) => `left alone: ${what}`)]
}
