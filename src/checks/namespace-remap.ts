import { listDatabases } from '../definitions/listing.ts'
import { caseKey } from '../domain/database-case.ts'
import { RefusedError } from '../domain/errors.ts'
import { NamespaceRemap } from '../domain/namespace-remap.ts'
import type { NamespaceRename } from '../domain/start-request.ts'
import type { Selection } from '../mongo/selection.ts'
import type { Check, CheckedClusters } from './check.ts'

/**
 * Refuses `namespaceRemap` if the filters select no collection of a renamed database, which must be a mistake in one of
 * the names, or if two databases of the source would collide on the destination.
 */
export const checkNamespaceRemap: Check = async (clusters) => {
  const { configuration, selection } = clusters
  const renames = configuration.namespaceRemap
  if (!renames) return []
  const selected = new Set(await selection.databases(renames.map(({ from }) => from.database)))
  const at = renames.findIndex(({ from }) => !selected.has(from.database))
  if (at !== -1)
    throw new RefusedError(
      'InvalidRequest',
      `namespaceRemap[${at}].from.database: the filters do not select ${renames[at]?.from.database}; select it by includeNamespaces and excludeNamespaces, or leave the element out`,
    )
  refuseOtherCase(renames, await listDatabases(clusters.source), (name) => caseKey(clusters.source, name))
  return await checkRemapCollisions(clusters)
}

/**
 * The database may be created later, so it need not exist. But the server accepts no second name that differs only in case:
 * the existing database would be synced under its own name.
 */
function refuseOtherCase(
  renames: readonly NamespaceRename[],
  existing: readonly string[],
  keyOf: (database: string) => string,
): void {
  for (const [at, { from }] of renames.entries()) {
    if (existing.includes(from.database)) continue
    const other = existing.find((name) => keyOf(name) === keyOf(from.database))
    if (other === undefined) continue
    throw new RefusedError(
      'InvalidRequest',
      `namespaceRemap[${at}].from.database: the source has no database ${from.database}, but ${other}; use its exact name`,
    )
  }
}

/**
 * Refuses filters that select two databases for one name on the destination. A renamed database that the filters do not
 * select any more is no mistake here, because it has been synced.
 */
export const checkRemapCollisions = async ({
  configuration,
  source,
  destination,
  selection,
}: Pick<CheckedClusters, 'configuration' | 'source' | 'destination' | 'selection'>): Promise<[]> => {
  const renames = configuration.namespaceRemap
  if (!renames) return []
  const names = new NamespaceRemap(renames)
  await refuseDisplaced(selection, renames, names)
  const taken = new Map<string, string>()
  for (const database of await selection.databases(await listDatabases(source))) {
    const there = names.onDestination(database)
    const key = caseKey(destination, there)
    const other = taken.get(key)
    if (other !== undefined)
      throw new RefusedError(
        'InvalidRequest',
        `namespaceRemap: the databases ${other} and ${database} of the source would be ${names.onDestination(other)} and ${there} on the destination, and the server accepts no two names that differ only in case; give one of them another name, or exclude it by a filter`,
      )
    taken.set(key, database)
  }
  return []
}

/** The database may be created on the source later, so its name decides and not whether it exists. */
async function refuseDisplaced(
  selection: Selection,
  renames: readonly NamespaceRename[],
  { displaced }: NamespaceRemap,
): Promise<void> {
  const [database] = await selection.databases(displaced)
  if (database === undefined) return
  const at = renames.findIndex(({ to }) => to.database === database)
  throw new RefusedError(
    'InvalidRequest',
    `namespaceRemap[${at}].to.database: the filters select the database ${database} of the source too, which would have the same name on the destination; exclude it ("excludeNamespaces": [{"database": ${JSON.stringify(database)}}]), or rename it too`,
  )
}
