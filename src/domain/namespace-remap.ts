import { type NamespaceName, namespace, splitNamespace } from './namespace.ts'
import type { NamespaceRename } from './start-request.ts'

/**
 * The names that the destination gives the source's databases and collections (`namespaceRemap`). Everything except the
 * edge to the destination uses the source's names. `Cluster` converts the names of commands, and the readers of the
 * destination's catalog convert the names in replies.
 *
 * The mapping is one-to-one over all possible names. A name that is a target and not itself renamed belongs to no
 * selected database or collection of the source, because `start` refuses other requests. Such a name gets the name that
 * is free on the destination: with `a` renamed to `c`, the source's `c` would be `a` there. So neither of the two names
 * on the destination is ever mistaken for the other, and a database `a` of the destination is protected by the same
 * filter as the source's `c`. The same holds for single collections: with `a.b` renamed to `c.d`, the source's `c.d`
 * would be `a.b` there.
 *
 * An element for a collection takes precedence over an element for its database.
 */
export class NamespaceRemap {
  readonly #toDestination = new Map<string, string>()
  readonly #toSource = new Map<string, string>()
  /** The whole namespaces that the mapping of the databases alone would place elsewhere. */
  readonly #placed = new Map<string, string>()
  readonly #placedFrom = new Map<string, string>()
  /** The source's databases that must not be synced, because another database has their name on the destination. */
  readonly displaced: readonly string[]
  /** The source's collections that must not be synced, because another collection has their name on the destination. */
  readonly displacedCollections: readonly NamespaceName[]

  constructor(renames: readonly NamespaceRename[] | null) {
    const collections: [string, string][] = []
    for (const { from, to } of renames ?? []) {
      if (from.collection === undefined || to.collection === undefined) this.#add(from.database, to.database)
      else collections.push([namespace(from.database, from.collection), namespace(to.database, to.collection)])
    }
    this.displaced = [...this.#toSource.keys()].filter((name) => !this.#toDestination.has(name))
    for (const name of this.displaced) {
      let free = name
      for (let former = this.#toSource.get(free); former !== undefined; former = this.#toSource.get(free)) free = former
      this.#add(name, free)
    }
    this.displacedCollections = this.#place(collections).map(splitNamespace)
  }

  #add(source: string, destination: string): void {
    this.#toDestination.set(source, destination)
    this.#toSource.set(destination, source)
  }

  /** Adds the renamed collections, and returns the namespaces of the source that these displace. */
  #place(collections: readonly [string, string][]): string[] {
    const byDatabase = new Map(collections.map(([source]) => [source, this.#ofDatabase(source)]))
    for (const [source, destination] of collections) {
      this.#placed.set(source, destination)
      this.#placedFrom.set(destination, source)
    }
    const displaced = collections
      .map(([, destination]) => withDatabase(destination, (database) => this.onSource(database)))
      .filter((name) => !byDatabase.has(name))
    const ends = displaced.map((name): [string, string] => {
      let free = this.#ofDatabase(name)
      for (let former = this.#placedFrom.get(free); former !== undefined; former = this.#placedFrom.get(free))
        free = byDatabase.get(former) ?? free
      return [name, free]
    })
    for (const [source, destination] of ends) {
      this.#placed.set(source, destination)
      this.#placedFrom.set(destination, source)
    }
    return displaced
  }

  #ofDatabase(name: string): string {
    return withDatabase(name, (database) => this.onDestination(database))
  }

  get isIdentity(): boolean {
    return this.#toDestination.size === 0 && this.#placed.size === 0
  }

  /** True if the request renames single collections. */
  get hasCollections(): boolean {
    return this.#placed.size > 0
  }

  /** Every database whose name differs between the clusters: `[name on the source, name on the destination]`. */
  get renamed(): [string, string][] {
    return [...this.#toDestination]
  }

  /**
   * Every namespace that its database alone does not place: `[on the source, on the destination]`. The renamed
   * collections, and those that these displace.
   */
  get placed(): [string, string][] {
    return [...this.#placed]
  }

  /**
   * Where the collections of a database are that no element renames by name.
   * @param database its name on the source
   */
  onDestination(database: string): string {
    return this.#toDestination.get(database) ?? database
  }

  /**
   * The inverse of `onDestination`.
   * @param database its name on the destination
   */
  onSource(database: string): string {
    return this.#toSource.get(database) ?? database
  }

  /** @param name a whole namespace of the source */
  namespaceOnDestination(name: string): string {
    return this.#placed.get(name) ?? this.#ofDatabase(name)
  }

  /** @param name a whole namespace of the destination */
  namespaceOnSource(name: string): string {
    return this.#placedFrom.get(name) ?? withDatabase(name, (database) => this.onSource(database))
  }

  /** True if the collection is not where its database alone would place it. */
  isPlaced(database: string, collection: string): boolean {
    return this.#placed.has(namespace(database, collection))
  }

  /** The database of the destination that has this collection of the source. */
  databaseOf(database: string, collection: string): string {
    const placed = this.#placed.get(namespace(database, collection))
    return placed === undefined ? this.onDestination(database) : splitNamespace(placed).database
  }

  /**
   * True if the two names of a collection of the source, before and after a rename, are not both in the database of the
   * destination that has the rest of its database. The server gives a collection another UUID when it moves it to another
   * database, and writes all its documents again, so such a rename is not repeated: the collection is created and copied again.
   */
  separates(database: string, name: string, other: string): boolean {
    if (name === other || this.#placed.size === 0) return false
    const usual = this.onDestination(database)
    return [name, other].some((one) => this.databaseOf(database, one) !== usual)
  }

  /**
   * The databases of the destination that may have collections of this database, each with the name that `onDestination`
   * maps to it.
   * @param database its name on the source
   */
  placesOf(database: string): string[] {
    const places = new Set([database])
    for (const [source, destination] of this.#placed) {
      if (splitNamespace(source).database === database) places.add(this.onSource(splitNamespace(destination).database))
    }
    return [...places]
  }

  /**
   * The source's databases whose collections this database may have.
   * @param database its name on the destination
   */
  sourcesOf(database: string): string[] {
    const sources = new Set([this.onSource(database)])
    for (const [source, destination] of this.#placed) {
      if (splitNamespace(destination).database === database) sources.add(splitNamespace(source).database)
    }
    return [...sources]
  }

  /** @param name a whole namespace of the source */
  differing(name: string): { destinationNamespace?: string } {
    const destinationNamespace = this.namespaceOnDestination(name)
    return destinationNamespace === name ? {} : { destinationNamespace }
  }

  /**
   * A namespace of the destination for an operator, who needs the name that it has there.
   * @param name a whole namespace of the source
   */
  shown(name: string): string {
    const there = this.namespaceOnDestination(name)
    return there === name ? name : `${there} (on the source: ${name})`
  }
}

/** The mapping of a cluster on which every database has its own name. */
export const noRemap = new NamespaceRemap(null)

/** The name of a collection may contain dots, and the name of a database cannot. */
function withDatabase(name: string, map: (database: string) => string): string {
  const dot = name.indexOf('.')
  return dot === -1 ? map(name) : map(name.slice(0, dot)) + name.slice(dot)
}
