import { isUserCollection, isUserDatabase } from './namespace.ts'
import type { NamespaceFilter, NamespacePattern } from './start-request.ts'

/** What a start asks to be synced; null where it does not say. */
export interface NamespaceFilters {
  includeNamespaces: readonly NamespaceFilter[] | null
  excludeNamespaces: readonly NamespaceFilter[] | null
}

/** Whether a pattern matches a name. MongoDB alone can tell for its own regular expressions, so its answer is passed in. */
export type Matches = (pattern: NamespacePattern, text: string) => boolean

export function isFiltered({ includeNamespaces, excludeNamespaces }: NamespaceFilters): boolean {
  return includeNamespaces !== null || excludeNamespaces !== null
}

/**
 * Whether a collection or view of this name is synced. Names decide and nothing else, so one that does not exist yet is decided
 * as well. What is excluded stays out, whatever includes it; the server's own databases and collections are never in.
 */
export function selects(filters: NamespaceFilters, matches: Matches, database: string, collection: string): boolean {
  if (!isUserDatabase(database) || !isUserCollection(collection)) return false
  const names = (filter: NamespaceFilter): boolean =>
    namesDatabase(filter, matches, database) && namesCollection(filter, matches, collection)
  const { includeNamespaces, excludeNamespaces } = filters
  if (includeNamespaces && !includeNamespaces.some(names)) return false
  // A pattern leaves out what users call so. The name under which the server writes what it renames afterwards is nobody's.
  const isMeant = (filter: NamespaceFilter): boolean => !filter.collectionsRegex || !isTemporary(collection)
  return !excludeNamespaces?.some((filter) => isMeant(filter) && names(filter))
}

/** Whether a collection of this database could be synced, by some name. */
export function mayHold(filters: NamespaceFilters, matches: Matches, database: string): boolean {
  if (!isUserDatabase(database)) return false
  const names = (filter: NamespaceFilter): boolean => namesDatabase(filter, matches, database)
  const { includeNamespaces, excludeNamespaces } = filters
  if (includeNamespaces && !includeNamespaces.some(names)) return false
  return !excludeNamespaces?.some((filter) => isWhole(filter) && names(filter))
}

/** An entry that says nothing of collections means all of the database's. */
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

/** Names under which the server writes what it then renames: to the last part, or to a name that it does not tell before. */
const conversion = /^tmp.{5}\.convertToCapped\.(.+)$/s
const buckets = /^system\.buckets\.(.+)$/s
const temporary = /^tmp\.agg_out\.|^tmp.{5}\.renameCollection$/
/** The same for the server. */
export const temporaryNames = temporary.source

/** The name that a listed collection is decided by: what stands for another one belongs to it. */
export function decidingName(collection: string): string {
  return conversion.exec(collection)?.[1] ?? buckets.exec(collection)?.[1] ?? collection
}

/** What convertToCapped writes under another name first. */
export function isConversion(collection: string): boolean {
  return conversion.test(collection)
}

/** True for what `$out`, mapReduce and a rename from another database write, and rename when it is complete. */
export function isTemporary(collection: string): boolean {
  return temporary.test(collection)
}
