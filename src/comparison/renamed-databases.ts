/** A database that has another name on the second cluster. */
export interface RenamedDatabase {
  from: string
  to: string
}

/**
 * The names that the second cluster gives the databases of the first one. All callers use the names of the first
 * cluster. If a renamed database takes the name of another database, that other database gets the name that is free on
 * the second cluster. So no two databases share a name.
 */
export class RenamedDatabases {
  readonly renamed: readonly RenamedDatabase[]
  readonly #there = new Map<string, string>()
  readonly #here = new Map<string, string>()
  /** Databases of the first cluster that have no partner, each with the database of the second one that has none. */
  readonly unpaired: readonly RenamedDatabase[]

  constructor(renamed: readonly RenamedDatabase[]) {
    this.renamed = renamed
    for (const { from, to } of renamed) {
      this.#there.set(from, to)
      this.#here.set(to, from)
    }
    const taken = renamed.map(({ to }) => to).filter((name) => !this.#there.has(name))
    this.unpaired = taken.map((from) => ({ from, to: this.#firstOf(from) }))
    for (const { from, to } of this.unpaired) {
      this.#there.set(from, to)
      this.#here.set(to, from)
    }
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
}
