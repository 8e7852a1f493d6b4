import type { CatalogEntry } from '../domain/catalog.ts'
import { indexName } from '../domain/definition.ts'
import { FatalError } from '../domain/errors.ts'
import { inParallel } from '../domain/in-parallel.ts'
import { namespace } from '../domain/namespace.ts'
import { isTemporary } from '../domain/namespace-filter.ts'
import type { Cluster } from '../mongo/cluster.ts'
import type { Metadata } from '../mongo/metadata.ts'
import { type RetryContext, retry } from '../mongo/retry.ts'
import type { Selects } from '../mongo/selection.ts'
import type { DeferredOptions } from './deferred-options.ts'
import type { DestinationDefinitions } from './destination-definitions.ts'
import { listCollections, listDatabases, listIndexes } from './listing.ts'

export interface LeaveFilterParts {
  destination: Cluster
  selection: Selects
  catalog: { remove(uuid: string): void }
  metadata: Metadata
  destinationDefinitions: DestinationDefinitions
  deferredOptions: DeferredOptions
  context: RetryContext
}

/** Number of collections that are removed from the sync in parallel. */
const atOnce = 8

/**
 * Removes from the sync the collections that the filters no longer include. The deferred options of those that are not
 * dropped are restored here, because no commit will restore them. This is repeatable, because the entry is removed
 * last.
 * @param drops true if the collections are dropped on the destination
 */
export async function leaveFilter(parts: LeaveFilterParts, entries: CatalogEntry[], drops: boolean): Promise<void> {
  const { destination, catalog, metadata, destinationDefinitions, context } = parts
  await inParallel(atOnce, entries, async (entry) => {
    const name = namespace(entry.database, entry.name)
    // A collection with a temporary name is always dropped, because no later step would rename it.
    const dropped = drops || isTemporary(entry.name)
    if (dropped)
      await retry(`dropping ${destination.names.shown(name)}`, context, () => destinationDefinitions.drop(entry))
    else if (entry.destinationUUID) await restoreOptions(parts, entry)
    await metadata.collections.remove(entry.uuid)
    catalog.remove(entry.uuid)
    context.journal?.('namespace excluded', { namespace: name, ...destination.names.differing(name), dropped })
  })
}

/**
 * Restores the options as a commit does. The destination's documents may have been read at different times, so they may
 * violate a unique index although the source never had duplicates. Such an index keeps `prepareUnique`. A step that
 * fails is logged and may skip other indexes, but the next steps still run.
 *
 * Indexes that await the end of the copy are not built. Building them may take hours, during which no instance applies
 * changes, and the collection is incomplete anyway.
 */
async function restoreOptions(parts: LeaveFilterParts, entry: CatalogEntry): Promise<void> {
  const { destination, deferredOptions, destinationDefinitions, context } = parts
  const name = namespace(entry.database, entry.name)
  const shown = destination.names.shown(name)
  const build = async (which: 'unique' | 'all'): Promise<void> => {
    if (!entry.awaitsIndexes) await destinationDefinitions.indexes.buildConflicting(entry, which)
  }
  const steps = [
    () => deferredOptions.restoreCapped([entry]),
    () => build('unique'),
    () => deferredOptions.prepareIndexes([entry]),
    () => deferredOptions.restoreExpiry([entry]),
    () => deferredOptions.finishIndexes([entry]),
    () => build('all'),
    // These restore the options of the indexes that were just built.
    () => deferredOptions.restoreExpiry([entry]),
    () => deferredOptions.finishIndexes([entry]),
  ]
  for (const step of steps) {
    try {
      await retry(`restoring options of ${shown}`, context, step)
    } catch (error) {
      if (!(error instanceof FatalError) || !['DuplicateKey', 'IndexBuildFailed'].includes(error.failure)) throw error
      const logged = { namespace: name, ...destination.names.differing(name), error: error.failure }
      context.journal?.('options not restored', logged)
    }
  }
  if (entry.awaitsIndexes) await retry(`reading the indexes of ${shown}`, context, () => logMissing(parts, entry))
}

/** Logs the names of the source's indexes that the collection does not have. */
async function logMissing(parts: LeaveFilterParts, entry: CatalogEntry): Promise<void> {
  const { destination, destinationDefinitions, context } = parts
  const existing = (await listIndexes(destination, entry.database, entry.destinationUUID ?? '')) ?? []
  const missing = destinationDefinitions.indexes.missingIndexes(existing, entry.wanted.indexes)
  if (missing.length === 0) return
  const name = namespace(entry.database, entry.name)
  const logged = { namespace: name, ...destination.names.differing(name), indexes: missing.map(indexName) }
  context.journal?.('indexes not built', logged)
}

/** Drops the destination's views that the former filters include and the current one does not. This is repeatable. */
export async function dropExcludedViews(parts: LeaveFilterParts, former: readonly Selects[]): Promise<void> {
  const { destination, selection, context } = parts
  await retry('dropping excluded views', context, async () => {
    const all = await listDatabases(destination)
    const databases = new Set((await Promise.all(former.map((one) => one.databases(all)))).flat())
    for (const database of databases) {
      const views = (await listCollections(destination, database)).filter(({ type }) => type === 'view')
      const ours = new Set((await Promise.all(former.map((one) => one.among(database, views)))).flat())
      for (const view of await selection.among(database, views)) ours.delete(view)
      for (const { name } of ours) {
        await destination.write(database, { drop: name })
        const excluded = namespace(database, name)
        const logged = { namespace: excluded, ...destination.names.differing(excluded), dropped: true }
        context.journal?.('namespace excluded', logged)
      }
    }
  })
}
