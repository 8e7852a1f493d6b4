import type { CheckedClusters } from '../checks/check.ts'
import type { Liveness } from '../coordination/liveness.ts'
import { SyncStore } from '../coordination/sync-store.ts'
import { RefusedError } from '../domain/errors.ts'
import { currentFilters, sameFilters } from '../domain/filter-request.ts'
import { both } from '../domain/in-parallel.ts'
import { syncNameOf } from '../domain/namespace.ts'
import type { NamespaceFilters } from '../domain/namespace-filter.ts'
import type { NamespaceRename, StartConfiguration } from '../domain/start-request.ts'
import type { Cluster, ClusterName } from '../mongo/cluster.ts'
import { Metadata, type SyncRecord } from '../mongo/metadata.ts'
import { OlderMetadata } from '../mongo/older-metadata.ts'
import { appendOplogNote } from '../mongo/oplog-note.ts'
import { type RetryContext, RetryMonitor } from '../mongo/retry.ts'
import { refuseBeside, storesSync } from './other-syncs.ts'
import { type BothFacts, checkStart } from './start-checks.ts'

/** Minimum number of partitions. No sync needs more instances than this, so every instance gets partitions. */
const partitionsMin = 16
/** Time limit in ms for a start that fails to remove its reservation (`OlderMetadata`). */
const removalMS = 10_000

export interface BeginSyncParts {
  clusters: Record<ClusterName, Cluster>
  context: RetryContext
  /** Returns the liveness store of a sync into this destination, which may be either of the two clusters. */
  liveness: (destination: Cluster) => Liveness
  /** True when `liveness` uses Redis. */
  redis: boolean
  /** Finds the sync between these two clusters that another instance or a predecessor of this process has begun. */
  findStored: (until?: AbortSignal) => Promise<SyncRecord | null>
}

/** A stored sync. */
export interface Begun {
  record: SyncRecord
  /** The filters of the sync, read after its record was stored; null if they were not read. */
  filters: NamespaceFilters | null
}

/** Fails at once when a cluster does not answer. The search for a stored sync would retry for half an hour. */
export async function reachBoth({ cluster0, cluster1 }: Record<ClusterName, Cluster>): Promise<void> {
  await Promise.all([cluster0, cluster1].map((cluster) => cluster.read('admin', { hello: 1 })))
}

/**
 * Searches for the stored sync and pings both clusters at the same time. Ends the search and throws when a cluster does
 * not answer.
 */
export async function findReachable({ clusters, findStored }: BeginSyncParts): Promise<SyncRecord | null> {
  const unreachable = new AbortController()
  const stored = findStored(unreachable.signal)
  stored.catch(() => {})
  try {
    await reachBoth(clusters)
  } catch (error) {
    unreachable.abort()
    throw error
  }
  return await stored
}

/**
 * Stores the record of a new sync in the metadata database of this release once all checks have passed. `OlderMetadata`
 * prevents an instance of an earlier release from beginning a second sync. If another instance has stored a record
 * first, returns that record.
 */
export async function beginSync(clusters: CheckedClusters, parts: BeginSyncParts): Promise<Begun> {
  const { configuration, source, destination } = clusters
  let facts: BothFacts
  const beside = (): Promise<void> => refuseBeside(configuration, { source, destination, context: parts.context })
  try {
    // These three only read, and they run at the same time. If several of them fail, the order of the lines below decides
    // which error is thrown.
    const [reached, searched, checked] = await Promise.allSettled([
      reachLiveness(configuration, parts),
      beside(),
      checkStart(clusters),
    ])
    if (reached.status === 'rejected') throw reached.reason
    // The collections of an overlapping sync make the destination non-empty, so `checkStart` fails too. The refusal must
    // name the overlapping sync.
    // Any other error of this search (a missing privilege, an invalid pattern) is thrown only if the checks pass, because
    // the checks describe it better.
    if (searched.status === 'rejected' && searched.reason instanceof RefusedError) throw searched.reason
    if (checked.status === 'rejected') throw checked.reason
    if (searched.status === 'rejected') throw searched.reason
    facts = checked.value
  } catch (error) {
    // Another instance may have begun the sync and filled the destination after the search for a stored sync.
    const stored = await parts.findStored()
    if (!stored) throw error
    return { record: stored, filters: null }
  }
  const older = new OlderMetadata(destination, parts.context)
  try {
    return await storeNew(clusters, parts, { facts, older, beside })
  } catch (error) {
    // If a sync is stored, that sync removes the reservation after it has expired. If none is stored, the reservation is
    // removed here. An error of the removal is ignored because the start fails anyway, and `tandem clean` removes a
    // reservation that remains.
    await removeUnneeded(destination, parts.context, older.reservedAt).catch(() => {})
    throw error
  }
}

async function removeUnneeded(destination: Cluster, context: RetryContext, reserved: Date | null): Promise<void> {
  if (!reserved) return
  // Limited, because the answer to the start waits for it.
  const signal = AbortSignal.any([context.signal, AbortSignal.timeout(removalMS)])
  const limited = { monitor: new RetryMonitor(), signal }
  if (!(await storesSync(destination, limited))) await new OlderMetadata(destination, limited).removeWritten(reserved)
}

interface NewSync {
  facts: BothFacts
  older: OlderMetadata
  beside: () => Promise<void>
}

/**
 * Reserves the metadata database of earlier releases and stores the record. Returns the stored record, which may be that
 * of another instance.
 */
async function storeNew(
  { configuration, source, destination }: CheckedClusters,
  parts: BeginSyncParts,
  { facts, older, beside }: NewSync,
): Promise<Begun> {
  // A sync with a name may run beside one of an earlier release. `beside` compares their filters.
  const isNamed = syncNameOf(destination.metadataDatabase) !== null
  const metadata = new Metadata(destination, parts.context)
  const noted = appendOplogNote(source, 'start')
  const [[, isReserved], isMoved] = await both(both(noted, older.reserve()), metadata.hasMove())
  if (!isReserved && !isNamed) return await storedByEarlier(parts)
  // The announcement of an earlier reversal (`announceMove`) is removed only now, because it is valid as long as an
  // instance of an earlier release may have a sync.
  if (isMoved) await metadata.removeMove()
  const own: SyncRecord = {
    configuration,
    sourceIdentity: facts.source.identity,
    destinationIdentity: facts.destination.identity,
    startTime: source.latest,
    partitions: Math.max(partitionsMin, facts.source.shards.length),
    redis: parts.redis,
    generation: 0,
  }
  // The record is stored after the reservation (see `OlderMetadata`), and everything below is read after the record.
  const record = await metadata.createSync(own)
  const state = new SyncStore(destination, parts.context, record.generation)
  // Of two syncs that begin at the same time, at least one finds the other, because each searches after it is stored.
  const [again, searched, loaded] = await Promise.allSettled([older.reserve(), beside(), state.load()])
  if (again.status === 'rejected') throw again.reason
  if (!again.value && !isNamed) return await storedByEarlier(parts)
  if (searched.status === 'rejected') {
    // After any other error the record stays, because other instances may use it already. `OtherSyncs` compares the filters
    // again while the sync runs.
    if (searched.reason instanceof RefusedError) await metadata.removeSync(own)
    throw searched.reason
  }
  if (loaded.status === 'rejected') throw loaded.reason
  return { record, filters: currentFilters(record.configuration, loaded.value.context.filters) }
}

/**
 * Returns the sync that an instance of an earlier release has begun since this instance last searched for a stored sync.
 * `findStored` throws FatalError StoredStateConflict if this instance has stored a record too.
 */
async function storedByEarlier({ findStored }: BeginSyncParts): Promise<Begun> {
  const stored = await findStored()
  if (stored) return { record: stored, filters: null }
  throw new RefusedError(
    'WrongState',
    'an instance of an earlier release had begun a sync, and its record was removed meanwhile; send start again',
  )
}

/**
 * Throws RefusedError ClusterUnreachable if Redis does not answer. A sync cannot continue without its liveness store, so
 * this is checked before anything is changed.
 */
async function reachLiveness(configuration: StartConfiguration, parts: BeginSyncParts): Promise<void> {
  if (!parts.redis) return
  await parts
    .liveness(parts.clusters[configuration.destination])
    .instances()
    .catch((error) => {
      throw new RefusedError('ClusterUnreachable', error instanceof Error ? error.message : '--redis: no answer')
    })
}

/**
 * Throws RefusedError ConfigurationMismatch when the stored sync is not the one that this start requests.
 * @param filters the filters that the sync has now
 */
export function refuseOther(
  record: SyncRecord,
  filters: NamespaceFilters,
  configuration: StartConfiguration,
  redis: boolean,
): void {
  if (!sameConfiguration({ ...record.configuration, ...filters }, configuration)) {
    const isOnlyFilter = sameConfiguration({ ...configuration, ...filters }, { ...record.configuration, ...filters })
    if (isOnlyFilter && !sameFilters(filters, record.configuration)) {
      throw new RefusedError(
        'ConfigurationMismatch',
        `the filter of the sync was changed by POST /api/v1/filter; send start with the current one: ${JSON.stringify(written(filters))}`,
      )
    }
    throw new RefusedError(
      'ConfigurationMismatch',
      'another instance was started with a different body; send every instance the same start, or remove that sync first',
    )
  }
  const problem = otherStore(record, redis)
  if (problem) throw new RefusedError('ConfigurationMismatch', problem)
}

/**
 * Describes the problem when the sync uses another liveness store than this instance; null when it uses the same.
 * Instances with different stores would consider each other lost, and evict each other endlessly.
 */
export function otherStore(record: SyncRecord, redis: boolean): string | null {
  if (record.redis === redis) return null
  return record.redis
    ? 'this sync was begun by an instance with --redis; start every instance with the same --redis'
    : 'this sync was begun by an instance without --redis; start every instance without it'
}

/** The filters in the form of a request, which omits those that are not set. */
function written({ includeNamespaces, excludeNamespaces }: NamespaceFilters): object {
  return { ...(includeNamespaces && { includeNamespaces }), ...(excludeNamespaces && { excludeNamespaces }) }
}

/**
 * Compares two configurations. It makes no difference whether a default value was given explicitly, nor in which order
 * `namespaceRemap` has its elements.
 */
export function sameConfiguration(one: StartConfiguration, other: StartConfiguration): boolean {
  return JSON.stringify(comparable(one)) === JSON.stringify(comparable(other))
}

function comparable(configuration: StartConfiguration): StartConfiguration {
  const namespaceRemap = configuration.namespaceRemap
    ?.map(({ from, to }) => ({ from: ordered(from), to: ordered(to) }))
    .sort((one, other) => (JSON.stringify(one.from) < JSON.stringify(other.from) ? -1 : 1))
  return { ...configuration, writeBlockingGiven: true, namespaceRemap: namespaceRemap ?? null }
}

function ordered({ database, collection }: NamespaceRename['from']): NamespaceRename['from'] {
  return { database, ...(collection !== undefined && { collection }) }
}
