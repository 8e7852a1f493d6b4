import { isUserCollection, isUserDatabase } from './namespace.ts'
import type { NamespaceFilter, NamespacePattern } from './start-request.ts'

/** The filters of a start request; null if the request does not have them. */
export interface NamespaceFilters {
  includeNamespaces: readonly NamespaceFilter[] | null
  excludeNamespaces: readonly NamespaceFilter[] | null
}

/**
 * True if a pattern matches a name. Only MongoDB evaluates its regular expressions exactly, so the caller asks the
 * server and passes this function in.
 */
export type Matches = (pattern: NamespacePattern, text: string) => boolean

export function isFiltered({ includeNamespaces, excludeNamespaces }: NamespaceFilters): boolean {
  return includeNamespaces !== null || excludeNamespaces !== null
}

/**
 * True if a collection or view with this name is synced. Only the name decides, so the result is the same before the
 * collection exists. Exclusion takes precedence over inclusion. The server's own databases and collections are never
 * synced.
 */
export function selects(filters: NamespaceFilters, matches: Matches, database: string, collection: string): boolean {
  if (!isUserDatabase(database) || !isUserCollection(collection)) return false
  const names = (filter: NamespaceFilter): boolean =>
    namesDatabase(filter, matches, database) && namesCollection(filter, matches, collection)
  const { includeNamespaces, excludeNamespaces } = filters
  if (includeNamespaces && !includeNamespaces.some(names)) return false
  // `collectionsRegex` excludes only names that users choose. It does not exclude a collection with a temporary name,
  // because the server renames that collection later.
  const applies = (filter: NamespaceFilter): boolean => !filter.collectionsRegex || !isTemporary(collection)
  return !excludeNamespaces?.some((filter) => applies(filter) && names(filter))
}

/** False if no collection of this database can be synced, whatever its name. */
export function mayHold(filters: NamespaceFilters, matches: Matches, database: string): boolean {
  if (!isUserDatabase(database)) return false
  const names = (filter: NamespaceFilter): boolean => namesDatabase(filter, matches, database)
  const { includeNamespaces, excludeNamespaces } = filters
  if (includeNamespaces && !includeNamespaces.some(names)) return false
  return !excludeNamespaces?.some((filter) => isWhole(filter) && names(filter))
}

/** True if the filter entry names no collections and therefore applies to the whole database. */
export function isWhole({ collections, collectionsRegex }: NamespaceFilter): boolean {
  return collections === undefined && collectionsRegex === undefined
}

function namesDatabase({ database, databaseRegex }: NamespaceFilter, matches: Matches, name: string): boolean {
  return databaseRegex ? matches(databaseRegex, name) : database === name
}

function namesCollection({ collections, collectionsRegex }: NamespaceFilter, matches: Matches, name: string): boolean {
  if (collectionsRegex) return matches(collectionsRegex, name)
  return collections?.includes(name) ?? true
}

/** Matches the temporary name that `convertToCapped` uses. It contains the final name. */
const conversion = /^tmp.{5}\.convertToCapped\.(.+)$/s
/**
 * Matches the name of the collection in which the server stores the documents of a time-series collection. The last
 * part is the name of the time-series collection.
 */
const buckets = /^system\.buckets\.(.+)$/s
/**
 * Matches the temporary names that `$out`, mapReduce and a rename from another database use, without the final name.
 */
const temporary = /^tmp\.agg_out\.|^tmp.{5}\.renameCollection$/
/** Matches the temporary name that a rename from another database uses. */
const renamedAcrossDatabases = /^tmp.{5}\.renameCollection$/
/** The same pattern as `temporary` for queries on the server. */
export const temporaryNames = temporary.source

/**
 * Returns the name to which the filters apply for a listed collection. If the server keeps the collection on behalf of
 * another one, this is the name of that other collection.
 */
export function decidingName(collection: string): string {
  return conversion.exec(collection)?.[1] ?? buckets.exec(collection)?.[1] ?? collection
}

/**
 * True for a time-series collection as the server lists it, and for the collection in which the server keeps its
 * documents. Servers before 8.3 list both.
 */
export function isTimeSeries({ name, type }: { name: string; type?: string }): boolean {
  return type === 'timeseries' || buckets.test(name)
}

/** True for a collection that the server writes under a temporary name because of a rename from another database. */
export function isRenamedAcrossDatabases(collection: string): boolean {
  return renamedAcrossDatabases.test(collection)
}

/** True for a collection that convertToCapped writes under a temporary name. */
export function isConversion(collection: string): boolean {
  return conversion.test(collection)
}

/**
 * True for a collection that `$out`, mapReduce or a rename from another database writes and renames when it is
 * complete.
 */
export function isTemporary(collection: string): boolean {
  return temporary.test(collection)
}
