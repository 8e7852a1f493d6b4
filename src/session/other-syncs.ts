import type { SyncSnapshot } from '../../machines/sync-view.ts'
import { findingsOf } from '../checks/check.ts'
import { blocksDestination } from '../commit/write-blocking.ts'
import { SyncStore } from '../coordination/sync-store.ts'
import { type Failure, type FailureName, FatalError, RefusedError, toFailure } from '../domain/errors.ts'
import { overlapOnDestination, type Written } from '../domain/filter-overlap.ts'
import { currentFilters } from '../domain/filter-request.ts'
import type { Finding } from '../domain/finding.ts'
import { both, inParallel } from '../domain/in-parallel.ts'
import {
  metadataDatabase,
  metadataDatabasePattern,
  olderMetadataDatabase,
  splitNamespace,
  syncNameOf,
} from '../domain/namespace.ts'
import type { Matches, NamespaceFilters } from '../domain/namespace-filter.ts'
import { NamespaceRemap } from '../domain/namespace-remap.ts'
import type { NamespaceFilter, StartConfiguration } from '../domain/start-request.ts'
import type { BothClusters, Cluster } from '../mongo/cluster.ts'
import { Metadata, type SyncRecord } from '../mongo/metadata.ts'
import { OlderMetadata } from '../mongo/older-metadata.ts'
import { type RetryContext, RetryMonitor, retry } from '../mongo/retry.ts'
import { Selection } from '../mongo/selection.ts'
import { refuseOlderSync } from './find-stored.ts'

const checkMS = 30_000
/** A check in the background ends after this time, because the next one follows soon. */
const patienceMS = 10_000
/** Maximum number of syncs whose metadata is read at the same time. */
const atOnce = 8
const unreadableBecause: readonly FailureName[] = ['MetadataVersion', 'MissingPrivileges']

/** A sync into the same destination whose metadata is in another database. */
interface OtherSync {
  database: string
  record: SyncRecord
  sync: SyncSnapshot
  /**
   * The filters in force and, until the change to them is planned, the earlier filters: until then, that sync may drop
   * collections that only the earlier filters select.
   */
  filters: NamespaceFilters[]
  names: NamespaceRemap
}

interface Beside extends BothClusters {
  context: RetryContext
}

export interface OtherSyncsParts extends Beside {
  /** The record of this sync. */
  record: Pick<SyncRecord, 'sourceIdentity' | 'destinationIdentity' | 'configuration'>
  selection: () => Selection
}

/**
 * Throws RefusedError if a sync with this configuration cannot exist beside the other syncs into the destination. It only
 * reads. The refusals are:
 * - `ConfigurationMismatch` if the name of another sync differs from this one's only in case.
 * - `SyncsOverlap` if this sync and another may select the same namespace.
 * - `WriteBlockingNotSupported` if this sync, or another one that has not reached `canWrite`, blocks user writes on the
 *   destination, because a block applies to all databases of the cluster.
 * - `UnsupportedTopology` if the destination is sharded, because each sync stops and restores the balancer.
 */
export async function refuseBeside(configuration: StartConfiguration, clusters: Beside): Promise<void> {
  const { source, destination } = clusters
  const others = await readOthers(clusters, 'refuse')
  const own = destination.metadataDatabase
  for (const other of others) {
    if (other.database.toLowerCase() === own.toLowerCase())
      throw new RefusedError(
        'ConfigurationMismatch',
        `--syncName: ${named(other)} has a name that differs from this one only in upper and lower case, and the server does not accept two database names that differ only in case; choose another name`,
      )
    const names = new NamespaceRemap(configuration.namespaceRemap)
    const overlap = await overlapWith(source, { filters: configuration, names }, other)
    if (overlap !== null)
      throw new RefusedError(
        'SyncsOverlap',
        `${named(other)} syncs into the same destination, and both select ${overlap}${onDestinationIfRenamed(names, other)}; change the filters (includeNamespaces, excludeNamespaces) so that they list other databases or collections ` +
          '(an exclusion by collectionsRegex counts only for collections that one of the two filters lists by name), or remove that sync with tandem clean if it has ended',
      )
    const blocks =
      blocksDestination(configuration) ||
      (blocksDestination(other.record.configuration) && !other.sync.hasTag('canWrite'))
    if (blocks)
      throw new RefusedError(
        'WriteBlockingNotSupported',
        `${named(other)} syncs into the same destination, and write blocking holds for all databases of a cluster; start both with ` +
          '"enableUserWriteBlocking": "none"',
      )
    if (destination.sharded)
      throw new RefusedError(
        'UnsupportedTopology',
        `${named(other)} syncs into the same sharded cluster, and each sync stops the balancer of that cluster; begin this sync when the other one has ended and is removed by tandem clean`,
      )
  }
}

/**
 * Returns the refusal of `refuseBeside`, if there is one, as a finding.
 * @param found the findings of the other checks. If one of them has the severity `error`, an exception of
 * `refuseBeside` that is not a RefusedError is ignored, because these findings describe a missing privilege or an
 * invalid pattern better
 */
export async function findBeside(
  configuration: StartConfiguration,
  clusters: Beside,
  found: readonly Finding[],
): Promise<Finding[]> {
  return await findingsOf(async () => {
    await refuseBeside(configuration, clusters).catch((error: unknown) => {
      if (error instanceof RefusedError || found.every(({ severity }) => severity !== 'error')) throw error
    })
    return []
  })
}

/**
 * Looks for syncs between the same clusters, or into the same destination, that must not exist beside this one.
 * `OlderMetadata` describes when an earlier release can begin such a sync. Earlier releases do not compare filters.
 */
export class OtherSyncs {
  readonly #parts: OtherSyncsParts
  #timer: NodeJS.Timeout | null = null
  #checking = false

  constructor(parts: OtherSyncsParts) {
    this.#parts = parts
  }

  /**
   * Throws FatalError SyncsOverlap if another sync into the destination may select one of the same namespaces. If the
   * metadata of this sync is in `metadataDatabase`, also throws StoredStateConflict if the database of earlier releases
   * holds a sync between the same clusters.
   */
  async check(context: RetryContext): Promise<void> {
    const { source, destination, record, selection } = this.#parts
    const refuseOlder = async (): Promise<void> => {
      if (destination.metadataDatabase !== metadataDatabase) return
      for (const cluster of [destination, source]) await refuseOlderSync(cluster, record, context)
    }
    // A commit waits for this check, so the reads are sent at the same time.
    const [, others] = await both(refuseOlder(), readOthers({ source, destination, context }, 'skip'))
    for (const other of others) {
      const names = new NamespaceRemap(record.configuration.namespaceRemap)
      const overlap = await retry('comparing filters', context, () =>
        overlapWith(source, { filters: selection().filters, names }, other),
      )
      if (overlap === null) continue
      throw new FatalError(
        'SyncsOverlap',
        `${named(other)} syncs into the same destination, and both select ${overlap}${onDestinationIfRenamed(names, other)}. Both may have written there. The progress of this sync is kept. Stop one of the two syncs and ` +
          'remove it with tandem clean, or change the filters of one of them. Then compare the namespace with its source, and send resume',
      )
    }
  }

  /**
   * Checks twice a minute until `end`. Each time, it also removes the reservation in the metadata database of earlier
   * releases (`OlderMetadata`) on both clusters, if it has expired.
   */
  begin(onFound: (failure: Failure) => void): void {
    this.#timer ??= setInterval(() => {
      if (this.#checking) return
      this.#checking = true
      void this.#watch(onFound).finally(() => {
        this.#checking = false
      })
    }, checkMS).unref()
  }

  end(): void {
    if (this.#timer) clearInterval(this.#timer)
    this.#timer = null
  }

  async #watch(onFound: (failure: Failure) => void): Promise<void> {
    const { source, destination, context } = this.#parts
    const signal = AbortSignal.any([context.signal, AbortSignal.timeout(patienceMS)])
    const limited = { monitor: new RetryMonitor(), signal }
    try {
      await this.check(limited)
    } catch (error) {
      // No other error, such as a missing privilege on another database, concerns this sync. The next check follows soon.
      const conflicts: FailureName[] = ['StoredStateConflict', 'SyncsOverlap']
      const isConflict = error instanceof FatalError && conflicts.includes(error.failure)
      if (this.#timer !== null && isConflict) onFound(toFailure(error))
    }
    // The source may hold a reservation from the time when it was a destination. A reservation does not affect a running
    // sync, so a failed removal (for example because of a missing privilege) is ignored.
    await Promise.allSettled(
      [destination, source].map((cluster) => new OlderMetadata(cluster, limited).removeExpired()),
    )
  }
}

/**
 * Returns the syncs into this destination whose metadata is in another database than that of this sync.
 * @param unreadable what to do with a sync that a later release has stored, or that the user may not read. `refuse`: throw
 * FatalError MetadataVersion or MissingPrivileges. `skip`: omit it, because that sync compared the filters when it began
 */
async function readOthers({ destination, context }: Beside, unreadable: 'refuse' | 'skip'): Promise<OtherSync[]> {
  // The metadata database of earlier releases is read while the databases are listed. This saves a round trip in the
  // second search of a start, which finds that database in the list, because the start has reserved it before
  // (`OlderMetadata`).
  const ahead = readOther(destination, olderMetadataDatabase, context)
  ahead.catch(() => {})
  const databases = (await listMetadata(destination, context)).filter((name) => name !== destination.metadataDatabase)
  const others: (OtherSync | null)[] = databases.map(() => null)
  await inParallel(atOnce, [...databases.entries()], async ([at, database]) => {
    try {
      others[at] = await (database === olderMetadataDatabase ? ahead : readOther(destination, database, context))
    } catch (error) {
      const isUnreadable = error instanceof FatalError && unreadableBecause.includes(error.failure)
      if (!isUnreadable || unreadable === 'refuse') throw error
    }
  })
  return others.filter((other) => other !== null)
}

/**
 * True if this cluster stores the metadata of a sync, or metadata that cannot be read.
 * @param except metadata databases that do not count
 */
export async function storesSync(
  cluster: Cluster,
  context: RetryContext,
  except: readonly string[] = [],
): Promise<boolean> {
  for (const database of await listMetadata(cluster, context)) {
    if (except.includes(database)) continue
    try {
      if (await new Metadata(cluster, context, undefined, database).loadSync()) return true
    } catch (error) {
      if (error instanceof FatalError && unreadableBecause.includes(error.failure)) return true
      throw error
    }
  }
  return false
}

async function readOther(destination: Cluster, database: string, context: RetryContext): Promise<OtherSync | null> {
  const record = await new Metadata(destination, context, undefined, database).loadSync()
  if (!record) return null
  const sync = await new SyncStore(destination, context, record.generation, database).load()
  const { filters, filterChange } = sync.context
  const inForce = currentFilters(record.configuration, filters)
  const names = new NamespaceRemap(record.configuration.namespaceRemap)
  return { database, record, sync, filters: [inForce, ...(filterChange?.before ?? [])], names }
}

async function listMetadata(cluster: Cluster, context: RetryContext): Promise<string[]> {
  // The filter ignores case, because the server does not accept two names that differ only in case.
  const filter = { name: { $regex: metadataDatabasePattern, $options: 'i' } }
  const command = { listDatabases: 1, nameOnly: true, authorizedDatabases: false, filter }
  const reply = await retry('listing the syncs of a cluster', context, () => cluster.read('admin', command))
  return (reply['databases'] as { name: string }[]).map(({ name }) => name).sort()
}

async function overlapWith(source: Cluster, own: Written, { filters, names }: OtherSync): Promise<string | null> {
  for (const one of filters) {
    const overlap = overlapOnDestination(
      own,
      { filters: one, names },
      await evaluated(source, own, { filters: one, names }),
    )
    if (overlap !== null) return overlap
  }
  return null
}

/**
 * Returns ' on the destination' if one of the syncs renames databases, because the text of an overlap then contains the
 * database's name on the destination; otherwise ''.
 */
function onDestinationIfRenamed(own: NamespaceRemap, other: OtherSync): string {
  return own.isIdentity && other.names.isIdentity ? '' : ' on the destination'
}

/**
 * Lets the source evaluate every pattern in these filters against every name in them and against the names that the
 * syncs rename databases and collections from and to.
 */
async function evaluated(source: Cluster, ...syncs: Written[]): Promise<Matches> {
  const entries = syncs.flatMap(({ filters: { includeNamespaces, excludeNamespaces } }): NamespaceFilter[] => [
    ...(includeNamespaces ?? []),
    ...(excludeNamespaces ?? []),
  ])
  const listed = entries.flatMap(({ database }) => (database === undefined ? [] : [database]))
  const placed = syncs.flatMap(({ names }) => names.placed.flat())
  // Each sync is asked for the name on its own source of what the other one has placed by the name of a collection.
  const everywhere = syncs.flatMap(({ names }) => placed.map((name) => names.namespaceOnSource(name)))
  const whole = [...placed, ...everywhere].map(splitNamespace)
  const renamed = [...syncs.flatMap(({ names }) => names.renamed.flat()), ...whole.map(({ database }) => database)]
  const databases = [...listed, ...renamed]
  const collections = [
    ...entries.flatMap((entry) => entry.collections ?? []),
    ...whole.map(({ collection }) => collection),
  ]
  return await new Selection(source, { includeNamespaces: entries, excludeNamespaces: null }).matches(
    databases,
    collections,
  )
}

function named({ database }: OtherSync): string {
  const name = syncNameOf(database)
  return name === null ? 'the sync without a name' : `the sync ${JSON.stringify(name)}`
}
