import type { Document, Timestamp } from 'mongodb'
import type { ClusterTime } from '../domain/cluster-time.ts'
import { both } from '../domain/in-parallel.ts'
import { hasShardingOptions, type StartConfiguration } from '../domain/start-request.ts'
import { AuditStore } from './audit-store.ts'
import type { StreamPosition } from './change-stream.ts'
import { type Cluster, type CommandOptions, fromTimestamp, toTimestamp } from './cluster.ts'
import { CollectionStore } from './collection-store.ts'
import { isRecord } from './older-metadata.ts'
import type { RetryContext } from './retry.ts'
import { SegmentStore } from './segment-store.ts'
import { ShardingStore } from './sharding-store.ts'
import { StoredDocuments, type StoredVersion } from './stored-documents.ts'
import { syncStateCollection } from './stored-names.ts'
import { TombstoneStore } from './tombstone-store.ts'

export interface SyncRecord {
  configuration: StartConfiguration
  /** Identity of each cluster, recorded at start. */
  sourceIdentity: string
  destinationIdentity: string
  /**
   * The cluster time at which the sync began. The copy reads the source at this time or later, and the change stream
   * begins here.
   */
  startTime: ClusterTime
  /** The number of partitions into which the changes are divided by the hash of `_id`. It is fixed at start. */
  partitions: number
  /** True if instances discover each other through Redis. All instances must agree on this. */
  redis: boolean
  /**
   * How many times the sync was reversed. If both clusters hold a record, the record with the higher number is valid.
   */
  generation: number
}

/**
 * Keys of stored positions. A number is a partition of a stream. `reverse` is the position at which the stream of a
 * reversal will begin. `former` is the position up to which the destination of a reversed sync was read while it was
 * the source.
 */
export type PositionKey = number | 'reverse' | 'former'

/**
 * Version 2 says which collections may have held documents on the destination before tandem took them over
 * (`converging`). An earlier release would copy such a collection and ignore the documents that exist. The new version
 * makes that release refuse the catalog. A collection of version 1 was created empty. Version 3 has the coordinator's
 * term in another field, which an earlier release would not use to fence delayed writes.
 */
const collectionsVersion = { writes: 3, reads: [1, 2, 3] } as const

/**
 * Version 2 has other names for three parts of an instance's context. An earlier release would take a context of
 * version 2 for one of an instance that has verified nothing and takes part in no commit, so it must refuse that
 * version.
 */
const instancesVersion = { writes: 2, reads: [1, 2] } as const

/**
 * Returns the version of the record of a sync. It is higher than 1 only if the configuration has a value that earlier
 * releases do not know. They would treat any value of `buildIndexes` except `never` as `beforeDataCopy`, and build other
 * indexes, or build them at another time. They would ignore `timeseries: skip`, and end in FAILED when they find a
 * time-series collection. They would ignore the options of a sharding entry, and shard its collection without them. They would
 * ignore `namespaceRemap`, and write to databases that have the names of the source. Those that know it for databases only
 * would rename the whole database of a collection.
 */
function recordVersion({ configuration }: SyncRecord): number {
  if (configuration.namespaceRemap?.some(({ from }) => from.collection !== undefined)) return 6
  if (configuration.namespaceRemap) return 5
  if (configuration.sharding?.shardingEntries.some(hasShardingOptions)) return 4
  if (configuration.timeseries === 'skip') return 3
  return knownToVersion1.has(configuration.buildIndexes) ? 1 : 2
}

const knownToVersion1: ReadonlySet<string | undefined> = new Set(['beforeDataCopy', 'never', undefined])

/**
 * The durable state of a sync, in the metadata database on the destination. All writes are acknowledged by the majority.
 * A process that starts again with the same clusters continues from this state.
 */
export class Metadata {
  readonly collections: CollectionStore
  readonly tombstones: TombstoneStore
  readonly segments: SegmentStore
  readonly sharding: ShardingStore
  readonly audit: AuditStore
  readonly #stored: StoredDocuments
  readonly #instances: StoredDocuments
  /** Reads and writes the record of a sync, in the version that it needs. */
  readonly #records: (version: number) => StoredDocuments

  /**
   * @param coordinator the coordinator's term: an earlier term cannot overwrite what a later term has written about
   * collections and their segments
   * @param database the metadata database; by default, that of the cluster at this moment
   */
  constructor(
    destination: Cluster,
    context: RetryContext,
    coordinator: { readonly term: number } = { term: 0 },
    database: string = destination.metadataDatabase,
  ) {
    const stored = (version?: StoredVersion) => new StoredDocuments(destination, context, version, database)
    this.#stored = stored()
    this.#instances = stored(instancesVersion)
    this.#records = (writes) => stored({ writes, reads: [1, 2, 3, 4, 5, 6] })
    this.segments = new SegmentStore(stored, coordinator)
    this.tombstones = new TombstoneStore(this.#stored)
    const collections = stored(collectionsVersion)
    this.collections = new CollectionStore(collections, this, coordinator)
    this.sharding = new ShardingStore(this.#stored)
    this.audit = new AuditStore(destination)
  }

  /** Returns null if no record is stored. A reservation of the database (`OlderMetadata`) is not a record. */
  async loadSync(): Promise<SyncRecord | null> {
    const found = await this.#records(1).findOne('sync', { _id: 'sync', ...isRecord })
    return found && recordOf(found)
  }

  /**
   * Returns the record that a reversal of this cluster's sync creates, or has created, on the other cluster; null if no
   * reversal was announced. `clear` keeps the announcement, because a record on the other cluster is trusted only if it
   * is announced here.
   */
  async loadMove(): Promise<SyncRecord | null> {
    const found = await this.#records(1).findOne('moves', { _id: 'sync' })
    return found && recordOf(found)
  }

  /** Called before anything is written on the cluster that the sync moves to. */
  async announceMove(reversed: SyncRecord): Promise<void> {
    const fields = { ...storedRecord(reversed), startTime: toTimestamp(reversed.startTime) }
    await this.#records(recordVersion(reversed)).replace('moves', 'sync', fields)
  }

  /** Called when a sync begins on this cluster or returns to it: an earlier announcement is no longer valid. */
  async removeMove(): Promise<void> {
    await this.#stored.clear('moves')
  }

  /** Returns true if a reversal is announced, also one that another release has stored. */
  async hasMove(): Promise<boolean> {
    return (await this.#stored.aggregate('moves', [{ $limit: 1 }])).length > 0
  }

  /** Returns true if this cluster has been the destination of a sync. `clear` keeps the leases, so one is stored then. */
  async wasDestination(): Promise<boolean> {
    return (await this.#stored.aggregate('leases', [{ $limit: 1 }])).length > 0
  }

  /** Stores the record unless another instance did so first. Returns the stored record. */
  async createSync(record: SyncRecord): Promise<SyncRecord> {
    const fields = { ...storedRecord(record), startTime: toTimestamp(record.startTime), createdAt: new Date() }
    const schemaVersion = recordVersion(record)
    // A record with another version does not match, so its version does not change.
    const created = { $setOnInsert: fields, $set: {} }
    const found = await this.#records(schemaVersion).findAndUpdate(
      'sync',
      { _id: 'sync', schemaVersion },
      created,
      true,
    )
    return (found && recordOf(found)) ?? (await this.loadSync()) ?? record
  }

  /** Removes the record that `createSync` has stored, unless another instance has replaced it. */
  async removeSync({ startTime, generation }: SyncRecord): Promise<void> {
    const stored = { _id: 'sync', startTime: toTimestamp(startTime), generation }
    await this.#stored.delete('sync', [{ q: stored, limit: 1 }])
  }

  async saveSync(record: SyncRecord): Promise<void> {
    await this.#records(recordVersion(record)).replace('sync', 'sync', {
      ...storedRecord(record),
      startTime: toTimestamp(record.startTime),
      createdAt: new Date(),
    })
  }

  /**
   * Returns the stored context of each instance, by mongosyncID. A context may have the form of an earlier release, which
   * `completed` of the instance machine can read.
   */
  async loadInstances(): Promise<Map<string, object>> {
    const found = await this.#instances.find('instances', {})
    return new Map(found.map((document) => [document['_id'] as string, JSON.parse(document['snapshot'] as string)]))
  }

  /**
   * Stores the persisted snapshot of an instance's machine as JSON text, because XState chooses its keys and MongoDB
   * need not read them. Rejects with StoppedError when the signal is aborted before the snapshot is stored.
   */
  async saveInstance(id: string, snapshot: unknown, until?: AbortSignal): Promise<void> {
    const fields = { snapshot: JSON.stringify(snapshot), savedAt: new Date() }
    await this.#instances.until(until, (stored) => stored.replace('instances', id, fields))
  }

  /**
   * Removes the sync. The record is removed first, because the other documents have no effect without it. The leases
   * remain, so that epochs continue to increase.
   */
  async clear(): Promise<void> {
    const verifier = ['verification', 'verifiedRanges', 'verificationClaims', 'rechecks', 'mismatches']
    const shared = ['ownership', 'ownershipHistory', syncStateCollection, 'barriers', 'members']
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

  /** Returns the position of every partition that has one. */
  async loadPartitions(): Promise<Map<number, StreamPosition>> {
    const found = await this.#stored.find('positions', { _id: { $gte: 0 } })
    return new Map(found.map((document) => [document['_id'] as number, positionOf(document)]))
  }

  /** Gives a first position to every partition that has none. */
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

  /**
   * Saves a position unless a later epoch has written one, so that a fenced instance cannot move its successor's
   * position back.
   */
  async savePosition(key: PositionKey, epoch: number, position: StreamPosition): Promise<void> {
    await this.savePositions(new Map([[key, epoch]]), position)
  }

  /** Saves the same position under several keys, each with its own epoch. */
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

  /** @param options `timeoutMS: 0` if documents may exist, because the index builds may then take long */
  async createIndexes(options: Pick<CommandOptions, 'timeoutMS'> = {}): Promise<void> {
    await both(this.segments.createIndexes(options), this.tombstones.createIndexes(options))
  }
}

function recordOf(found: Document): SyncRecord {
  return {
    configuration: configurationOf(found['configuration'] as Document),
    sourceIdentity: found['sourceIdentity'] as string,
    destinationIdentity: found['destinationIdentity'] as string,
    startTime: fromTimestamp(found['startTime'] as Timestamp),
    partitions: found['partitions'] as number,
    redis: found['redis'] === true,
    generation: (found['generation'] as number | undefined) ?? 0,
  }
}

/**
 * Sets the defaults of fields that may be missing. Earlier releases did not store these fields, and `storedRecord` omits
 * all but `existingData` if they have their defaults. The order of the fields is that of a new request.
 */
function configurationOf({
  verification,
  existingData = 'refuse',
  timeseries = 'refuse',
  copyInNaturalOrder = null,
  detectRandomId = true,
  namespaceRemap = null,
  ...others
}: Document): StartConfiguration {
  const { enabled, initialCompareMethod = 'binary' } = verification as Document
  const newer = { existingData, timeseries, copyInNaturalOrder, detectRandomId, namespaceRemap }
  return { ...others, verification: { enabled, initialCompareMethod }, ...newer } as unknown as StartConfiguration
}

/**
 * Omits newer fields that have their defaults, so that an earlier release finds only fields that it knows in the record.
 * An earlier release refuses a record with `skip` or `namespaceRemap` because of its version (`recordVersion`). For a collection that is to
 * be copied in natural order, it would plan segments by ranges of `_id`, which is correct too. It refuses a stored plan
 * in natural order (`SegmentStore`). It would compare bytes in the first pass whatever `initialCompareMethod` is, which
 * proves more.
 */
function storedRecord({ configuration, ...others }: SyncRecord): Document {
  const { verification, timeseries, copyInNaturalOrder, detectRandomId, namespaceRemap, ...known } = configuration
  const { enabled, initialCompareMethod } = verification
  const verifying = initialCompareMethod === 'binary' ? { enabled } : { enabled, initialCompareMethod }
  const newer = {
    ...(timeseries === 'skip' && { timeseries }),
    ...(copyInNaturalOrder && { copyInNaturalOrder }),
    ...(detectRandomId === false && { detectRandomId }),
    ...(namespaceRemap && { namespaceRemap }),
  }
  return { configuration: { ...known, verification: verifying, ...newer }, ...others }
}

function storedPosition(position: StreamPosition): Document {
  return { time: toTimestamp(position.time), token: position.kind === 'token' ? position.token : null }
}

function positionOf(found: Document): StreamPosition {
  const time = fromTimestamp(found['time'] as Timestamp)
  return found['token'] ? { kind: 'token', token: found['token'] as { _data: string }, time } : { kind: 'time', time }
}
