import type { Document } from 'mongodb'
import { assert, RefusedError } from '../domain/errors.ts'
import {
  decidingName,
  isFiltered,
  isTimeSeries,
  type Matches,
  mayHold,
  type NamespaceFilters,
  selects,
} from '../domain/namespace-filter.ts'
import type { NamespaceFilter, NamespacePattern, TimeSeries } from '../domain/start-request.ts'
import type { Cluster } from './cluster.ts'
import { codeOf, isTransient } from './errors.ts'
import { eventCondition, patternCondition } from './selection-match.ts'

/** A listed namespace. The type is needed where time-series collections may be listed. */
interface Named {
  name: string
  type?: string
}

/** The methods of a selection that select among listed namespaces. */
export type Selects = Pick<Selection, 'databases' | 'among'>

/** The largest number of names in one command. */
const namesMax = 5_000
/** The number of cached results above which the cache is emptied. */
const cachedMax = 100_000

/**
 * Decides which namespaces are synced. No library interprets all regular expressions as the server does, so the server
 * evaluates the patterns, once for each name. All instances ask the source, so that they get the same results.
 *
 * Skipped time-series collections are not selected on either cluster. Unlike the filters, this does not depend on the
 * name: another collection may have the name before or afterwards. The change stream needs no condition for them,
 * because it has no events of their documents.
 */
export class Selection {
  readonly #cluster: Cluster
  readonly #filters: NamespaceFilters
  /** True if time-series collections are left out. If false, a sync that selects one is refused, or fails. */
  readonly skipsTimeSeries: boolean
  readonly #cached = new Map<string, boolean>()
  /**
   * The condition for a change stream that matches the events of selected namespaces. Null if everything is selected.
   */
  readonly events: Document | null

  constructor(source: Cluster, filters: NamespaceFilters, timeseries: TimeSeries = 'refuse') {
    this.#cluster = source
    this.#filters = filters
    this.skipsTimeSeries = timeseries === 'skip'
    this.events = eventCondition(filters)
  }

  get filters(): NamespaceFilters {
    return this.#filters
  }

  async selects(database: string, collection: string): Promise<boolean> {
    return (await this.among(database, [{ name: collection }])).length > 0
  }

  /** Returns those of a database's collections and views that are selected. */
  async among<T extends Named>(database: string, listed: T[]): Promise<T[]> {
    return await this.#named(database, this.#withoutSkipped(listed))
  }

  /** Returns the time-series collections that the filters select and that the sync skips. */
  async skipped<T extends Named>(database: string, listed: T[]): Promise<T[]> {
    if (!this.skipsTimeSeries) return []
    return await this.#named(
      database,
      listed.filter(({ type }) => type === 'timeseries'),
    )
  }

  #withoutSkipped<T extends Named>(listed: T[]): T[] {
    return this.skipsTimeSeries ? listed.filter((one) => !isTimeSeries(one)) : listed
  }

  async #named<T extends Named>(database: string, listed: T[]): Promise<T[]> {
    if (!isFiltered(this.#filters)) return listed
    const names = listed.map(({ name }) => decidingName(name))
    const matches = await this.#evaluate([database], names)
    return listed.filter((_, at) => selects(this.#filters, matches, database, names[at] as string))
  }

  /** Does what `among` does for many databases, with as many commands as for one. */
  async amongAll<T extends Named>(catalog: ReadonlyMap<string, T[]>): Promise<Map<string, T[]>> {
    const kept = new Map([...catalog].map(([database, listed]) => [database, this.#withoutSkipped(listed)]))
    if (!isFiltered(this.#filters)) return kept
    const names = [...kept.values()].flatMap((listed) => listed.map(({ name }) => decidingName(name)))
    const matches = await this.#evaluate([...kept.keys()], names)
    const isSelected = (database: string, { name }: T): boolean =>
      selects(this.#filters, matches, database, decidingName(name))
    return new Map([...kept].map(([database, listed]) => [database, listed.filter((one) => isSelected(database, one))]))
  }

  /** Returns the databases that may contain a selected namespace. */
  async databases(names: Iterable<string>): Promise<string[]> {
    const all = [...names]
    if (!isFiltered(this.#filters)) return all
    const matches = await this.#evaluate(all, [])
    return all.filter((name) => mayHold(this.#filters, matches, name))
  }

  /** Throws RefusedError with the field of a pattern that the server rejects. */
  async refuseBadPatterns(): Promise<void> {
    for (const field of ['includeNamespaces', 'excludeNamespaces'] as const) {
      for (const [at, entry] of (this.#filters[field] ?? []).entries()) {
        for (const part of ['databaseRegex', 'collectionsRegex'] as const) {
          const pattern = entry[part]
          if (pattern) await this.#refuseBadPattern(`${field}[${at}].${part}`, pattern)
        }
      }
    }
  }

  async #refuseBadPattern(field: string, pattern: NamespacePattern): Promise<void> {
    try {
      await this.#matching(pattern, [])
    } catch (error) {
      if (codeOf(error) === undefined || isTransient(error)) throw error
      throw new RefusedError('InvalidRequest', `${field}: ${error instanceof Error ? error.message : String(error)}`, {
        cause: error,
      })
    }
  }

  /** Evaluates all patterns of the filters on these names. */
  matches(databases: string[], collections: string[]): Promise<Matches> {
    return this.#evaluate(databases, collections)
  }

  get #entries(): NamespaceFilter[] {
    return [...(this.#filters.includeNamespaces ?? []), ...(this.#filters.excludeNamespaces ?? [])]
  }

  /** Evaluates all patterns that are needed to decide about these databases and collections. */
  async #evaluate(databases: string[], collections: string[]): Promise<Matches> {
    const results = new Map<string, boolean>()
    for (const { databaseRegex, collectionsRegex } of this.#entries) {
      if (databaseRegex) await this.#evaluatePattern(databaseRegex, databases, results)
      if (collectionsRegex) await this.#evaluatePattern(collectionsRegex, collections, results)
    }
    return (pattern, text) => {
      const result = results.get(cacheKey(pattern, text))
      assert(result !== undefined, 'a name depends on a pattern that was not evaluated')
      return result
    }
  }

  /** Adds results from the cache, or from the server if they are not cached. */
  async #evaluatePattern(pattern: NamespacePattern, texts: string[], results: Map<string, boolean>): Promise<void> {
    const unknown: string[] = []
    for (const text of new Set(texts)) {
      const key = cacheKey(pattern, text)
      const cached = this.#cached.get(key)
      if (cached === undefined) unknown.push(text)
      else results.set(key, cached)
    }
    if (this.#cached.size > cachedMax) this.#cached.clear()
    for (let from = 0; from < unknown.length; from += namesMax) {
      const names = unknown.slice(from, from + namesMax)
      const matching = new Set(await this.#matching(pattern, names))
      for (const text of names) {
        this.#cached.set(cacheKey(pattern, text), matching.has(text))
        results.set(cacheKey(pattern, text), matching.has(text))
      }
    }
  }

  async #matching(pattern: NamespacePattern, texts: string[]): Promise<string[]> {
    const reply = await this.#cluster.read('admin', {
      aggregate: 1,
      pipeline: [
        // Names may look like expressions. $literal keeps them as text.
        { $documents: { $literal: texts.map((text) => ({ text })) } },
        { $match: { text: patternCondition(pattern) } },
      ],
      cursor: { batchSize: namesMax },
    })
    return (reply['cursor'].firstBatch as { text: string }[]).map(({ text }) => text)
  }
}

/** Selects the namespaces that `selection` selects and that at least one of the selections in `before` does not select. */
export function newlySelected(selection: Selects, before: readonly Selects[]): Selects {
  return {
    databases: (names) => selection.databases(names),
    among: async (database, listed) => {
      const selected = await selection.among(database, listed)
      let known = selected
      for (const one of before) known = await one.among(database, known)
      const isKnown = new Set(known)
      return selected.filter((one) => !isKnown.has(one))
    },
  }
}

/** The key is unambiguous, because the server rejects patterns and names that contain a null character. */
function cacheKey({ pattern, options = '' }: NamespacePattern, text: string): string {
  return `${options}\0${pattern}\0${text}`
}
