/** Identifies a stored recheck for its removal. */
export interface Identified {
  /** Equal for all encodings of one identity, such as 1 and NumberLong(1). */
  readonly key: string
  readonly uuid: string
  readonly idElement: Buffer
  /** The token of its last write to the store; null if an earlier release stored it. */
  readonly token: string | null
}

/**
 * Tracks rechecks that are in the store: those that were written to it or read from it, and were neither removed nor
 * dropped (`drop`) since. No other rechecks are removed from the store, because a `delete` that matches nothing is
 * expensive: the server scans the index entries of all recently removed documents, and a majority write that changes
 * nothing waits for the newest oplog entry.
 */
export class KnownInStore {
  readonly #kept = new Map<string, Identified>()
  readonly #removable = new Map<string, Identified>()

  add(entry: Identified): void {
    const { key, uuid, idElement, token } = entry
    this.#removable.delete(key)
    this.#kept.set(key, { key, uuid, idElement, token })
  }

  /** Called when a recheck was compared equal. If it is in the store, it becomes removable. */
  equal(key: string): void {
    const entry = this.#kept.get(key)
    if (!entry) return
    this.#kept.delete(key)
    this.#removable.set(key, entry)
  }

  /** Stops tracking a recheck that stays in the store. Reading it from the store adds it again. */
  drop(key: string): void {
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
