import type { Barriers } from '../coordination/barriers.ts'
import type { DeferredOptions } from '../definitions/deferred-options.ts'
import type { DestinationDefinitions } from '../definitions/destination-definitions.ts'
import { listCollections, readCommitted } from '../definitions/listing.ts'
import type { DefinitionReconciler } from '../definitions/reconcile-definitions.ts'
import {
  distributionsByUuid,
  keepsDistribution,
  type ShardingEntries,
  throwIfResharding,
  wantedShardKey,
} from '../definitions/sharding.ts'
import type { Catalog, CatalogEntry } from '../domain/catalog.ts'
import type { ClusterTime } from '../domain/cluster-time.ts'
import { isCapped } from '../domain/definition.ts'
import { UnfollowedError } from '../domain/errors.ts'
import { inParallel } from '../domain/in-parallel.ts'
import { namespace } from '../domain/namespace.ts'
import { isRenamedAcrossDatabases } from '../domain/namespace-filter.ts'
import { type Cluster, operationTimeOf } from '../mongo/cluster.ts'
import type { Metadata } from '../mongo/metadata.ts'
import { appendOplogNote } from '../mongo/oplog-note.ts'
import { type RetryContext, retry } from '../mongo/retry.ts'
import type { Selection } from '../mongo/selection.ts'
import { changeSelection, type ReplacedFilters } from './change-selection.ts'
import { renamedCollections } from './renamed-collections.ts'

export interface ConvergencePlanParts {
  source: Cluster
  destination: Cluster
  selection: Selection
  catalog: Catalog
  metadata: Metadata
  definitions: DefinitionReconciler
  destinationDefinitions: DestinationDefinitions
  deferredOptions: DeferredOptions
  barriers: Barriers
  context: RetryContext
  /** All databases whose definitions may differ. */
  databases: () => Promise<ReadonlySet<string>>
  /** All partitions, with the epochs under which this instance owns them. */
  epochs: ReadonlyMap<number, number>
  /** Called at the start of each named step. */
  atStep: (step: string) => void
  /** Removes what the verifier has stored about these collections. */
  discardVerified: (uuids: readonly string[] | 'all') => Promise<void>
  /** The collections of a replica set that become sharded on the destination. */
  shardingEntries: ShardingEntries
  /** The filters that `selection` replaces; null when they were not changed. */
  replaced: ReplacedFilters | null
}

/**
 * Prepares collections of a running sync to be converged again. If changes were missed that the oplog no longer holds,
 * all collections are converged, from a new start time. Otherwise some collections are converged, and changes are
 * followed from the stored positions. Some of these collections may be new for the sync: the stream does not report all
 * of their documents, so they are created and copied.
 *
 * The coordinator calls this in the sync's state `replanning`, when it owns all partitions and the other instances have
 * ended all work that they began before. In this state nothing is copied, applied or verified. Only the coordinator's
 * report that the plan is stored ends `replanning`. Deletes write no tombstones while a collection is `copied`, so no
 * event may be applied to a collection of the plan before it is `copying`. An instance that applies events afterwards
 * loads the catalog after the report, and finds the collection `copying`.
 *
 * The returned start time is that of an oplog no-op which is written after all work has stopped. Therefore it is not
 * earlier than any stored position, and for `all` it becomes the position of every partition. Convergence reads the
 * source at this time or later. A change is therefore contained in every such read, or has an event that is applied
 * while the collection is `copying`. Earlier events, between the stored positions and the start time, are applied too,
 * possibly when the collection is already `copied` again. Such an event only names a document, which is then read from
 * the source (`src/apply/older-than-convergence.ts`).
 *
 * For `all`, definitions are reconciled twice. The first time is before the start time is taken, because building
 * indexes may take long and the oplog may roll over meanwhile. The second time includes the changes before the start
 * time, which the stream does not report.
 *
 * When the filters were replaced, collections that are no longer selected leave the catalog first
 * (`change-selection.ts`), so the reconciliation of definitions does not drop them. Newly included collections, and all
 * collections that are new for the sync, are converged too. The stream then reports the changes since the stored
 * positions that the new filters select. This has two consequences:
 *
 * - The stream leaves out the events of a collection under a name that is now excluded. If the collection has a
 *   selected name again, its rename to that name has an event, which requests a convergence as always
 *   (`IncompleteCollections`).
 * - A rename from a name that only the former filters exclude requests no convergence, because the new filters select
 *   both names. The former filters may have left out changes under the first name, before the stored positions. All
 *   collections that were renamed between the positions and this plan are therefore converged. If the oplog does not
 *   reach back to the positions, all collections are converged.
 *
 * Collections that movePrimary cloned are copied even if they are not requested (`SourcePlacements`).
 *
 * A collection may be renamed to a name that belongs to another database of the destination (`namespaceRemap`) before the
 * event of the rename is applied. Reconciling its database finds that, and the plan is made again with this collection.
 *
 * Repeatable from any point, also by another coordinator, which takes a later start time.
 * @param requested UUIDs on the source, or 'all'
 * @returns the new start time
 */
export async function planConvergence(
  parts: ConvergencePlanParts,
  requested: ReadonlySet<string> | 'all',
): Promise<ClusterTime> {
  let scope = requested
  for (;;) {
    try {
      return await planOnce(parts, scope)
    } catch (error) {
      if (!(error instanceof UnfollowedError)) throw error
      if (scope !== 'all') scope = new Set([...scope, ...error.collections.keys()])
    }
  }
}

async function planOnce(parts: ConvergencePlanParts, requested: ReadonlySet<string> | 'all'): Promise<ClusterTime> {
  const { catalog, metadata, definitions, deferredOptions, barriers, context, epochs, atStep } = parts
  const { replaced, discardVerified } = parts
  atStep('replan')
  const scope = replaced && requested !== 'all' ? await withRenamed(parts, requested) : requested
  /** UUIDs of the collections that the new filters select and the former filters did not. */
  const included = replaced ? await changeSelection(parts, replaced) : new Set<string>()
  const isConcerned = ({ uuid }: CatalogEntry): boolean => scope === 'all' || scope.has(uuid) || included.has(uuid)
  const ofScope = scope === 'all' || replaced ? null : await databasesWith(parts, scope)
  const databases = async (): Promise<ReadonlySet<string>> => ofScope ?? (await parts.databases())
  const followDefinitions = async (): Promise<void> => {
    for (const database of await databases()) {
      if (scope === 'all') await definitions.reconcile(database, 'all', 'copying')
      // A new collection that is found here may have been excluded until now.
      else if (replaced) await definitions.reconcile(database, new Set([...scope, ...included]), 'copying')
      // Any other new collection needs no copy: all its documents have events after the stored positions, or an event
      // requests its convergence. Collections that movePrimary cloned are copied nevertheless.
      else await definitions.reconcile(database, scope, (uuid) => (scope.has(uuid) ? 'copying' : 'copied'))
    }
  }

  /** Stores that these collections must be copied or compared from the beginning. Removes what an earlier copy stored. */
  const reset = async (some: CatalogEntry[]): Promise<void> => {
    const unplanned = { state: 'copying', planned: false, totalCopied: null } as const
    for (const entry of some) Object.assign(entry, { ...unplanned, endedPartitions: new Set() })
    await metadata.collections.converge(some, epochs)
    const uuids = some.map(({ uuid }) => uuid)
    await metadata.segments.remove(uuids)
    // Every document is copied or compared again, so the recorded tombstones are not needed any more.
    await metadata.tombstones.remove(some)
  }

  const entries: CatalogEntry[] = []
  for (const database of await databases()) {
    const what = `preparing to converge ${database}`
    entries.push(...(await retry(what, context, () => prepareDatabase(parts, database, isConcerned, scope === 'all'))))
  }
  atStep('replanCollections')
  await reset(entries)
  await discardVerified(scope === 'all' ? 'all' : entries.map(({ uuid }) => uuid))
  atStep('replanDefinitions')
  const known = new Set(catalog.entries())
  await followDefinitions()
  const startTime = await timeOfNoOp(parts, 'converge')
  if (scope === 'all') {
    await followDefinitions()
    await barriers.removeAll()
    await metadata.savePositions(epochs, { kind: 'time', time: startTime })
  } else if (replaced) await beginAtTimes(parts)
  // This includes collections that an earlier coordinator created, or prepared to be copied again, before it could store
  // the plan.
  const isNew = (entry: CatalogEntry): boolean => entry.state === 'copying' && (!known.has(entry) || !entry.planned)
  const concerned = catalog.entries().filter((entry) => isConcerned(entry) || isNew(entry))
  // The other collections are new for the sync, or were outside the selection for a while.
  const prepared = new Set(entries)
  const others = concerned.filter((entry) => !prepared.has(entry))
  for (const entry of others) entry.converging ||= known.has(entry) && isConcerned(entry)
  await reset(others)
  if (scope !== 'all') await discardVerified(others.map(({ uuid }) => uuid))
  const uuids = concerned.map(({ uuid }) => uuid)
  for (const entry of concerned) entry.convergedFrom = startTime
  await metadata.collections.saveConvergedFrom(uuids, startTime)
  atStep('replanEnd')
  // During a convergence, a TTL index would delete documents, and a unique index would refuse some.
  await deferredOptions.deferAll(concerned)
  context.journal?.('convergence planned', { collections: uuids.length, all: scope === 'all' })
  return startTime
}

/** Writes an oplog no-op on the source and returns its time. */
async function timeOfNoOp({ source, context }: ConvergencePlanParts, text: string): Promise<ClusterTime> {
  const reply = await retry('taking a new start time', context, () => appendOplogNote(source, text))
  return operationTimeOf(reply) ?? source.latest
}

/**
 * Adds the collections that were renamed since the stored positions. Returns 'all' if the oplog does not reach back to
 * the positions.
 */
async function withRenamed(
  parts: ConvergencePlanParts,
  scope: ReadonlySet<string>,
): Promise<ReadonlySet<string> | 'all'> {
  const renamed = await renamedCollections(parts, await timeOfNoOp(parts, 'before the search for renames'))
  return renamed === 'lost' ? 'all' : new Set([...scope, ...renamed])
}

/**
 * Replaces the resume token of each position by its time, because the server cannot resume at an event that the new
 * filters exclude. The events at that time are applied again.
 */
async function beginAtTimes({ metadata, epochs }: ConvergencePlanParts): Promise<void> {
  for (const [partition, { time }] of await metadata.loadPartitions()) {
    const epoch = epochs.get(partition)
    if (epoch !== undefined) await metadata.savePosition(partition, epoch, { kind: 'time', time })
  }
}

/** Returns the databases of these collections. Searches all selected databases for those that the catalog lacks. */
async function databasesWith(
  { source, catalog, databases, context }: ConvergencePlanParts,
  uuids: ReadonlySet<string>,
): Promise<ReadonlySet<string>> {
  const known = catalog.entries().filter(({ uuid }) => uuids.has(uuid))
  const found = new Set(known.map(({ database }) => database))
  if (known.length === uuids.size) return found
  await inParallel(databasesAtOnce, [...(await databases())], async (database) => {
    const listed = await retry(`listing ${database}`, context, () => listCollections(source, database))
    if (listed.some(({ uuid }) => uuids.has(uuid))) found.add(database)
  })
  return found
}

const databasesAtOnce = 8

/**
 * Prepares the concerned collections of a database on the destination. Changes their options to those in the catalog,
 * as far as a command can change them. Drops collections that must be created and copied again: capped collections,
 * because insertion order is part of their content, and collections whose shard key cannot become the wanted one.
 * Returns the collections that must be converged or copied.
 * @param dropsGone true if collections that the source no longer has are dropped on the destination
 */
async function prepareDatabase(
  {
    source,
    destination,
    selection,
    catalog,
    metadata,
    destinationDefinitions,
    shardingEntries,
    context,
  }: ConvergencePlanParts,
  database: string,
  isConcerned: (entry: CatalogEntry) => boolean,
  dropsGone: boolean,
): Promise<CatalogEntry[]> {
  const [{ all, listed }, existing, sourceKeys, destinationKeys] = await Promise.all([
    readCommitted(source, async () => {
      const all = await listCollections(source, database)
      return { all, listed: await selection.among(database, all) }
    }),
    listCollections(destination, database),
    distributionsByUuid(source, database),
    distributionsByUuid(destination, database),
  ])
  const onSource = new Map(listed.map((one) => [one.uuid, one]))
  const onDestination = new Map(existing.map((one) => [one.uuid, one]))
  const concerned: CatalogEntry[] = []
  for (const entry of catalog.inDatabase(database).filter(isConcerned)) {
    const name = namespace(database, entry.name)
    if (!onSource.has(entry.uuid)) {
      // The source has dropped the collection, or renamed it to a name that is not selected. An event will report this
      // unless changes were missed.
      if (!dropsGone) continue
      await destinationDefinitions.drop(entry)
      await metadata.collections.remove(entry.uuid)
      catalog.remove(entry.uuid)
      const fate = all.some(({ uuid }) => uuid === entry.uuid) ? 'not selected any more' : 'dropped'
      context.journal?.('existing namespace dropped', { namespace: name, fate })
      continue
    }
    // The listing also has views, whose UUID is empty.
    const found = entry.destinationUUID ? onDestination.get(entry.destinationUUID) : undefined
    const distribution = destinationKeys.get(found?.uuid ?? '')
    throwIfResharding(destination, distribution)
    // While a rename from another database is in progress, the collection has a temporary name, for which the start
    // request has no shard key. The key of its present name on the source then applies.
    const hadTemporaryName = !source.sharded && isRenamedAcrossDatabases(entry.name)
    const renamed = { ...entry, name: onSource.get(entry.uuid)?.name ?? entry.name }
    const requested =
      hadTemporaryName || source.sharded ? wantedShardKey(source, sourceKeys, shardingEntries, renamed) : entry.shardKey
    const wantedKey = destination.sharded ? requested : null
    const isKept =
      !isCapped(entry.wanted.options) &&
      keepsDistribution(source, distribution, wantedKey) &&
      !destination.names.separates(database, entry.name, renamed.name)
    if (found && !isKept) {
      await destinationDefinitions.drop(entry)
      context.journal?.('existing namespace dropped', { namespace: name, fate: 'recreated' })
    } else if (found) await destinationDefinitions.followOptions(entry, entry.wanted.options, found.options)
    entry.converging = found !== undefined && isKept
    if (entry.converging) entry.shardKey = distribution?.key ?? null
    // If the destination has no such collection, the reconciliation of definitions creates it, and it is copied.
    else entry.destinationUUID = null
    concerned.push(entry)
  }
  return concerned
}
