import { type NamespaceName, splitNamespace } from './namespace.ts'
import { isWhole, type Matches, mayHold, type NamespaceFilters, selects } from './namespace-filter.ts'
import type { NamespaceRemap } from './namespace-remap.ts'
import type { NamespaceFilter, NamespacePattern } from './start-request.ts'

/** The names of databases, or of the collections of a database. */
type Names =
  | { kind: 'listed'; names: readonly string[] }
  /** All names that match every one of these patterns. */
  | { kind: 'matching'; patterns: readonly NamespacePattern[] }

const all: Names = { kind: 'matching', patterns: [] }
const everything: readonly Partial<NamespaceFilter>[] = [{}]

/** What a sync writes to on the destination. */
export interface Written {
  filters: NamespaceFilters
  names: NamespaceRemap
}

/**
 * Describes where two syncs overlap on the destination, as `overlapOf` does; null if they do not. A name on the
 * destination that neither sync has changed is the same on both sources. A name that at least one of them has changed
 * belongs to one database of each source, which `within` finds. The namespaces that one of them has placed by the name of
 * a collection are compared by themselves, and left out of the rest.
 */
export function overlapOnDestination(one: Written, other: Written, matches: Matches): string | null {
  const placed = [...new Set([...one.names.placed, ...other.names.placed].map(([, destination]) => destination))]
  const shared = placed.find((name) => [one, other].every((sync) => writes(sync, name, matches)))
  if (shared !== undefined) return shared
  const apart = placed.map(splitNamespace).map(onlyOne)
  const changed = [...new Set([...one.names.renamed, ...other.names.renamed].map(([, destination]) => destination))]
  for (const database of changed) {
    const found = overlapOf(without(within(one, database, matches), apart), within(other, database, matches), matches)
    if (found !== null) return found
  }
  const { includeNamespaces, excludeNamespaces } = one.filters
  const both = [...(excludeNamespaces ?? []), ...changed.map((database) => ({ database })), ...apart]
  return overlapOf({ includeNamespaces, excludeNamespaces: both }, other.filters, matches)
}

/** True if the sync selects the namespace of its source that has this name on the destination. */
function writes({ filters, names }: Written, name: string, matches: Matches): boolean {
  const { database, collection } = splitNamespace(names.namespaceOnSource(name))
  return selects(filters, matches, database, collection)
}

function onlyOne({ database, collection }: NamespaceName): NamespaceFilter {
  return { database, collections: [collection] }
}

function without(filters: NamespaceFilters, apart: readonly NamespaceFilter[]): NamespaceFilters {
  return { ...filters, excludeNamespaces: [...(filters.excludeNamespaces ?? []), ...apart] }
}

/** Returns what a sync selects of the database that has this name on the destination, as filters that use this name. */
function within({ filters, names }: Written, database: string, matches: Matches): NamespaceFilters {
  const onSource = names.onSource(database)
  const renamed = (entries: readonly Partial<NamespaceFilter>[]): NamespaceFilter[] =>
    entries
      .filter((entry) => !isEmpty(common({ kind: 'listed', names: [onSource] }, databasesOf(entry), matches)))
      .map(({ collections, collectionsRegex }) => ({
        database,
        ...(collections && { collections }),
        ...(collectionsRegex && { collectionsRegex }),
      }))
  const { includeNamespaces, excludeNamespaces } = filters
  return {
    includeNamespaces: renamed(includeNamespaces ?? everything),
    excludeNamespaces: excludeNamespaces && renamed(excludeNamespaces),
  }
}

/**
 * Describes for an operator where two filters overlap: `shop.orders`, `shop.*`, or the databases concerned. Returns null
 * if both filters cannot select the same namespace, whether it exists or not.
 *
 * It cannot be decided in general whether two regular expressions match a common name, so they are assumed to do so. An
 * exclusion by a regular expression is considered in two cases: for names that the filters list, and for databases if an
 * including pattern has the same text. It is not considered for a collection pattern with the same text, because an
 * exclusion does not apply to the server's temporary names (`selects`) and an inclusion does: both filters may select
 * such a name.
 */
export function overlapOf(one: NamespaceFilters, other: NamespaceFilters, matches: Matches): string | null {
  const excluded = [...(one.excludeNamespaces ?? []), ...(other.excludeNamespaces ?? [])]
  for (const left of one.includeNamespaces ?? everything) {
    for (const right of other.includeNamespaces ?? everything) {
      const databases = common(databasesOf(left), databasesOf(right), matches)
      const collections = common(collectionsOf(left), collectionsOf(right), matches)
      if (isEmpty(databases) || isEmpty(collections)) continue
      if (databases.kind === 'matching') {
        const { patterns } = databases
        const isExcluded = (entry: NamespaceFilter): boolean =>
          isWhole(entry) && patterns.some((pattern) => isSame(pattern, entry.databaseRegex))
        if (!excluded.some(isExcluded)) return textOf(patterns)
        continue
      }
      for (const database of databases.names) {
        const found = inDatabase(database, collections, { filters: [one, other], matches })
        if (found !== null) return found
      }
    }
  }
  return null
}

interface Parts {
  filters: readonly NamespaceFilters[]
  matches: Matches
}

function inDatabase(database: string, collections: Names, { filters, matches }: Parts): string | null {
  if (!filters.every((filter) => mayHold(filter, matches, database))) return null
  if (collections.kind === 'matching') return `${database}.*`
  const isSelected = (name: string): boolean => filters.every((filter) => selects(filter, matches, database, name))
  const found = collections.names.find(isSelected)
  return found === undefined ? null : `${database}.${found}`
}

function databasesOf({ database, databaseRegex }: Partial<NamespaceFilter>): Names {
  if (databaseRegex) return { kind: 'matching', patterns: [databaseRegex] }
  return database === undefined ? all : { kind: 'listed', names: [database] }
}

function collectionsOf({ collections, collectionsRegex }: Partial<NamespaceFilter>): Names {
  if (collectionsRegex) return { kind: 'matching', patterns: [collectionsRegex] }
  return collections === undefined ? all : { kind: 'listed', names: collections }
}

function common(one: Names, other: Names, matches: Matches): Names {
  if (one.kind === 'matching') {
    if (other.kind === 'listed') return common(other, one, matches)
    return { kind: 'matching', patterns: [...one.patterns, ...other.patterns] }
  }
  const isCommon = (name: string): boolean =>
    other.kind === 'listed' ? other.names.includes(name) : other.patterns.every((pattern) => matches(pattern, name))
  return { kind: 'listed', names: one.names.filter(isCommon) }
}

function isEmpty(names: Names): boolean {
  return names.kind === 'listed' && names.names.length === 0
}

function isSame(one: NamespacePattern, other: NamespacePattern | undefined): boolean {
  return other !== undefined && one.pattern === other.pattern && (one.options ?? '') === (other.options ?? '')
}

function textOf(patterns: readonly NamespacePattern[]): string {
  if (patterns.length === 0) return 'all databases'
  return `databases that match ${patterns.map(({ pattern }) => `/${pattern}/`).join(' and ')}`
}
