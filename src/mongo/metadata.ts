import type { Document, Timestamp } from 'mongodb'
import type { ClusterTime } from '../domain/cluster-time.ts'
import type { StartConfiguration } from '../domain/start-request.ts'
import { AuditStore } from './audit-store.ts'
import type { StreamPosition } from './change-stream.ts'
import { type Cluster, fromTimestamp, toTimestamp } from './cluster.ts'
import { CollectionStore } from './collection-store.ts'
import type { RetryContext } from './retry.ts'
import { SegmentStore } from './segment-store.ts'
import { ShardingStore } from './sharding-store.ts'
import { StoredDocuments } from './stored-documents.ts'
import { TombstoneStore } from './tombstone-store.ts'

export interface SyncRecord {
  configuration: StartConfiguration
  /** Identity of each cluster as bound at start. */
  sourceIdentity: string
  destinationIdentity: string
  /** Taken before anything was read: every change from here on is in the stream. */
  startTime: ClusterTime
  /** How many partitions the changes are divided into, whoever applies them; fixed at start. */
  partitions: number
  /** Whether instances find each other by Redis; the same for all of them. */
  redis: boolean
  /** How often the sync was reversed. If both clusters hold a record, the one with the higher number counts. */
  generation: number
}

/**
 * What positions are kept: of each partition's stream; `reverse`, where a reversed stream will begin; `former`, up to
 * where the new destination had been read while it was the source.
 */
export type PositionKey = number | 'reverse' | 'former'

/**
 * Durable truth: the database `tandem_internal` on the destination, majority-acknowledged. Whoever starts again with
 * the same clusters goes on from what stands here.
 */
export class Metadata {
  readonly collections: CollectionStore
  readonly tombstones: TombstoneStore
  readonly segments: SegmentStore
  readonly sharding: ShardingStore
  readonly audit: AuditStore
  /** The coordinator's tenure: what a later one has written about collections and their segments, an earlier one does not change. */
  term: () => number = () => 0
  readonly #stored: StoredDocuments
  constructor(destination: Cluster, context: RetryContext) {
    this.#stored = new StoredDocuments(destination, context)
    this.segments = new SegmentStore(this.#stored, () => this.term())
    this.tombstones = new TombstoneStore(this.#stored)
    this.collections = new CollectionStore(this.#stored, this, () => this.term())
    this.sharding = new ShardingStore(this.#stored)
    this.audit = new AuditStore(destination)
  }

  async loadSync(): Promise<SyncRecord | null> {
    const found = await this.#stored.findOne('sync', { _id: 'sync' })
    return found && recordOf(found)
  }

  /**
   * The record that this cluster's own sync is, or was, to have on the cluster that a reversal moves it to; null where none was announced.
   * It stays when the rest is cleared: by it a record over there is believed.
   */
  async loadMove(): Promise<SyncRecord | null> {
    const found = await this.#stored.findOne('moves', { _id: 'sync' })
    return found && recordOf(found)
  }

  /** Before anything is written on the cluster that the sync moves to. */
  async announceMove(turned: SyncRecord): Promise<void> {
    await this.#stored.replace('moves', 'sync', { ...turned, startTime: toTimestamp(turned.startTime) })
  }

  /** A sync begins, or comes back, on this cluster: what was announced before vouches for nothing any more. */
  async forgetMove(): Promise<void> {
    await this.#stored.clear('moves')
  }

  /** Whether a sync has had this cluster as its destination, also when nothing else is left of it: leases stay. */
  async wasDestination(): Promise<boolean> {
    return (await this.#stored.aggregate('leases', [{ $limit: 1 }])).length > 0
  }

  /** Stores the record unless another instance was first. Returns the one that counts. */
  async createSync(record: SyncRecord): Promise<SyncRecord> {
    const fields = { ...record, startTime: toTimestamp(record.startTime), createdAt: new Date() }
    await this.#stored.update('sync', [{ q: { _id: 'sync' }, u: { $setOnInsert: fields, $set: {} }, upsert: true }])
    return (await this.loadSync()) ?? record
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

  /**
   * The instance machine's persisted snapshot, as JSON text: its keys are XState's and none of MongoDB's business. Rejects with
   * StoppedError when the signal is aborted before it is stored.
   */
  async saveInstance(id: string, snapshot: unknown, until?: AbortSignal): Promise<void> {
    const stored = until ? this.#stored.until(until) : this.#stored
    await stored.replace('instances', id, { snapshot: JSON.stringify(snapshot), savedAt: new Date() })
  }

  /** Forgets the sync: its record first, without which the rest means nothing. The lease and its epoch stay. */
  async clear(): Promise<void> {
    const verifier = ['verification', 'verifiedRanges', 'rechecks', 'mismatches']
    const shared = ['ownership', 'ownershipHistory', 'stages', 'barriers', 'members']
    const own = [
      'sync',
      'instances',
      'positions',
      'collections',
      'segments',
      'tombstones',
      'placements',
      'balancer',
      'audit',
    ]
    for (const collection of [...own, ...shared, ...verifier]) {
      await this.#stored.clear(collection)
    }
  }

  async loadPosition(key: PositionKey): Promise<StreamPosition | null> {
    const found = await this.#stored.findOne('positions', { _id: key })
    return found && positionOf(found)
  }

  /** The position of every partition that has one. */
  async loadPartitions(): Promise<Map<number, StreamPosition>> {
    const found = await this.#stored.find('positions', { _id: { $gte: 0 } })
    return new Map(found.map((document) => [document['_id'] as number, positionOf(document)]))
  }

  /** Gives every partition its first position, unless it has one. */
  async beginPartitions(count: number, position: StreamPosition): Promise<void> {
    await this.#stored.update(
      'positions',
      Array.from({ length: count }, (_, partition) => ({
        q: { _id: partition },
        u: { $set: {}, $setOnInsert: { epoch: 0, ...storedPosition(position) } },
        upsert: true,
      })),
    )
  }

  /** Saves a position unless a later epoch has written one: a deposed instance must not set its successor back. */
  async savePosition(key: PositionKey, epoch: number, position: StreamPosition): Promise<void> {
    await this.savePositions(new Map([[key, epoch]]), position)
  }

  /** The same for several at once, each under its own epoch. */
  async savePositions(epochs: ReadonlyMap<PositionKey, number>, position: StreamPosition): Promise<void> {
    await this.#stored.updateFenced(
      'positions',
      [...epochs].map(([key, epoch]) => ({
        q: { _id: key, epoch: { $lte: epoch } },
        u: { $set: { epoch, ...storedPosition(position) } },
        upsert: true,
      })),
    )
  }

  async removePositions(partitions: number[]): Promise<void> {
    await this.#stored.delete('positions', [{ q: { _id: { $in: partitions } }, limit: 0 }])
  }

  async createIndexes(): Promise<void> {
    await this.segments.createIndexes()
    await this.tombstones.createIndexes()
  }
}

function recordOf(found: Document): SyncRecord {
  return {
    configuration: found['configuration'] as StartConfiguration,
    sourceIdentity: found['sourceIdentity'] as string,
    destinationIdentity: found['destinationIdentity'] as string,
    startTime: fromTimestamp(found['startTime'] as Timestamp),
    partitions: found['partitions'] as number,
    redis: found['redis'] === true,
    generation: (found['generation'] as number | undefined) ?? 0,
  }
}

function storedPosition(position: StreamPosition): Document {
  return { time: toTimestamp(position.time), token: position.kind === 'token' ? position.token : null }
}

function positionOf(found: Document): StreamPosition {
  const time = fromTimestamp(found['time'] as Timestamp)
  return found['token'] ? { kind: 'token', token: found['token'] as { _data: string }, time } : { kind: 'time', time }
}
