import type { Document } from 'mongodb'
import { isFiltered, isWhole, type NamespaceFilters, temporaryNames } from '../domain/namespace-filter.ts'
import type { NamespaceFilter, NamespacePattern } from '../domain/start-request.ts'

/** The server's condition for one name. */
export function patternCondition({ pattern, options }: NamespacePattern): Document {
  return options ? { $regex: pattern, $options: options } : { $regex: pattern }
}

/**
 * A name that is left out by a pattern. No name is empty, yet the server (6.0.27) must be told: it carries what is negated into its
 * reading of the oplog, where `create`, `drop` and `dropDatabase` lack fields that it then takes for empty texts, and events
 * of what is selected are lost wherever the pattern matches the empty text. This it does not carry there.
 */
function excludedCondition(pattern: NamespacePattern): Document {
  return { ...patternCondition(pattern), $gt: '' }
}

/**
 * The change events that filters leave: of documents and definitions of what is selected by the name it had then, of renames
 * from and to such names, and of databases that go. Null where nothing is filtered. Only plain matching is used, which the
 * server carries into its reading of the oplog, but for patterns of what is left out.
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

/** The same of a collection: a pattern leaves out what users call so, not the server's temporary names. */
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
