import type { CatalogEntry } from '../domain/catalog.ts'
import { isCapped, isClustered } from '../domain/definition.ts'
import { asksForNaturalOrder, isRandomOrder } from '../domain/natural-order.ts'
import type { TypedValue } from '../domain/raw-bson.ts'
import { mayRepeatIds } from '../domain/shard-key.ts'
import type { StartConfiguration } from '../domain/start-request.ts'
import type { BothClusters } from '../mongo/cluster.ts'
import type { CollectionToRead } from '../mongo/collection-name.ts'
import { recordIdsOf } from '../mongo/sample.ts'

/**
 * The size in bytes from which the `_id`s of a collection are examined, as in mongosync. A smaller collection usually
 * fits into memory, and copying it in several segments is faster.
 */
const detectedFromBytes = 20 * 1024 ** 3
/** The largest number of sampled `_id`s whose record ids are read. */
const examinedMax = 500

export type CopyOrderRequest = Pick<StartConfiguration, 'copyInNaturalOrder' | 'detectRandomId'>

export interface OrderDecision {
  order: 'natural' | '_id'
  reason: string
}

/** Decides which collections are copied in natural order. */
export class CopyOrder {
  readonly #clusters: BothClusters
  readonly #request: CopyOrderRequest
  readonly #detectedFromBytes: number

  constructor(clusters: BothClusters, request: CopyOrderRequest, fromBytes = detectedFromBytes) {
    this.#clusters = clusters
    this.#request = request
    this.#detectedFromBytes = fromBytes
  }

  /**
   * Returns the order in which a collection of more than one segment is copied, and the reason for the journal. Null if
   * natural order is neither requested nor chosen because the `_id`s are random; the copy then follows `_id`.
   * @param ids sampled `_id`s, in the order of the `_id` index
   */
  async decide(entry: CatalogEntry, ids: readonly TypedValue[]): Promise<OrderDecision | null> {
    const { copyInNaturalOrder } = this.#request
    if (asksForNaturalOrder(copyInNaturalOrder, entry.database, entry.sourceName)) {
      const obstacle = this.#obstacle(entry)
      return obstacle === null ? { order: 'natural', reason: 'requested' } : { order: '_id', reason: obstacle }
    }
    if (!this.#mayDetect(entry)) return null
    const collection: CollectionToRead = { database: entry.database, name: entry.sourceName, uuid: entry.uuid }
    const recordIds = await recordIdsOf(this.#clusters.source, collection, evenly(ids, examinedMax))
    return isRandomOrder(recordIds) ? { order: 'natural', reason: 'random _id' } : null
  }

  /** Returns why a collection cannot be copied in natural order; null if it can. */
  #obstacle(entry: CatalogEntry): string | null {
    const { source, destination } = this.#clusters
    if (isCapped(entry.wanted.options)) return 'capped collections are always copied in natural order'
    if (isClustered(entry.wanted.options)) return 'the natural order of a clustered collection is its _id order'
    if (entry.converging) return 'the collection existed on the destination, and ranges of _id are compared'
    // Documents with the same `_id` are detected only if they are read next to each other, in `_id` order.
    if (mayRepeatIds(source, destination, entry)) return 'two shards may have documents with the same _id'
    return null
  }

  /**
   * Returns true if natural order may be chosen although it was not requested. It is not chosen where it has a
   * disadvantage that the user has not accepted: through mongos, an interrupted read starts again at the beginning, and
   * reads in natural order do not use secondaries.
   */
  #mayDetect(entry: CatalogEntry): boolean {
    const { source } = this.#clusters
    if (!this.#request.detectRandomId || source.sharded || source.readsSecondaries) return false
    return entry.estimatedBytes >= this.#detectedFromBytes && this.#obstacle(entry) === null
  }
}

/** Returns at most `count` elements, at equal distances. */
function evenly<T>(all: readonly T[], count: number): T[] {
  if (all.length <= count) return [...all]
  return Array.from({ length: count }, (_, at) => all[Math.floor((at * all.length) / count)] as T)
}
