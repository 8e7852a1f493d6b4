import type { Touched } from '../coordination/barriers.ts'
import type { ClusterTime } from '../domain/cluster-time.ts'
import type { SeenDatabase } from '../domain/seen-database.ts'

/** Collections whose indexes are remembered to have been followed; beyond that all of them are forgotten. */
const rememberedMax = 100_000

/**
 * What has been followed ahead of the events that tell of it. Definitions are made equal to what the source has at that moment,
 * not to what an event says: when a look has seen everything up to a time, an event before that time has nothing left to say.
 */
export class SeenDefinitions {
  /** By database: collections, views and their options have been seen as of this time. */
  readonly #listed = new Map<string, ClusterTime>()
  /** By UUID: indexes have been seen, and followed, as of this time. */
  readonly #indexes = new Map<string, ClusterTime>()

  add({ database, time, indexesOf }: SeenDatabase): void {
    if (this.#indexes.size + indexesOf.size > rememberedMax) this.#indexes.clear()
    if (time > (this.#listed.get(database) ?? 0n)) this.#listed.set(database, time)
    for (const uuid of indexesOf) if (time > (this.#indexes.get(uuid) ?? 0n)) this.#indexes.set(uuid, time)
  }

  /**
   * Whether everything that changed at this time has been followed.
   * @param isKnown whether a collection is catalogued, as of the last look: one that is not was gone then, or is not selected
   */
  hasAll(touched: Touched, time: ClusterTime, isKnown: (uuid: string) => boolean): boolean {
    for (const [database, uuids] of touched) {
      if ((this.#listed.get(database) ?? 0n) < time) return false
      for (const uuid of uuids) if (isKnown(uuid) && (this.#indexes.get(uuid) ?? 0n) < time) return false
    }
    return true
  }
}
