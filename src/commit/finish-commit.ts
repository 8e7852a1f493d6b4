import { copyBalancing } from '../definitions/balancing.ts'
import type { BothCatalogs } from '../definitions/both-catalogs.ts'
import type { DeferredOptions, ExistingDefinitions } from '../definitions/deferred-options.ts'
import type { DestinationDefinitions } from '../definitions/destination-definitions.ts'
import { findDiffering } from '../definitions/differing-definitions.ts'
import { listDatabases } from '../definitions/listing.ts'
import { droppedByAnother, findMissing } from '../definitions/missing-collections.ts'
import type { DefinitionReconciler } from '../definitions/reconcile-definitions.ts'
import { copyZones } from '../definitions/zones.ts'
import type { DocumentWriter } from '../documents/write-identities.ts'
import type { Catalog, CatalogEntry } from '../domain/catalog.ts'
import { isCapped } from '../domain/definition.ts'
import { errorText } from '../domain/error-text.ts'
import { FatalError } from '../domain/errors.ts'
import { inParallel } from '../domain/in-parallel.ts'
import { namespace } from '../domain/namespace.ts'
import { notLost } from '../domain/not-lost.ts'
import type { Cluster } from '../mongo/cluster.ts'
import { type RetryContext, retry } from '../mongo/retry.ts'
import type { Selection } from '../mongo/selection.ts'
import { restoreCappedOrder } from './capped-order.ts'
import type { ReversePosition } from './reverse-position.ts'

export interface CommitParts {
  source: Cluster
  destination: Cluster
  selection: Selection
  catalog: Catalog
  definitions: DefinitionReconciler
  destinationDefinitions: DestinationDefinitions
  deferredOptions: DeferredOptions
  writer: DocumentWriter
  context: RetryContext
  /** The start position of a reversed stream; null when the sync is not reversible. */
  reversePosition: ReversePosition | null
  /** Restores the setting that the destination's balancer had before the sync. */
  restoreBalancer: () => Promise<void>
  /** Called at the start of each named step. */
  atStep: (step: string) => void
}

/** Returns the databases whose definitions must be read: the selected ones on the source, and those in the catalog. */
export async function databasesOf(parts: CommitParts): Promise<Set<string>> {
  return new Set([...(await selectedDatabases(parts)), ...parts.catalog.databases()])
}

/** Returns the databases of the source with selected namespaces. */
export async function selectedDatabases({
  source,
  selection,
  context,
}: Pick<CommitParts, 'source' | 'selection' | 'context'>): Promise<string[]> {
  return await retry('listing databases', context, async () => selection.databases(await listDatabases(source)))
}

/** Collections processed in parallel by steps that run several commands for each. */
const atOnce = 8
/** Databases reconciled in parallel. Each reads and changes several collections in parallel. */
export const databasesAtOnce = 4

/**
 * Prepares the destination for writes when all events up to the commit timestamp are applied: reconciles definitions a
 * last time, restores capped collections, builds missing unique indexes, sets prepareUnique, and copies zones and
 * noBalance. Reads the definitions of both clusters first, so that each step changes only the collections that need it.
 * Every step is repeatable.
 * @param read the catalogs of both clusters if they were just read
 */
export async function prepareToWrite(parts: CommitParts, read?: BothCatalogs): Promise<void> {
  const { source, destination, catalog, deferredOptions } = parts
  parts.atStep('compareDefinitions')
  const found = await reconcileDiffering(parts, read)
  const entries = catalog.entries()
  const refused = parts.destinationDefinitions.indexes.refusedIn(entries)
  if (refused) {
    throw new FatalError(
      'IndexBuildFailed',
      `preparing the commit: the destination cannot build ${refused}. Fix the cause and send resume. ${notLost.progress}`,
    )
  }
  const existing = found ?? (await deferredOptions.read(entries))
  await refuseMissing(
    parts,
    entries.filter(({ destinationUUID: uuid }) => !existing.has(uuid ?? '')),
    'preparing the commit',
  )
  parts.atStep('capped')
  const capped = entries.filter(({ wanted }) => isCapped(wanted.options))
  await each(parts, capped, (entry) =>
    restoreCappedOrder(source, destination, parts.writer, entry, parts.context.signal),
  )
  await deferredOptions.restoreCapped(capped, existing)
  await each(parts, withMissingIndexes(parts, entries, existing), (entry) =>
    parts.destinationDefinitions.indexes.buildConflicting(entry, 'unique'),
  )
  parts.atStep('prepareIndexes')
  await deferredOptions.prepareIndexes(entries, existing)
  // Zones have no change events, and must exist when the balancer's setting is restored. Users may be unable to write
  // now, and the zones can also be created after the commit, so a refused zone does not fail the commit.
  const logRefused = (what: string, { cause }: FatalError): void =>
    parts.context.journal?.('zone not copied', { what, error: errorText(cause) })
  await retry('copying zones', parts.context, () => copyZones(source, destination, entries, logRefused))
  await copyBalancing(source, destination, entries, {
    refused: (name, error) => parts.context.journal?.('balancing not copied', { namespace: name, error }),
    notUnique: (name) => parts.context.journal?.('shard key not unique', { namespace: name }),
  })
}

/** Reconciles differing definitions. Returns the destination's definitions when none differed, otherwise null. */
async function reconcileDiffering(parts: CommitParts, read?: BothCatalogs): Promise<ExistingDefinitions | null> {
  const { source, destination, selection, catalog, definitions, destinationDefinitions, context } = parts
  const { databases, existing } = await retry('comparing definitions', context, () =>
    findDiffering(
      {
        ...{ source, destination, selection, catalog },
        isFollowed: (...definition) => destinationDefinitions.indexes.isFollowed(...definition),
        included: destinationDefinitions.indexes.included,
        moved: (placements) => definitions.moved(placements),
      },
      read,
    ),
  )
  if (databases.size === 0) return existing
  await inParallel(databasesAtOnce, [...databases], async ([database, touched]) => {
    await definitions.reconcile(database, touched, 'refused')
  })
  return null
}

/**
 * Throws FatalError DestinationConflict if one of these collections exists on the source, but another program has
 * dropped it on the destination.
 */
async function refuseMissing(parts: CommitParts, entries: readonly CatalogEntry[], during: string): Promise<void> {
  if (entries.length === 0) return
  const what = 'looking for dropped collections'
  const [missing] = await retry(what, parts.context, () => findMissing(parts, entries))
  if (missing) throw droppedByAnother(parts.destination, missing, during)
}

/**
 * Checks a last time before the decision that no collection was dropped on the destination. The preparation may have
 * taken long since its own check, and without verification nothing else finds a collection that was dropped meanwhile.
 */
export async function refuseDropped(parts: CommitParts): Promise<void> {
  await refuseMissing(parts, parts.catalog.entries(), 'checking the destination before the commit')
}

function withMissingIndexes(
  { destinationDefinitions }: CommitParts,
  entries: CatalogEntry[],
  existing: ExistingDefinitions,
): CatalogEntry[] {
  return entries.filter(({ destinationUUID, wanted }) => {
    const indexes = existing.get(destinationUUID ?? '')?.indexes
    return indexes && destinationDefinitions.indexes.missingIndexes(indexes, wanted.indexes).length > 0
  })
}

async function each(
  { context }: CommitParts,
  entries: CatalogEntry[],
  work: (entry: CatalogEntry) => Promise<unknown>,
): Promise<void> {
  await inParallel(atOnce, entries, async (entry) => {
    await retry(`commit of ${namespace(entry.database, entry.name)}`, context, () => work(entry))
  })
}

/**
 * Lets documents expire on the destination again. This is the last change there before the commit is decided. Changes
 * only collections whose documents expire. It can be repeated.
 */
export async function restoreExpiry({ atStep, deferredOptions, catalog }: CommitParts): Promise<void> {
  atStep('restoreExpiry')
  await deferredOptions.restoreExpiry(catalog.entries())
}

/** Stops documents from expiring on the destination before a verdict that follows `restoreExpiry`. It can be repeated. */
export async function deferExpiry({ deferredOptions, catalog }: CommitParts): Promise<void> {
  await deferredOptions.deferExpiry(catalog.entries())
}

/**
 * Defers all options again. A commit that failed or crashed before `canWrite` starts again with event application,
 * because the source may have been written in the meantime. Constraints that the commit had already restored would
 * reject documents then.
 */
export async function deferAgain({ deferredOptions, catalog }: CommitParts): Promise<void> {
  await deferredOptions.deferAll(catalog.entries())
}

/**
 * After `canWrite`, makes unique indexes unique and hidden indexes hidden, builds the indexes that are still missing,
 * and restores the balancer's setting. Every step is repeatable.
 */
export async function finishIndexes(parts: CommitParts): Promise<void> {
  const { deferredOptions, catalog, destinationDefinitions } = parts
  parts.atStep('finishIndexes')
  const entries = catalog.entries().filter(({ wanted }) => wanted.indexes.length > 0)
  const existing = await deferredOptions.read(entries)
  await deferredOptions.finishIndexes(entries, existing)
  await each(parts, withMissingIndexes(parts, entries, existing), async (entry) => {
    await destinationDefinitions.indexes.buildConflicting(entry, 'all')
    // Restores the options of the indexes that were just built.
    await deferredOptions.prepareIndexes([entry])
    await deferredOptions.restoreExpiry([entry])
    await deferredOptions.finishIndexes([entry])
  })
  parts.atStep('restoreBalancer')
  await retry("restoring the balancer's setting", parts.context, parts.restoreBalancer)
}
