import type { Document } from 'mongodb'
import { assert, RefusedError } from '../domain/errors.ts'
import {
  decidingName,
  isFiltered,
  type Matches,
  mayHold,
  type NamespaceFilters,
  selects,
} from '../domain/namespace-filter.ts'
import type { NamespaceFilter, NamespacePattern } from '../domain/start-request.ts'
import type { Cluster } from './cluster.ts'
import { codeOf, isTransient } from './errors.ts'
import { eventCondition, patternCondition } from './selection-match.ts'

/** The largest number of names in one command, and of cached answers. */
const atOnce = 5_000
const keptMax = 100_000

/**
 * Decides which namespaces are synced. Patterns are the server's regular expressions, and no library interprets all of
 * them the same way, so the server evaluates them, once for each name. It is always the source, so that all instances
 * get the same answer.
 */
export class Selection {
  readonly #cluster: Cluster
  readonly #filters: NamespaceFilters
  readonly #kept = new Map<string, boolean>()
  /**
   * The condition for a change stream that matches the events of selected namespaces. Null if everything is selected.
   */
  readonly events: Document | null

  constructor(source: Cluster, filters: NamespaceFilters) {
    this.#cluster = source
    this.#filters = filters
    this.events = eventCondition(filters)
  }

  async selects(database: string, collection: string): Promise<boolean> {
    return (await this.among(database, [{ name: collection }])).length > 0
  }

  /** The selected ones of a database's collections and views. */
  async among<T extends { name: string }>(database: string, listed: T[]): Promise<T[]> {
    if (!isFiltered(this.#filters)) return listed
    const names = listed.map(({ name }) => decidingName(name))
    const matches = await this.#ask([database], names)
    return listed.filter((_, at) => selects(this.#filters, matches, database, names[at] as string))
  }

  /** The selected ones of many databases, with as many commands as for one database. */
  async amongAll<T extends { name: string }>(catalog: ReadonlyMap<string, T[]>): Promise<Map<string, T[]>> {
    if (!isFiltered(this.#filters)) return new Map(catalog)
    const names = [...catalog.values()].flatMap((listed) => listed.map(({ name }) => decidingName(name)))
    const matches = await this.#ask([...catalog.keys()], names)
    const isSelected = (database: string, { name }: T): boolean =>
      selects(this.#filters, matches, database, decidingName(name))
    return new Map(
      [...catalog].map(([database, listed]) => [database, listed.filter((one) => isSelected(database, one))]),
    )
  }

  /** The databases that may contain a selected namespace. */
  async databases(names: Iterable<string>): Promise<string[]> {
    const all = [...names]
    if (!isFiltered(this.#filters)) return all
    const matches = await this.#ask(all, [])
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

  get #entries(): NamespaceFilter[] {
    return [...(this.#filters.includeNamespaces ?? []), ...(this.#filters.excludeNamespaces ?? [])]
  }

  /** Evaluates all patterns that are needed to decide about these databases and collections. */
  async #ask(databases: string[], collections: string[]): Promise<Matches> {
    const answers = new Map<string, boolean>()
    for (const { databaseRegex, collectionsRegex } of this.#entries) {
      if (databaseRegex) await this.#answer(databaseRegex, databases, answers)
      if (collectionsRegex) await this.#answer(collectionsRegex, collections, answers)
    }
    return (pattern, text) => {
      const answer = answers.get(questionOf(pattern, text))
      assert(answer !== undefined, 'a name depends on a pattern that was not evaluated')
      return answer
    }
  }

  /** Adds answers from the cache, or from the server if they are not cached. */
  async #answer(pattern: NamespacePattern, texts: string[], answers: Map<string, boolean>): Promise<void> {
    const unknown: string[] = []
    for (const text of new Set(texts)) {
      const question = questionOf(pattern, text)
      const kept = this.#kept.get(question)
      if (kept === undefined) unknown.push(text)
      else answers.set(question, kept)
    }
    if (this.#kept.size > keptMax) this.#kept.clear()
    for (let from = 0; from < unknown.length; from += atOnce) {
      const asked = unknown.slice(from, from + atOnce)
      const matching = new Set(await this.#matching(pattern, asked))
      for (const text of asked) {
        this.#kept.set(questionOf(pattern, text), matching.has(text))
        answers.set(questionOf(pattern, text), matching.has(text))
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
      cursor: { batchSize: atOnce },
    })
    return (reply['cursor'].firstBatch as { text: string }[]).map(({ text }) => text)
  }
}

/** The separator cannot occur in either part: the server rejects patterns and names with a null character. */
function questionOf({ pattern, options = '' }: NamespacePattern, text: string): string {
  return `${options}\0${pattern}\0${text}`
}
