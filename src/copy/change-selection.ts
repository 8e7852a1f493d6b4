import { dropExcludedViews, type LeaveFilterParts, leaveFilter } from '../definitions/leave-filter.ts'
import { listCollections, readCommitted } from '../definitions/listing.ts'
import { moveToNames } from '../definitions/move-to-names.ts'
import { awaitsShardKey } from '../definitions/sharding.ts'
import { type TakeOverParts, takeOverExisting } from '../definitions/take-over-existing.ts'
import type { Catalog, CatalogEntry } from '../domain/catalog.ts'
import { errorText } from '../domain/error-text.ts'
import { FatalError } from '../domain/errors.ts'
import { namespace } from '../domain/namespace.ts'
import { notLost } from '../domain/not-lost.ts'
import { code, codeOf } from '../mongo/errors.ts'
import { retry } from '../mongo/retry.ts'
import { newlySelected, type Selects } from '../mongo/selection.ts'

/** The filters that were replaced since collections were last planned. */
export interface ReplacedFilters {
  before: readonly Selects[]
  /** True if newly excluded collections and views are dropped on the destination. */
  dropExcluded: boolean
}

export interface ChangeSelectionParts extends LeaveFilterParts, TakeOverParts {
  catalog: Catalog
  /** The new selection. */
  selection: Selects
  atStep: (step: string) => void
  /** All partitions, with the epochs under which this instance owns them. */
  epochs: ReadonlyMap<number, number>
}

/**
 * Updates the catalog for new filters. A collection leaves the catalog when its current name on the source is not
 * selected. The destination's collections with newly selected names enter the catalog if they can become equal to the
 * source's, and are dropped otherwise. Returns the UUIDs of the collections in the catalog that have newly selected
 * names: they must be converged.
 *
 * Some collections leave only because of a rename that tandem has not applied yet: the new filters select the name on
 * the destination, and neither they nor the former filters select the current name on the source. Such a collection is
 * always dropped on the destination, as if the rename had been applied before the filters were changed.
 *
 * Called in the sync's state `replanning`. Repeatable from any point.
 */
export async function changeSelection(parts: ChangeSelectionParts, replaced: ReplacedFilters): Promise<Set<string>> {
  const { catalog, selection, atStep } = parts
  atStep('replanFilter')
  const added = newlySelected(selection, replaced.before)
  // This step comes first: collections of the catalog may have newly selected names on the source by now, and this
  // step frees those names on the destination.
  await takeOverExisting({ ...parts, selection: added })
  const excluded: CatalogEntry[] = []
  for (const database of catalog.databases()) {
    const names = await readNames(parts, database)
    const all = catalog.inDatabase(database).map((entry) => ({ name: names.get(entry.uuid) ?? entry.name, entry }))
    const kept = new Set(await selection.among(database, all))
    const leaving = all.filter((one) => !kept.has(one))
    const renamedOut = await excludedByRename(parts, replaced, database, leaving)
    const isDropped = ({ entry }: { entry: CatalogEntry }): boolean => replaced.dropExcluded || renamedOut.has(entry)
    await leaveFilter(
      parts,
      leaving.filter(isDropped).map(({ entry }) => entry),
      true,
    )
    const others = leaving.filter((one) => !isDropped(one)).map(({ entry }) => entry)
    if (others.some((entry) => isRenamed(entry, names))) await followNames(parts, database, names, new Set(others))
    excluded.push(...others)
  }
  const remaining = excluded.filter(({ uuid }) => catalog.get(uuid))
  await leaveFilter(parts, remaining, false)
  if (replaced.dropExcluded) await dropExcludedViews(parts, replaced.before)
  return new Set((await amongEntries(catalog, added)).map(({ uuid }) => uuid))
}

/**
 * Returns the collections that leave only because of a rename. The new filters select the name of such a collection on
 * the destination, and the former filters do not select its current name on the source.
 * @param leaving the collections that leave, with their current names on the source
 */
async function excludedByRename(
  { selection }: ChangeSelectionParts,
  { before }: ReplacedFilters,
  database: string,
  leaving: { name: string; entry: CatalogEntry }[],
): Promise<Set<CatalogEntry>> {
  const withFormerNames = leaving.map(({ entry }) => entry)
  const renamedOut = new Set(await selection.among(database, withFormerNames))
  for (const one of before) {
    for (const { entry } of await one.among(database, leaving)) renamedOut.delete(entry)
  }
  return renamedOut
}

/** Returns the collections in the catalog whose names are selected. */
async function amongEntries(catalog: Catalog, selection: Selects): Promise<CatalogEntry[]> {
  const found: CatalogEntry[] = []
  for (const [database, entries] of catalog.byDatabase()) found.push(...(await selection.among(database, entries)))
  return found
}

/** Reads the current names of the database's collections on the source, by UUID. */
async function readNames({ source, context }: ChangeSelectionParts, database: string): Promise<Map<string, string>> {
  const listed = await retry(`listing ${database}`, context, () =>
    readCommitted(source, () => listCollections(source, database)),
  )
  return new Map(listed.map(({ uuid, name }) => [uuid, name]))
}

function isRenamed({ uuid, name }: CatalogEntry, names: ReadonlyMap<string, string>): boolean {
  return (names.get(uuid) ?? name) !== name
}

/**
 * Repeats the source's renames on the destination, so that no excluded collection keeps a selected name there. If a
 * collection or view that is not synced already has the new name there, an excluded collection is dropped, as after a
 * rename out of the filter. For any other collection this throws FatalError DestinationConflict.
 *
 * A rename that would move a collection to another database of the destination (`NamespaceRemap.separates`) is not repeated.
 * An excluded collection is dropped then, and any other one is dropped and copied again.
 */
async function followNames(
  parts: ChangeSelectionParts,
  database: string,
  names: ReadonlyMap<string, string>,
  excluded: ReadonlySet<CatalogEntry>,
): Promise<void> {
  const { source, destination, shardingEntries, catalog, destinationDefinitions, metadata, context } = parts
  const isSeparated = ({ uuid, name }: CatalogEntry): boolean =>
    destination.names.separates(database, name, names.get(uuid) ?? name)
  for (const entry of catalog.inDatabase(database).filter(isSeparated)) {
    if (excluded.has(entry)) await leaveFilter(parts, [entry], true)
    else await copyAgain(parts, entry)
  }
  const keepsName = (entry: CatalogEntry): boolean =>
    !excluded.has(entry) &&
    awaitsShardKey(source, destination, shardingEntries, entry, names.get(entry.uuid) ?? entry.name)
  const existing = (): CatalogEntry[] =>
    catalog.inDatabase(database).filter((entry) => entry.destinationUUID && !keepsName(entry))
  const wanted = new Set(existing().flatMap(({ uuid }) => names.get(uuid) ?? []))
  // The source has dropped these collections and given their names to others.
  const replaced = existing().filter(({ uuid, name }) => !names.has(uuid) && wanted.has(name))
  await leaveFilter(parts, replaced, true)
  const move = async (entry: CatalogEntry, name: string): Promise<void> => {
    try {
      await destinationDefinitions.rename(entry, name)
    } catch (error) {
      if (codeOf(error) !== code.namespaceExists) throw error
      if (excluded.has(entry)) return await leaveFilter(parts, [entry], true)
      throw new FatalError(
        'DestinationConflict',
        `changing the filter: the source has renamed ${namespace(database, entry.name)} to ${name}, and the destination has another collection or ` +
          `view with the name ${destination.names.shown(namespace(database, name))}, which tandem did not create (${errorText(error)}). Drop or rename it there and send resume. ${notLost.source}`,
        { cause: error },
      )
    }
    entry.name = name
    await metadata.collections.save([entry])
  }
  await retry(`renaming collections of ${database}`, context, () =>
    moveToNames(existing, ({ uuid, name }) => names.get(uuid) ?? name, move),
  )
}

/** Drops a collection on the destination. It is stored first that the collection must be created and copied again. */
async function copyAgain(
  { destinationDefinitions, metadata, epochs, context }: ChangeSelectionParts,
  entry: CatalogEntry,
): Promise<void> {
  if (!entry.destinationUUID) return
  const again = { state: 'copying', planned: false, totalCopied: null, converging: false } as const
  Object.assign(entry, { ...again, endedPartitions: new Set() })
  await metadata.collections.converge([entry], epochs)
  const name = namespace(entry.database, entry.name)
  await retry(`dropping ${name}`, context, () => destinationDefinitions.drop(entry))
  entry.destinationUUID = null
  await metadata.collections.converge([entry], epochs)
}
