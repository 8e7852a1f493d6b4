import { Binary, Long } from 'mongodb'
import { batched } from '../domain/batched.ts'
import { idOf } from '../domain/id-element.ts'
import { isIn, type PartitionFilter } from './partition-filter.ts'
import { RawValue } from './raw-values.ts'
import { bytesOf, type StoredDocuments } from './stored-documents.ts'
import { fromUuid, toUuid } from './uuid.ts'

/** The largest number of collections in one query. */
const collectionsMax = 500

/** A document identity that must be reconciled after the copy of its collection has ended, in ascending `order`. */
export interface Tombstone {
  idElement: Buffer
  order: number
  reorder: boolean
}

/**
 * Document identities that were applied while their collection was copied: collection `tombstones` of the metadata
 * database.
 */
export class TombstoneStore {
  readonly #stored: StoredDocuments
  constructor(stored: StoredDocuments) {
    this.#stored = stored
  }

  /**
   * Records identities (whole `_id` elements) to reconcile when the copy of the collection has ended. An identity that
   * is already recorded keeps its order, unless `reorder` moves it to the end.
   */
  async add(uuid: string, tombstones: Tombstone[]): Promise<void> {
    const collection = toUuid(uuid)
    await this.#stored.update(
      'tombstones',
      tombstones.map(({ idElement, order, reorder }) => {
        const position = { order: Long.fromNumber(order) }
        // The value is also stored alone, because the server hashes it to determine its partition.
        const known = { collection, id: new RawValue(idOf(idElement)) }
        return {
          q: { _id: tombstoneID(uuid, idElement) },
          u: reorder ? { $set: { ...known, ...position } } : { $set: known, $setOnInsert: position },
          upsert: true,
        }
      }),
    )
  }

  /**
   * Up to `limit` identities after `after` (null: from the first one), in order. `of` limits them to some partitions.
   * Each instance numbers the identities that it records, so several identities may have the same number.
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

  /** Whether this collection has any tombstones. Simultaneous calls share one query. */
  readonly isRecorded = batched(collectionsMax, async (uuids: string[]) => {
    const recorded = await this.recorded(uuids)
    return uuids.map((uuid) => recorded.has(uuid))
  })

  /** Which of these collections have tombstones. */
  async recorded(uuids: string[]): Promise<Set<string>> {
    const found = await this.#stored.distinct('tombstones', 'collection', { collection: { $in: uuids.map(toUuid) } })
    return new Set(found.map((uuid) => fromUuid(uuid as Binary)))
  }

  /** The highest order of all recorded identities. 0 if there are none. */
  async highestOrder(): Promise<number> {
    const [found] = await this.#stored.find('tombstones', {}, { sort: { order: -1 }, limit: 1 })
    return Number(found?.['order'] ?? 0)
  }

  /** Removes the tombstones of these collections. */
  async remove(uuids: string[]): Promise<void> {
    await this.#stored.delete('tombstones', [{ q: { collection: { $in: uuids.map(toUuid) } }, limit: 0 }])
  }

  async createIndexes(): Promise<void> {
    await this.#stored.createIndex('tombstones', { collection: 1, order: 1, _id: 1 }, 'collection_order_id')
  }
}

function tombstoneID(uuid: string, idElement: Buffer): Binary {
  return new Binary(Buffer.concat([Buffer.from(uuid, 'latin1'), idElement]))
}
