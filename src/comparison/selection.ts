/** A database or collection to compare. */
export interface Namespace {
  database: string
  /** Null stands for the whole database. */
  collection: string | null
}

/** A collection or view. */
export interface CollectionName {
  database: string
  collection: string
}

/** Splits `db.collection`. Only the collection's name may contain dots. */
export function splitName(name: string): CollectionName {
  const dot = name.indexOf('.')
  return { database: name.slice(0, dot), collection: name.slice(dot + 1) }
}

/** Matches the server's own databases, tandem's metadata databases, and those of MongoDB's migration tools. */
const neverCompared = /^(admin|config|local|tandem_internal)$|^(__mdb_internal|mongosync_internal_|mongosync_reserved_)/

/**
 * True if the database, or this collection or view in it, must be compared. If `wanted` is empty, all user databases
 * are compared except `excluded`.
 */
export function selects(
  wanted: readonly Namespace[],
  database: string,
  collection?: string,
  excluded: readonly Namespace[] = [],
): boolean {
  // Instead of `system.views`, the views that it defines are compared. The other `system.` collections belong to the server.
  if (neverCompared.test(database) || collection?.startsWith('system.')) return false
  const isExcluded = (one: Namespace): boolean =>
    one.database === database && (one.collection === null || one.collection === collection)
  if (excluded.some(isExcluded)) return false
  if (wanted.length === 0) return true
  return wanted.some(
    (one) =>
      one.database === database &&
      (collection === undefined || one.collection === null || one.collection === collection),
  )
}

/**
 * Parses `db` or `db.collection`. Only the collection's name may contain dots. Returns null if a name is empty or the
 * namespace is never compared.
 */
export function parseNamespace(text: string): Namespace | null {
  const dot = text.indexOf('.')
  const database = dot === -1 ? text : text.slice(0, dot)
  const collection = dot === -1 ? null : text.slice(dot + 1)
  if (database === '' || collection === '' || !selects([], database, collection ?? undefined)) return null
  return { database, collection }
}
