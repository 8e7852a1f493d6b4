import { listCollections, listDatabases } from '../definitions/listing.ts'
import { caseKey } from '../domain/database-case.ts'
import { RefusedError } from '../domain/errors.ts'
import { namespace, splitNamespace } from '../domain/namespace.ts'
import { NamespaceRemap } from '../domain/namespace-remap.ts'
import type { NamespaceRename } from '../domain/start-request.ts'
import type { Cluster } from '../mongo/cluster.ts'
import type { Selection } from '../mongo/selection.ts'
import type { Check, CheckedClusters } from './check.ts'

/**
 * Refuses `namespaceRemap` if the filters select nothing of a renamed database or collection, which must be a mistake in
 * one of the names, if two databases or collections of the source would collide on the destination, or if a collection
 * cannot be renamed.
 */
export const checkNamespaceRemap: Check = async (clusters) => {
  const { configuration, selection, source, destination } = clusters
  const renames = configuration.namespaceRemap
  if (!renames) return []
  refuseTopology(renames, source, destination)
  const selected = new Set(await selection.databases(renames.map(({ from }) => from.database)))
  for (const [at, { from }] of renames.entries()) {
    const isSelected =
      from.collection === undefined
        ? selected.has(from.database)
        : await selection.selects(from.database, from.collection)
    if (isSelected) continue
    const [part, name] =
      from.collection === undefined
        ? ['database', from.database]
        : ['collection', namespace(from.database, from.collection)]
    throw new RefusedError(
      'InvalidRequest',
      `namespaceRemap[${at}].from.${part}: the filters do not select ${name}; select it by includeNamespaces and excludeNamespaces, or leave the element out`,
    )
  }
  refuseOtherCase(renames, await listDatabases(source), (name) => caseKey(source, name))
  for (const [at, { from }] of renames.entries()) {
    if (from.collection !== undefined) await refuseOtherTypes(source, from.database, from.collection, at)
  }
  return await checkRemapCollisions(clusters)
}

/** Single collections are renamed only between replica sets: shard keys, zones and chunks belong to whole databases. */
function refuseTopology(renames: readonly NamespaceRename[], source: Cluster, destination: Cluster): void {
  const at = renames.findIndex(({ from }) => from.collection !== undefined)
  if (at === -1) return
  const field = `namespaceRemap[${at}].from.collection`
  if (source.sharded || destination.sharded)
    throw new RefusedError(
      'InvalidRequest',
      `${field}: single collections can be renamed only if both clusters are replica sets, and the ${source.sharded ? 'source' : 'destination'} is sharded; rename whole databases, or rename the collection after the commit`,
    )
  if (source.before6)
    throw new RefusedError(
      'InvalidRequest',
      `${field}: single collections can be renamed only if the source is 6.0 or later, and it is ${source.version}; rename whole databases, or rename the collection after the commit`,
    )
}

/** The collection may be created later. If it becomes a view or a time-series collection, the sync fails by name. */
async function refuseOtherTypes(source: Cluster, database: string, collection: string, at: number): Promise<void> {
  const [found] = await listCollections(source, database, collection)
  if (!found || found.type === 'collection') return
  const what = found.type === 'view' ? 'a view' : 'a time-series collection'
  throw new RefusedError(
    'InvalidRequest',
    `namespaceRemap[${at}].from.collection: ${namespace(database, collection)} is ${what} on the source, and only collections can be renamed; leave the element out`,
  )
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
 * Refuses filters that select two databases or collections for one name on the destination. A renamed database that the
 * filters do not select any more is no mistake here, because it has been synced.
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
  /** The databases of the destination that the sync writes to, each with what it has of the source. */
  const taken = new Map<string, { there: string; from: string }>()
  const take = (from: string, there: string): void => {
    const key = caseKey(destination, there)
    const other = taken.get(key)
    // Renamed collections may share a database with others.
    if (other !== undefined && other.there !== there)
      throw new RefusedError(
        'InvalidRequest',
        `namespaceRemap: ${other.from} and ${from} of the source would be ${names.namespaceOnDestination(other.from)} and ${names.namespaceOnDestination(from)} on the destination, and the server accepts no two names of databases that differ only in case; give one of them another name, or exclude it by a filter`,
      )
    taken.set(key, { there, from })
  }
  for (const database of await selection.databases(await listDatabases(source)))
    take(database, names.onDestination(database))
  for (const [from, to] of names.placed) {
    const { database, collection } = splitNamespace(from)
    if (await selection.selects(database, collection)) take(from, splitNamespace(to).database)
  }
  return []
}

/** The database or collection may be created on the source later, so its name decides and not whether it exists. */
async function refuseDisplaced(
  selection: Selection,
  renames: readonly NamespaceRename[],
  { displaced, displacedCollections }: NamespaceRemap,
): Promise<void> {
  const [database] = await selection.databases(displaced)
  if (database !== undefined) {
    const at = renames.findIndex(({ to }) => to.collection === undefined && to.database === database)
    throw new RefusedError(
      'InvalidRequest',
      `namespaceRemap[${at}].to.database: the filters select the database ${database} of the source too, which would have the same name on the destination; exclude it ("excludeNamespaces": [{"database": ${JSON.stringify(database)}}]), or rename it too`,
    )
  }
  for (const { database: of, collection } of displacedCollections) {
    if (!(await selection.selects(of, collection))) continue
    const names = new NamespaceRemap(renames)
    const wanted = names.onDestination(of)
    const at = renames.findIndex(({ to }) => to.database === wanted && to.collection === collection)
    throw new RefusedError(
      'InvalidRequest',
      `namespaceRemap[${at}].to.collection: the filters select ${namespace(of, collection)} of the source too, which would have the same name on the destination; exclude it ("excludeNamespaces": [{"database": ${JSON.stringify(of)}, "collections": [${JSON.stringify(collection)}]}]), or rename it too`,
    )
  }
}
