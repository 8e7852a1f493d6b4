import { Binary, type Document, Long } from 'mongodb'
import { batched } from '../domain/batched.ts'
import type { CatalogEntry } from '../domain/catalog.ts'
import type { ClusterTime } from '../domain/cluster-time.ts'
import { idOf } from '../domain/id-element.ts'
import { type CommandOptions, toTimestamp } from './cluster.ts'
import { isIn, type PartitionFilter } from './partition-filter.ts'
import { RawValue } from './raw-values.ts'
import { bytesOf, notOfLater, type StoredDocuments } from './stored-documents.ts'
import { fromUuid, toUuid } from './uuid.ts'

/** The largest number of collections in one query. */
const collectionsMax = 500

/** The identity of a document that must be reconciled when the copy of its collection has ended. */
export interface Tombstone {
  idElement: Buffer
  /** Tombstones are reconciled in ascending order. */
  order: number
  /** True if an identity that is already recorded moves to this order. */
  reorder: boolean
}

/**
 * Identities of documents that must be reconciled when the copy of their collection has ended: collection `tombstones` of
 * the metadata database.
 */
export class TombstoneStore {
  readonly #stored: StoredDocuments
  constructor(stored: StoredDocuments) {
    this.#stored = stored
  }

  /**
   * Records identities (whole `_id` elements) to reconcile when the copy of the collection has ended. An identity that
   * is already recorded keeps its order, unless `reorder` moves it to the end.
   * @param convergedFrom the start time of the collection's last convergence, which identifies the copy (null: it has
   * not converged). A delayed removal of an earlier copy's tombstones does not match these.
   */
  async add(uuid: string, tombstones: Tombstone[], convergedFrom: ClusterTime | null = null): Promise<void> {
    const collection = toUuid(uuid)
    const ofCopy = convergedFrom === null ? {} : { $max: { convergedFrom: toTimestamp(convergedFrom) } }
    await this.#stored.update(
      'tombstones',
      tombstones.map(({ idElement, order, reorder }) => {
        const position = { order: Long.fromNumber(order) }
        // The `_id` value is also stored in a field of its own: the server hashes it to determine the partition.
        const known = { collection, id: new RawValue(idOf(idElement)) }
        return {
          q: { _id: tombstoneID(uuid, idElement) },
          u: {
            ...(reorder ? { $set: { ...known, ...position } } : { $set: known, $setOnInsert: position }),
            ...ofCopy,
          },
          upsert: true,
        }
      }),
    )
  }

  /**
   * Returns up to `limit` identities after `after` (null: from the first one), in order. `of` limits them to some
   * partitions. Each instance numbers the identities that it records, so several identities may have the same order.
   */
  async read(
    uuid: string,
    after: Pick<Tombstone, 'order' | 'idElement'> | null,
    limit: number,
    of?: PartitionFilter,
  ): Promise<Tombstone[]> {
    const beyond = after && {
      order: { $gte: Long.fromNumber(after.order) },
      $or: [{ order: { $gt: Long.fromNumber(after.order) } }, { _id: { $gt: tombstoneID(uuid, after.idElement) } }],
    }
    const found = await this.#stored.find(
      'tombstones',
      { collection: toUuid(uuid), ...beyond, ...(of ? { $expr: isIn(of, '$id') } : {}) },
      { sort: { order: 1, _id: 1 }, limit },
    )
    return found.map((document) => ({
      idElement: bytesOf(document['_id']).subarray(16),
      order: Number(document['order']),
      reorder: false,
    }))
  }

  /** Resolves with true if this collection has tombstones. Simultaneous calls share one query. */
  readonly isRecorded = batched(collectionsMax, async (uuids: string[]) => {
    const recorded = await this.recorded(uuids)
    return uuids.map((uuid) => recorded.has(uuid))
  })

  /** Returns those of these collections that have tombstones. */
  async recorded(uuids: string[]): Promise<Set<string>> {
    const found = await this.#stored.distinct('tombstones', 'collection', { collection: { $in: uuids.map(toUuid) } })
    return new Set(found.map((uuid) => fromUuid(uuid as Binary)))
  }

  /**
   * Returns the highest order of all recorded identities; 0 if there are none. The server reads one key of the index for
   * each collection (DISTINCT_SCAN), because the pipeline begins with a sort by the fields of the index and takes the
   * first document of each group:
   * https://www.mongodb.com/docs/manual/reference/operator/aggregation/group/#optimization-to-return-the-first-or-last-document-of-each-group
   */
  async highestOrder(): Promise<number> {
    const groups = await this.#stored.aggregate('tombstones', [
      { $sort: { collection: -1, order: -1 } },
      { $group: { _id: '$collection', order: { $first: '$order' } } },
    ])
    return Math.max(0, ...groups.map(({ order }) => Number(order)))
  }

  /**
   * Removes the tombstones of these collections that belong to the copy with this start time or to an earlier copy. Call
   * it before a later copy begins. If the removal reaches the server after that, it does not match the tombstones of the
   * later copy. Without those, a copy insert would bring back a document that was deleted on the source. Tombstones that
   * an interrupted removal leaves are harmless: the end of a later copy reconciles these documents too.
   * @param until rejects with StoppedError once it is aborted
   */
  async remove(copies: readonly Pick<CatalogEntry, 'uuid' | 'convergedFrom'>[], until?: AbortSignal): Promise<void> {
    const uuidsOf = new Map<ClusterTime | null, string[]>()
    for (const { uuid, convergedFrom } of copies) {
      uuidsOf.set(convergedFrom, [...(uuidsOf.get(convergedFrom) ?? []), uuid])
    }
    for (const [convergedFrom, uuids] of uuidsOf) {
      for (let from = 0; from < uuids.length; from += collectionsMax) {
        const collections = uuids.slice(from, from + collectionsMax).map(toUuid)
        const guard = { convergedFrom: notAfter(convergedFrom) }
        await this.#stored.until(until, (stored) =>
          stored.deleteAll('tombstones', { collection: { $in: collections } }, guard),
        )
      }
    }
  }

  async createIndexes(options: Pick<CommandOptions, 'timeoutMS'> = {}): Promise<void> {
    const key = { collection: 1, order: 1, _id: 1 }
    await this.#stored.createIndexes('tombstones', [{ key, name: 'collection_order_id' }], options)
  }
}

/** Tombstones of a collection's first copy, and those that an earlier release recorded, have no start time. */
function notAfter(convergedFrom: ClusterTime | null): Document | null {
  return convergedFrom === null ? null : notOfLater(toTimestamp(convergedFrom))
}

function tombstoneID(uuid: string, idElement: Buffer): Binary {
  return new Binary(Buffer.concat([Buffer.from(uuid, 'latin1'), idElement]))
}
