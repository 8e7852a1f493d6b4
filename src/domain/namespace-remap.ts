import type { NamespaceRename } from './start-request.ts'

/**
 * The names that the destination gives the source's databases (`namespaceRemap`). Everything except the edge to the
 * destination uses the source's names. `Cluster` converts the names of commands, and the readers of the destination's
 * catalog convert the names in replies.
 *
 * The mapping is one-to-one over all possible names. A name that is a target and not itself renamed belongs to no
 * selected database of the source, because `start` refuses other requests. Such a name gets the name that is free on
 * the destination: with `a` renamed to `c`, the source's `c` would be `a` there. So neither of the two names on the
 * destination is ever mistaken for the other, and a database `a` of the destination is protected by the same filter as
 * the source's `c`.
 */
export class NamespaceRemap {
  readonly #toDestination = new Map<string, string>()
  readonly #toSource = new Map<string, string>()
  /** The source's databases that must not be synced, because another database has their name on the destination. */
  readonly displaced: readonly string[]

  constructor(renames: readonly NamespaceRename[] | null) {
    for (const { from, to } of renames ?? []) this.#add(from.database, to.database)
    this.displaced = [...this.#toSource.keys()].filter((name) => !this.#toDestination.has(name))
    for (const name of this.displaced) {
      let free = name
      for (let former = this.#toSource.get(free); former !== undefined; former = this.#toSource.get(free)) free = former
      this.#add(name, free)
    }
  }

  #add(source: string, destination: string): void {
    this.#toDestination.set(source, destination)
    this.#toSource.set(destination, source)
  }

  get isIdentity(): boolean {
    return this.#toDestination.size === 0
  }

  /** Every name that differs between the clusters: `[name on the source, name on the destination]`. */
  get renamed(): [string, string][] {
    return [...this.#toDestination]
  }

  /** @param database its name on the source */
  onDestination(database: string): string {
    return this.#toDestination.get(database) ?? database
  }

  /** @param database its name on the destination */
  onSource(database: string): string {
    return this.#toSource.get(database) ?? database
  }

  /** @param name a whole namespace with the source's name of the database */
  namespaceOnDestination(name: string): string {
    return withDatabase(name, (database) => this.onDestination(database))
  }

  /** @param name a whole namespace with the destination's name of the database */
  namespaceOnSource(name: string): string {
    return withDatabase(name, (database) => this.onSource(database))
  }

  /** @param name with the source's name of the database */
  differing(name: string): { destinationNamespace?: string } {
    const destinationNamespace = this.namespaceOnDestination(name)
    return destinationNamespace === name ? {} : { destinationNamespace }
  }

  /**
   * A namespace of the destination for an operator, who needs the name that it has there.
   * @param name with the source's name of the database
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
