import { InvalidArgumentError } from 'commander'
import { isUserCollection, isUserDatabase } from '../domain/namespace.ts'
import { everyDatabase } from '../domain/natural-order.ts'
import type { NamespaceFilter } from '../domain/start-request.ts'

/** Parses options that name databases and collections. They accept no patterns; a request body does. */

export interface Selected {
  database: string
  /** Null: the whole database. */
  collection: string | null
}

/** Collects the values of `--include` or `--exclude`, which may be repeated. */
export function collectFilter(text: string, before: Selected[] | undefined): Selected[] {
  const selected = splitSelected(text)
  if (selected === null) throw new InvalidArgumentError('It must be a database, or database.collection.')
  const { database, collection } = selected
  if (!isUserDatabase(database) || (collection !== null && !isUserCollection(collection)))
    throw new InvalidArgumentError('It is internal to the server or to a migration tool and never synced.')
  return [...(before ?? []), selected]
}

/** Collects the values of `--copyInNaturalOrder`, which may be repeated. */
export function collectNatural(text: string, before: Selected[] | undefined): Selected[] {
  if (text === everyDatabase) return [...(before ?? []), { database: text, collection: null }]
  return collectFilter(text, before)
}

/**
 * Splits a namespace at its first dot: the name of a database contains none, but that of a collection may. Returns null if
 * a part is missing.
 */
export function splitSelected(text: string): Selected | null {
  const dot = text.indexOf('.')
  const selected =
    dot < 0 ? { database: text, collection: null } : { database: text.slice(0, dot), collection: text.slice(dot + 1) }
  return selected.database === '' || selected.collection === '' ? null : selected
}

/** Returns the elements of a filter: one for each database, in the order of the options. */
export function filtersOf(all: readonly Selected[]): NamespaceFilter[] {
  const collectionsOf = new Map<string, Set<string> | null>()
  for (const { database, collection } of all) {
    const known = collectionsOf.get(database)
    // The whole database includes each of its collections.
    if (collection === null || known === null) collectionsOf.set(database, null)
    else collectionsOf.set(database, (known ?? new Set()).add(collection))
  }
  return [...collectionsOf].map(([database, collections]) => ({
    database,
    ...(collections && { collections: [...collections] }),
  }))
}
