import type { Catalog, CatalogEntry } from '../domain/catalog.ts'
import { type IndexSpecification, indexName } from '../domain/definition.ts'
import { inParallel } from '../domain/in-parallel.ts'
import { namespace } from '../domain/namespace.ts'
import type { RawFields } from '../domain/raw-bson.ts'
import type { Cluster } from '../mongo/cluster.ts'
import type { Selection } from '../mongo/selection.ts'
import { type ListedCollection, listCollections, listDatabases, listIndexesOf, readCommitted } from './listing.ts'
import { isUnfinishedConversion } from './read-database.ts'

/**
 * A source older than 6.0 emits events for drops and renames, but not for creations, indexes, options or views.
 * Therefore its collections and their options are read periodically, and at commit its indexes as well. Collections
 * that are not in the catalog are converged, because events of their documents may have been skipped. Changed
 * definitions of collections in the catalog are reconciled. Views are made equal at commit.
 */
export interface SilentChanges {
  /** Selected collections of the source that are not in the catalog, by UUID, each with its namespace. */
  unknown: Map<string, string>
  /**
   * The databases in which the source differs from the catalog in a known collection, each with the first difference.
   */
  changed: Map<string, string>
}

/** Returns those of a collection's indexes that the sync creates and compares. They depend on its shard key. */
type IncludedIndexes = (all: IndexSpecification[], shardKey: CatalogEntry['shardKey']) => IndexSpecification[]

/**
 * Finds changed definitions and confirms them with a majority-committed read. Views are not compared.
 * @param included selects the indexes that are compared; null if indexes are not compared
 */
export async function findSilentChanges(
  source: Cluster,
  catalog: Catalog,
  selection: Selection,
  included: IncludedIndexes | null,
): Promise<SilentChanges> {
  const found: SilentChanges = { unknown: new Map(), changed: new Map() }
  const selected = await selection.databases(await listDatabases(source))
  await inParallel(databasesAtOnce, [...new Set([...selected, ...catalog.databases()])], async (database) => {
    const find = (): Promise<DatabaseChanges> => findChanges(source, catalog, selection, database, included)
    const first = await find()
    if (first.change === null && first.unknown.size === 0) return
    // A primary that is about to be deposed may show a change that will be rolled back.
    const { change, unknown } = await readCommitted(source, find)
    for (const [uuid, name] of unknown) found.unknown.set(uuid, namespace(database, name))
    if (change !== null) found.changed.set(database, change)
  })
  return found
}

const databasesAtOnce = 4

interface DatabaseChanges {
  unknown: Map<string, string>
  change: string | null
}

async function findChanges(
  source: Cluster,
  catalog: Catalog,
  selection: Selection,
  database: string,
  included: IncludedIndexes | null,
): Promise<DatabaseChanges> {
  const existing = await listCollections(source, database)
  const selected = await selection.among(database, existing)
  const listed = selected.filter((one) => one.type === 'collection' && !isUnfinishedConversion(one))
  const unknown = new Map(listed.flatMap(({ uuid, name }) => (catalog.get(uuid) ? [] : [[uuid, name] as const])))
  const present = new Set(listed.map(({ uuid }) => uuid))
  const gone = catalog.inDatabase(database).find(({ uuid }) => !present.has(uuid))
  if (gone) {
    const isRenamed = existing.some(({ uuid }) => uuid === gone.uuid)
    const what = isRenamed ? 'renamed to a name that the filters do not select' : 'dropped'
    return { unknown, change: `${namespace(database, gone.sourceName)} was ${what}` }
  }
  const located = listed.map(({ uuid, name }) => ({ database, uuid, name }))
  const indexes = included ? await listIndexesOf(source, located) : null
  for (const one of listed) {
    const entry = catalog.get(one.uuid)
    if (!entry) continue
    const all = indexes?.get(one.uuid)
    const change = changeOf(entry, one, all && included?.(all, entry.shardKey))
    if (change !== null) return { unknown, change }
  }
  return { unknown, change: null }
}

function changeOf(entry: CatalogEntry, one: ListedCollection, indexes?: IndexSpecification[]): string | null {
  const name = namespace(entry.database, entry.sourceName)
  if (entry.sourceName !== one.name || entry.name !== one.name) return `${name} was renamed`
  if (!sameFields(entry.wanted.options, one.options)) return `the options of ${name} were changed`
  const index = indexes ? changedIndex(entry, indexes) : null
  return index === null ? null : `the index ${index} of ${name} was created, dropped or changed`
}

/** Returns the name of an index that was created, dropped or changed, or null if no index changed. */
function changedIndex(entry: CatalogEntry, indexes: IndexSpecification[]): string | null {
  const found = new Map(indexes.map((index) => [indexName(index), index]))
  for (const known of entry.wanted.indexes) {
    const name = indexName(known)
    const existing = found.get(name)
    if (!existing || !sameFields(known, existing)) return name
    found.delete(name)
  }
  const [created = null] = found.keys()
  return created
}

function sameFields(one: RawFields, other: RawFields): boolean {
  return (
    one.length === other.length &&
    one.every(({ name, value }, at) => other[at]?.name === name && other[at]?.value.equals(value))
  )
}
