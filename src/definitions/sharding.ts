import { type Document, type Timestamp, UUID } from 'mongodb'
import type { CatalogEntry } from '../domain/catalog.ts'
import { isUserCollection, isUserDatabase, splitNamespace } from '../domain/namespace.ts'
import { isRenamedAcrossDatabases } from '../domain/namespace-filter.ts'
import { type NamespaceRemap, noRemap } from '../domain/namespace-remap.ts'
import { bsonType, embedded, fieldNamed, isTruthy, readFields, stringOf } from '../domain/raw-bson.ts'
import { canBecomeKey, requestedShardKey, type ShardKey, sameShardKey, toShardKey } from '../domain/shard-key.ts'
import type { ShardingEntry } from '../domain/start-request.ts'
import type { Cluster } from '../mongo/cluster.ts'
import { readConfig } from '../mongo/config-database.ts'
import { TransientReplyError } from '../mongo/errors.ts'

/**
 * Reads the distribution of a cluster's data from its config servers, through mongos
 * (https://www.mongodb.com/docs/manual/reference/config-database/).
 */

export interface Distribution {
  name: string
  /** 16 bytes as latin1 text. */
  uuid: string
  /** Null for an unsharded collection. 8.0 and later list those that moveCollection or unshardCollection has moved. */
  key: ShardKey | null
  /** True if the collection has a default collation other than the simple one. Shard keys always use the simple collation. */
  collated: boolean
  /** True if shardCollection was run with `unique: true`. */
  unique: boolean
  /**
   * True while a reshardCollection, moveCollection or unshardCollection is in progress. It ends with a collection that
   * has another UUID.
   */
  resharding: boolean
}

/**
 * Converts a document of `config.collections`. Returns null if the document has another form. A document with
 * `unsplittable: true` belongs to an unsharded collection that the config servers track (8.0 and later). Its `key` is
 * always `{_id: 1}` and does not mean that the collection is sharded
 * (https://www.mongodb.com/docs/manual/reference/inconsistency-type/TrackedUnshardedCollectionHasInvalidKey/).
 */
export function toDistribution(document: Buffer, names: NamespaceRemap = noRemap): Distribution | null {
  const fields = readFields(document)
  const uuid = fieldNamed(fields, 'uuid')
  const key = fieldNamed(fields, 'key')
  const collation = fieldNamed(fields, 'defaultCollation')
  if (uuid?.[0] !== bsonType.binary || !key) return null
  return {
    name: names.namespaceOnSource(stringOf(fieldNamed(fields, '_id')) ?? ''),
    uuid: uuid.latin1Slice(6),
    key: isTruthy(fieldNamed(fields, 'unsplittable')) ? null : toShardKey(readFields(embedded(key))),
    collated: collation !== undefined && readFields(embedded(collation)).length > 0,
    unique: isTruthy(fieldNamed(fields, 'unique')),
    resharding: fieldNamed(fields, 'reshardingFields') !== undefined,
  }
}

/** Returns the tracked collections of one database or of all databases, and none for a replica set. */
export async function readDistributions(cluster: Cluster, database?: string): Promise<Distribution[]> {
  if (!cluster.sharded) return []
  // The range from "name." up to "name/" ("/" follows "." in ASCII) uses the index on _id without a regular expression.
  const named = database === undefined ? null : cluster.names.onDestination(database)
  const range = named === null ? {} : { _id: { $gte: `${named}.`, $lt: `${named}/` } }
  return await readCollections(cluster, range)
}

/** Returns the distribution of one collection, or undefined if it is not tracked or was renamed. */
export async function readDistribution(
  cluster: Cluster,
  name: string,
  uuid: string,
): Promise<Distribution | undefined> {
  if (!cluster.sharded) return undefined
  const found = await readCollections(cluster, { _id: cluster.names.namespaceOnDestination(name) })
  return found.find((one) => one.uuid === uuid)
}

async function readCollections(cluster: Cluster, filter: Document): Promise<Distribution[]> {
  const found = await readConfig(cluster, 'collections', filter)
  return found.map((document) => toDistribution(document, cluster.names)).filter((one) => one !== null)
}

export type ShardingEntries = readonly ShardingEntry[]

/**
 * Returns the shard key that a collection must have on a sharded destination: that of the source's collection or, if
 * the source is a replica set, the one that the start request gives for this name. Returns null if the collection must
 * not be sharded.
 * @param onSource the source's tracked collections, by UUID
 */
export function wantedShardKey(
  source: Cluster,
  onSource: ReadonlyMap<string, Distribution>,
  shardingEntries: ShardingEntries,
  { database, name, uuid }: { database: string; name: string; uuid: string },
): ShardKey | null {
  if (source.sharded) return onSource.get(uuid)?.key ?? null
  const requested = shardingEntries.find((one) => one.database === database && one.collection === name)
  return requested ? requestedShardKey(requested.shardCollection.key) : null
}

/**
 * True for a collection that was created on the destination without a shard key, under the temporary name of a rename
 * from another database, and for whose name on the source the start request has a key. The collection keeps the
 * temporary name until the event of that rename requests a convergence, because only that name shows the convergence
 * that it must create the collection again (`IncompleteCollections`, `planConvergence`).
 * @param name the collection's name on the source
 */
export function awaitsShardKey(
  source: Cluster,
  destination: { sharded: boolean },
  shardingEntries: ShardingEntries,
  entry: CatalogEntry,
  name: string,
): boolean {
  if (source.sharded || !destination.sharded || entry.shardKey || !isRenamedAcrossDatabases(entry.name)) return false
  return wantedShardKey(source, new Map(), shardingEntries, { ...entry, name }) !== null
}

/**
 * True if a collection of the destination can keep its documents where they are. From a sharded source, tandem follows
 * a refined shard key in place. After any other difference, the collection must be dropped and copied: documents with
 * the same `_id` may be on several shards, and an unsharded collection would remain on one shard.
 */
export function keepsDistribution(
  source: Cluster,
  existing: Distribution | undefined,
  wanted: ShardKey | null,
): boolean {
  const key = existing?.key ?? null
  return source.sharded ? canBecomeKey(key, wanted) : sameShardKey(key, wanted)
}

/**
 * Throws TransientReplyError while the destination's collection is being resharded, because resharding gives it another
 * UUID and another shard key.
 */
export function throwIfResharding({ names }: Cluster, existing: Distribution | null | undefined): void {
  if (!existing?.resharding) return
  throw new TransientReplyError(`${names.shown(existing.name)} is being resharded on the destination`)
}

/** Returns the namespace of a collection that is being resharded, or null if there is none. */
export async function reshardingNow(cluster: Cluster): Promise<string | null> {
  const found = (await readDistributions(cluster)).find(({ name, resharding }) => {
    const { database, collection } = splitNamespace(name)
    // The server tracks the new collection too, under a name that begins with `system.resharding.`.
    return resharding && isUserDatabase(database) && isUserCollection(collection)
  })
  return found?.name ?? null
}

/** Returns the tracked collections of one database, by UUID, and none for a replica set. */
export async function distributionsByUuid(cluster: Cluster, database: string): Promise<Map<string, Distribution>> {
  return new Map((await readDistributions(cluster, database)).map((one) => [one.uuid, one]))
}

export interface Placement {
  database: string
  /** The shard that has the database's unsharded collections. */
  primary: string
  /** Text that changes with each movePrimary. The part before the colon changes when the database is created again. */
  version: string
}

/** Returns the primary shards of one database or of all databases, and none for a replica set. */
export async function readPlacements(cluster: Cluster, database?: string): Promise<Placement[]> {
  if (!cluster.sharded) return []
  const reply = await cluster.read('config', {
    find: 'databases',
    filter: database === undefined ? {} : { _id: cluster.names.onDestination(database) },
    batchSize: databasesMax,
    singleBatch: true,
    readConcern: { level: 'majority' },
  })
  return (reply['cursor'].firstBatch as Document[]).map((found) => {
    const { uuid, timestamp, lastMod } = (found['version'] ?? {}) as {
      uuid?: UUID
      timestamp?: Timestamp
      lastMod?: number
    }
    const creation = uuid ? new UUID(uuid.buffer).toHexString() : String(timestamp ?? '')
    const database = cluster.names.onSource(found['_id'] as string)
    return { database, primary: found['primary'] as string, version: `${creation}:${lastMod}` }
  })
}

/** More databases than any cluster has. */
const databasesMax = 100_000
