import type { Touched } from '../coordination/barriers.ts'
import type { ClusterTime } from '../domain/cluster-time.ts'
import type { ObservedDatabase } from '../domain/observed-database.ts'

/** Maximum number of collections whose followed indexes are remembered. Above it, all of them are forgotten. */
const rememberedMax = 100_000

/**
 * Definitions that were followed ahead of their events. Reconciliation makes definitions equal to the source's current
 * ones, not to what an event says. When a read of the catalog includes all changes up to a time, events up to that time
 * need no further work.
 */
export class ObservedDefinitions {
  /** For each database, the time up to which its collections, views and their options were followed. */
  readonly #listed = new Map<string, ClusterTime>()
  /** For each collection, by UUID, the time up to which its indexes were followed. */
  readonly #indexes = new Map<string, ClusterTime>()

  add({ database, time, indexesOf }: ObservedDatabase): void {
    if (this.#indexes.size + indexesOf.size > rememberedMax) this.#indexes.clear()
    if (time > (this.#listed.get(database) ?? 0n)) this.#listed.set(database, time)
    for (const uuid of indexesOf) if (time > (this.#indexes.get(uuid) ?? 0n)) this.#indexes.set(uuid, time)
  }

  /**
   * Whether all changes of the touched definitions up to this time have been followed.
   * @param isKnown whether a collection is in the catalog; the others had been dropped before the last read, or are
   * not selected
   */
  hasAll(touched: Touched, time: ClusterTime, isKnown: (uuid: string) => boolean): boolean {
    for (const [database, uuids] of touched) {
      if ((this.#listed.get(database) ?? 0n) < time) return false
      for (const uuid of uuids) if (isKnown(uuid) && (this.#indexes.get(uuid) ?? 0n) < time) return false
    }
    return true
  }
}
