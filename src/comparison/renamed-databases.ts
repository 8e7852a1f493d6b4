import { type CollectionName, splitName } from './selection.ts'

/** A database, or a collection (`db.collection`), that has another name on the second cluster. */
export interface Renamed {
  from: string
  to: string
}

/**
 * The names that the second cluster gives the databases and collections of the first one. All callers use the names of the
 * first cluster. If a renamed database takes the name of another database, that other database gets the name that is free
 * on the second cluster. So no two databases share a name. The same holds for collections. A collection that is renamed by
 * its own name is not where the rest of its database is.
 */
export class RenamedDatabases {
  /** The databases that are renamed. */
  readonly renamed: readonly Renamed[]
  /** The collections that are renamed by their own names. */
  readonly collections: readonly Renamed[]
  readonly #there = new Map<string, string>()
  readonly #here = new Map<string, string>()
  readonly #collectionsThere = new Map<string, string>()
  readonly #collectionsHere = new Map<string, string>()
  /** Databases of the first cluster that have no partner, each with the database of the second one that has none. */
  readonly unpaired: readonly Renamed[]
  /** The same for collections. */
  readonly unpairedCollections: readonly Renamed[]

  constructor(all: readonly Renamed[]) {
    this.renamed = all.filter(({ from }) => !from.includes('.'))
    this.collections = all.filter(({ from }) => from.includes('.'))
    for (const { from, to } of this.renamed) {
      this.#there.set(from, to)
      this.#here.set(to, from)
    }
    const taken = this.renamed.map(({ to }) => to).filter((name) => !this.#there.has(name))
    this.unpaired = taken.map((from) => ({ from, to: this.#firstOf(from) }))
    for (const { from, to } of this.unpaired) {
      this.#there.set(from, to)
      this.#here.set(to, from)
    }
    const targets = new Map(this.collections.map(({ from, to }) => [to, from]))
    const sources = new Set(this.collections.map(({ from }) => from))
    const displaced = this.collections
      .map(({ to }) => this.#byDatabase(to, this.#here))
      .filter((one) => !sources.has(one))
    this.unpairedCollections = displaced.map((from) => {
      let to = this.#byDatabase(from, this.#there)
      for (let before = targets.get(to); before !== undefined; before = targets.get(to))
        to = this.#byDatabase(before, this.#there)
      return { from, to }
    })
    for (const { from, to } of [...this.collections, ...this.unpairedCollections]) {
      this.#collectionsThere.set(from, to)
      this.#collectionsHere.set(to, from)
    }
  }

  #byDatabase(name: string, map: ReadonlyMap<string, string>): string {
    const { database, collection } = splitName(name)
    return `${map.get(database) ?? database}.${collection}`
  }

  /** The name at the beginning of the chain of names that ends with this one. */
  #firstOf(last: string): string {
    const before = this.#here.get(last)
    return before === undefined ? last : this.#firstOf(before)
  }

  /** @param database its name on the first cluster */
  there(database: string): string {
    return this.#there.get(database) ?? database
  }

  /** @param database its name on this cluster */
  here(database: string): string {
    return this.#here.get(database) ?? database
  }

  /** Returns where a collection of the first cluster is on this one. */
  collectionThere(database: string, collection: string): CollectionName {
    const name = `${database}.${collection}`
    return splitName(this.#collectionsThere.get(name) ?? this.#byDatabase(name, this.#there))
  }

  /** The inverse of `collectionThere`. */
  collectionHere(database: string, collection: string): CollectionName {
    const name = `${database}.${collection}`
    return splitName(this.#collectionsHere.get(name) ?? this.#byDatabase(name, this.#here))
  }

  /** The databases of this cluster that may have collections of this database of the first one. */
  allThere(database: string): string[] {
    const moved = [...this.#collectionsThere].filter(([from]) => splitName(from).database === database)
    return [...new Set([this.there(database), ...moved.map(([, to]) => splitName(to).database)])]
  }

  /** The databases of the first cluster whose collections this database may have. */
  allHere(database: string): string[] {
    const moved = [...this.#collectionsHere].filter(([to]) => splitName(to).database === database)
    return [...new Set([this.here(database), ...moved.map(([, from]) => splitName(from).database)])]
  }
}
