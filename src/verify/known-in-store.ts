/** A recheck as the store knows it. */
export interface Identified {
  /** Equal for two spellings of one identity. */
  readonly key: string
  readonly uuid: string
  readonly idElement: Buffer
}

/**
 * Which rechecks are known to be in the store: they were written there, or read from there, and not removed since. Only
 * these are ever removed. A `delete` that finds nothing is not free: the server walks over the tombstones of everything
 * that was removed shortly before, and a majority write that changes nothing waits for the newest entry of the oplog.
 */
export class KnownInStore {
  readonly #kept = new Map<string, Identified>()
  readonly #removable = new Map<string, Identified>()

  has(entry: Identified): void {
    const { key, uuid, idElement } = entry
    this.#removable.delete(key)
    this.#kept.set(key, { key, uuid, idElement })
  }

  /** Compared equal: where it is in the store, it may leave it. */
  equal(key: string): void {
    const entry = this.#kept.get(key)
    if (!entry) return
    this.#kept.delete(key)
    this.#removable.set(key, entry)
  }

  /** Stays in the store, and takes no memory until it is read from there again. */
  forget(key: string): void {
    this.#kept.delete(key)
  }

  takeRemovable(limit: number): Identified[] {
    const taken: Identified[] = []
    for (const entry of this.#removable.values()) {
      if (taken.length >= limit) break
      taken.push(entry)
    }
    for (const { key } of taken) this.#removable.delete(key)
    return taken
  }
}
