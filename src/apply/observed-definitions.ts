import type { Touched } from '../coordination/barriers.ts'
import type { ClusterTime } from '../domain/cluster-time.ts'
import type { ObservedDatabase } from '../domain/observed-database.ts'

/** Maximum number of collections in `#indexes`. An addition that would exceed it first clears the map. */
const rememberedMax = 100_000

/**
 * Remembers up to which time definitions are reconciled, because that may be later than the events applied so far.
 * Reconciliation makes definitions equal to the source's current ones, not to what an event says. When a read of the
 * catalog includes all changes up to a time, events up to that time need no further work.
 */
export class ObservedDefinitions {
  /** For each database, the time up to which its collections, views and their options are reconciled. */
  readonly #listed = new Map<string, ClusterTime>()
  /** For each collection, by UUID, the time up to which its indexes are reconciled. */
  readonly #indexes = new Map<string, ClusterTime>()

  add({ database, time, indexesOf }: ObservedDatabase): void {
    if (this.#indexes.size + indexesOf.size > rememberedMax) this.#indexes.clear()
    if (time > (this.#listed.get(database) ?? 0n)) this.#listed.set(database, time)
    for (const uuid of indexesOf) if (time > (this.#indexes.get(uuid) ?? 0n)) this.#indexes.set(uuid, time)
  }

  /**
   * Returns true if all changes of the touched definitions up to this time are reconciled.
   * @param isKnown true for a collection in the catalog. Any other collection was dropped before the last read, or is
   * not selected.
   */
  hasAll(touched: Touched, time: ClusterTime, isKnown: (uuid: string) => boolean): boolean {
    for (const [database, uuids] of touched) {
      if ((this.#listed.get(database) ?? 0n) < time) return false
      for (const uuid of uuids) if (isKnown(uuid) && (this.#indexes.get(uuid) ?? 0n) < time) return false
    }
    return true
  }
}
