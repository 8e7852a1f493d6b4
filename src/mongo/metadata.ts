import { Binary, Long, type Timestamp } from 'mongodb'
import type { CatalogueEntry, Segment } from '../domain/catalogue.ts'
import type { ClusterTime } from '../domain/cluster-time.ts'
import { FatalError } from '../domain/errors.ts'
import { buildDocument, readFields } from '../domain/raw-bson.ts'
import type { StartConfiguration } from '../domain/start-request.ts'
import type { StreamPosition } from './change-stream.ts'
import { type Cluster, fromTimestamp, toTimestamp } from './cluster.ts'
import { code } from './errors.ts'
import type { RetryContext } from './retry.ts'
import { MetadataWriteError, StoredDocuments } from './stored-documents.ts'
import { fromUuid, toUuid } from './uuid.ts'

export interface SyncRecord {
  configuration: StartConfiguration
  /** Identity of each cluster as bound at start. */
  sourceIdentity: string
  destinationIdentity: string
  /** Taken before anything was read: every change from here on is in the stream. */
  startTime: ClusterTime
  /** How often the sync was reversed. If both clusters hold a record, the one with the higher number counts. */
  generation: number
}

/**
 * What positions are kept: of each partition's stream; `reverse`, where a reversed stream will begin; `former`, up to
 * where the new destination had been read while it was the source.
 */
export type PositionKey = number | 'reverse' | 'former'

/** UUIDs in one `$in`. */
const uuidsMax = 500

/** An identity to be reconciled once its collection's copy has ended, in ascending `order`. */
export interface Tombstone {
  idElement: Buffer
  order: number
  reorder: boolean
}

/**
 * Durable truth: the database `tandem_internal` on the destination, majority-acknowledged. Whoever starts again with
 * the same clusters goes on from what stands here.
 */
export class Metadata {
  readonly #stored: StoredDocuments
  constructor(destination: Cluster, context: RetryContext) {
    this.#stored = new StoredDocuments(destination, context)
  }

  async loadSync(): Promise<SyncRecord | null> {
    const found = await this.#stored.findOne('sync', { _id: 'sync' })
    if (!found) return null
    return {
      configuration: found['configuration'] as StartConfiguration,
      sourceIdentity: found['sourceIdentity'] as string,
      destinationIdentity: found['destinationIdentity'] as string,
      startTime: fromTimestamp(found['startTime'] as Timestamp),
      generation: (found['generation'] as number | undefined) ?? 0,
    }
  }

  async saveSync(record: SyncRecord): Promise<void> {
    await this.#stored.replace('sync', 'sync', {
      ...record,
      startTime: toTimestamp(record.startTime),
      createdAt: new Date(),
    })
  }

  /** What each instance stored of its machine, by mongosyncID. */
  async loadInstances(): Promise<Map<string, unknown>> {
    const found = await this.#stored.find('instances', {})
    return new Map(found.map((document) => [document['_id'] as string, JSON.parse(document['snapshot'] as string)]))
  }

  /** The instance machine's persisted snapshot, as JSON text: its keys are XState's and none of MongoDB's business. */
  async saveInstance(id: string, snapshot: unknown): Promise<void> {
    await this.#stored.replace('instances', id, { snapshot: JSON.stringify(snapshot), savedAt: new Date() })
  }

  /** Forgets the sync: its record first, without which the rest means nothing. The lease and its epoch stay. */
  async clear(): Promise<void> {
    const verifier = ['verification', 'verifiedRanges', 'rechecks', 'mismatches']
    for (const collection of ['sync', 'instances', 'positions', 'collections', 'segments', 'tombstones', ...verifier]) {
      await this.#stored.clear(collection)
    }
  }

  async loadPosition(key: PositionKey): Promise<StreamPosition | null> {
    const found = await this.#stored.findOne('positions', { _id: key })
    if (!found) return null
    const time = fromTimestamp(found['time'] as Timestamp)
    return found['token'] ? { kind: 'token', token: found['token'] as { _data: string }, time } : { kind: 'time', time }
  }

  /** Saves a position unless a later epoch has written one: a deposed instance must not set its successor back. */
  async savePosition(key: PositionKey, epoch: number, position: StreamPosition): Promise<void> {
    const fields = {
      epoch,
      time: toTimestamp(position.time),
      token: position.kind === 'token' ? position.token : null,
    }
    try {
      await this.#stored.update('positions', [
        { q: { _id: key, epoch: { $lte: epoch } }, u: { $set: fields }, upsert: true },
      ])
    } catch (error) {
      // A later epoch's document does not match, so the upsert meets its _id.
      if (!(error instanceof MetadataWriteError) || error.code !== code.duplicateKey) throw error
      throw new FatalError('LeaseLost', 'another instance has taken over; this one has stopped writing', {
        cause: error,
      })
    }
  }

  async removePositions(partitions: number[]): Promise<void> {
    await this.#stored.delete('positions', [{ q: { _id: { $in: partitions } }, limit: 0 }])
  }

  async loadCollections(): Promise<CatalogueEntry[]> {
    const found = await this.#stored.find('collections', {})
    return found.map((document) => ({
      uuid: fromUuid(document['_id'] as Binary),
      database: document['database'] as string,
      name: document['name'] as string,
      sourceName: document['name'] as string,
      destinationUUID: document['destinationUUID'] ? fromUuid(document['destinationUUID'] as Binary) : null,
      state: document['state'] as CatalogueEntry['state'],
      wanted: {
        options: readFields(bytesOf(document['options'])),
        indexes: (document['indexes'] as Binary[]).map((index) => readFields(bytesOf(index))),
      },
      estimatedBytes: document['estimatedBytes'] as number,
      copiedBytes: document['copiedBytes'] as number,
      planned: document['planned'] as boolean,
      hasTombstones: false,
    }))
  }

  async saveCollections(entries: CatalogueEntry[]): Promise<void> {
    await this.#stored.update(
      'collections',
      entries.map((entry) => ({
        q: { _id: toUuid(entry.uuid) },
        u: {
          database: entry.database,
          name: entry.name,
          destinationUUID: entry.destinationUUID ? toUuid(entry.destinationUUID) : null,
          state: entry.state,
          options: new Binary(buildDocument(entry.wanted.options)),
          indexes: entry.wanted.indexes.map((index) => new Binary(buildDocument(index))),
          estimatedBytes: entry.estimatedBytes,
          copiedBytes: entry.copiedBytes,
          planned: entry.planned,
        },
        upsert: true,
      })),
    )
  }

  async saveCollection(entry: CatalogueEntry): Promise<void> {
    await this.saveCollections([entry])
  }

  /** Forgets a collection that is gone on the source, with its segments and tombstones. */
  async removeCollection(uuid: string): Promise<void> {
    await this.removeSegments([uuid])
    await this.removeTombstones(uuid)
    await this.#stored.delete('collections', [{ q: { _id: toUuid(uuid) }, limit: 1 }])
  }

  async saveSegments(segments: Segment[]): Promise<void> {
    await this.#stored.update(
      'segments',
      segments.map((segment) => ({
        q: { _id: `${Buffer.from(segment.collection, 'latin1').toString('hex')}:${segment.ordinal}` },
        u: {
          collection: toUuid(segment.collection),
          ordinal: segment.ordinal,
          from: segment.from ? new Binary(segment.from) : null,
          to: segment.to ? new Binary(segment.to) : null,
          last: segment.last ? new Binary(segment.last) : null,
          done: segment.done,
          documents: segment.documents,
          bytes: segment.bytes,
          attempts: segment.attempts,
        },
        upsert: true,
      })),
    )
  }

  async loadSegments(uuid: string): Promise<Segment[]> {
    const found = await this.#stored.find('segments', { collection: toUuid(uuid) })
    return found
      .map((document) => ({
        collection: uuid,
        ordinal: document['ordinal'] as number,
        from: optionalBytes(document['from']),
        to: optionalBytes(document['to']),
        last: optionalBytes(document['last']),
        done: document['done'] as boolean,
        documents: document['documents'] as number,
        bytes: document['bytes'] as number,
        attempts: document['attempts'] as number,
      }))
      .sort((one, other) => one.ordinal - other.ordinal)
  }

  async removeSegments(uuids: string[]): Promise<void> {
    for (let from = 0; from < uuids.length; from += uuidsMax) {
      const collections = uuids.slice(from, from + uuidsMax).map(toUuid)
      await this.#stored.delete('segments', [{ q: { collection: { $in: collections } }, limit: 0 }])
    }
  }

  /**
   * Records identities (whole `_id` elements) to be reconciled again when the collection's copy has ended. An identity
   * that is recorded already keeps its order unless `reorder` says that it stands at the end now.
   */
  async addTombstones(uuid: string, tombstones: Tombstone[]): Promise<void> {
    const prefix = Buffer.from(uuid, 'latin1')
    const collection = toUuid(uuid)
    await this.#stored.update(
      'tombstones',
      tombstones.map(({ idElement, order, reorder }) => {
        const position = { order: Long.fromNumber(order) }
        return {
          q: { _id: new Binary(Buffer.concat([prefix, idElement])) },
          u: reorder ? { $set: { collection, ...position } } : { $set: { collection }, $setOnInsert: position },
          upsert: true,
        }
      }),
    )
  }

  /** Up to `limit` identities with order beyond `after`, in order. */
  async readTombstones(uuid: string, after: number, limit: number): Promise<Tombstone[]> {
    const found = await this.#stored.find(
      'tombstones',
      { collection: toUuid(uuid), order: { $gt: Long.fromNumber(after) } },
      { sort: { order: 1 }, limit },
    )
    return found.map((document) => ({
      idElement: bytesOf(document['_id']).subarray(16),
      order: Number(document['order']),
      reorder: false,
    }))
  }

  /** The highest order any recorded identity has; 0 without any. */
  async highestOrder(): Promise<number> {
    const [found] = await this.#stored.find('tombstones', {}, { sort: { order: -1 }, limit: 1 })
    return Number(found?.['order'] ?? 0)
  }

  async removeTombstones(uuid: string): Promise<void> {
    await this.#stored.delete('tombstones', [{ q: { collection: toUuid(uuid) }, limit: 0 }])
  }

  async createIndexes(): Promise<void> {
    await this.#stored.createIndex('segments', { collection: 1 }, 'collection')
    await this.#stored.createIndex('tombstones', { collection: 1, order: 1 }, 'collection_order')
  }
}

function bytesOf(value: unknown): Buffer {
  return Buffer.from((value as Binary).buffer)
}

function optionalBytes(value: unknown): Buffer | null {
  return value ? bytesOf(value) : null
}
