import type { Document } from 'mongodb'
import { isFiltered, isWhole, type NamespaceFilters, temporaryNames } from '../domain/namespace-filter.ts'
import type { NamespaceFilter, NamespacePattern } from '../domain/start-request.ts'

/** Returns the query condition for names that match the pattern. */
export function patternCondition({ pattern, options }: NamespacePattern): Document {
  return options ? { $regex: pattern, $options: options } : { $regex: pattern }
}

/**
 * Returns the query condition for names that match an exclusion pattern. `$gt: ''` looks redundant because no name is
 * empty, but the server (6.0.27) needs it. Without it, the server pushes the negated condition down to its oplog scan.
 * There, `create`, `drop` and `dropDatabase` entries lack fields, and the server treats a missing field as an empty
 * string. If the pattern matched the empty string, events of selected namespaces would be lost. A condition with
 * `$gt: ''` is not pushed down.
 */
function excludedCondition(pattern: NamespacePattern): Document {
  return { ...patternCondition(pattern), $gt: '' }
}

/**
 * Returns the condition for the change events that the filters keep: events of documents and definitions of namespaces
 * that were selected by their name at that time, renames from and to such names, and drops of databases. Returns null if
 * there are no filters. The condition uses query operators without `$expr`. The server pushes it down to its oplog scan,
 * except for exclusion patterns.
 */
export function eventCondition(filters: NamespaceFilters): Document | null {
  if (!isFiltered(filters)) return null
  return {
    $or: [
      selected(filters, 'ns'),
      { operationType: 'rename', ...selected(filters, 'to') },
      { operationType: 'dropDatabase', ...selectedDatabase(filters) },
    ],
  }
}

/**
 * Returns the condition for collection names that an exclusion pattern excludes. The pattern does not apply to the
 * server's temporary names.
 */
function excludedCollection(pattern: NamespacePattern): Document {
  return { ...excludedCondition(pattern), $not: { $regex: temporaryNames } }
}

type Condition = (pattern: NamespacePattern) => Document

function selected({ includeNamespaces, excludeNamespaces }: NamespaceFilters, field: string): Document {
  const conditions = (
    filters: readonly NamespaceFilter[],
    ofDatabase: Condition,
    ofCollection: Condition,
  ): Document[] =>
    filters.map((filter) => ({
      ...databaseCondition(filter, field, ofDatabase),
      ...collectionCondition(filter, field, ofCollection),
    }))
  return both(
    includeNamespaces && conditions(includeNamespaces, patternCondition, patternCondition),
    excludeNamespaces && conditions(excludeNamespaces, excludedCondition, excludedCollection),
  )
}

function selectedDatabase({ includeNamespaces, excludeNamespaces }: NamespaceFilters): Document {
  const conditions = (filters: readonly NamespaceFilter[], matching: Condition): Document[] =>
    filters.map((filter) => databaseCondition(filter, 'ns', matching))
  const excluded = excludeNamespaces?.filter(isWhole) ?? []
  return both(
    includeNamespaces && conditions(includeNamespaces, patternCondition),
    excluded.length > 0 ? conditions(excluded, excludedCondition) : null,
  )
}

function both(included: Document[] | null, excluded: Document[] | null): Document {
  const parts = [...(included ? [{ $or: included }] : []), ...(excluded ? [{ $nor: excluded }] : [])]
  return parts.length === 0 ? {} : { $and: parts }
}

function databaseCondition(filter: NamespaceFilter, field: string, matching: Condition): Document {
  const { database, databaseRegex } = filter
  return { [`${field}.db`]: databaseRegex ? matching(databaseRegex) : { $eq: database } }
}

function collectionCondition(filter: NamespaceFilter, field: string, matching: Condition): Document {
  const { collections, collectionsRegex } = filter
  if (collectionsRegex) return { [`${field}.coll`]: matching(collectionsRegex) }
  return collections ? { [`${field}.coll`]: { $in: collections } } : {}
}
