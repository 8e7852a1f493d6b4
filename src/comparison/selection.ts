/** What of a cluster is compared. */
export interface Namespace {
  database: string
  /** Null: the whole database. */
  collection: string | null
}

/** The server's own, and tandem's state on the destination. */
const neverCompared = new Set(['admin', 'config', 'local', 'tandem_internal'])

/** A database, or a collection or view of it, that is to be compared. Empty `wanted`: all users' ones but `excluded`. */
export function selects(
  wanted: readonly Namespace[],
  database: string,
  collection?: string,
  excluded: readonly Namespace[] = [],
): boolean {
  // `system.views` is compared as the views it holds; the rest of `system.` is the server's.
  if (neverCompared.has(database) || collection?.startsWith('system.')) return false
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

/** `db` or `db.collection`, where only a collection's name may hold dots. Null: not one that is ever compared. */
export function parseNamespace(text: string): Namespace | null {
  const dot = text.indexOf('.')
  const database = dot === -1 ? text : text.slice(0, dot)
  const collection = dot === -1 ? null : text.slice(dot + 1)
  if (database === '' || collection === '' || !selects([], database, collection ?? undefined)) return null
  return { database, collection }
}
