import { type Document, type Timestamp, UUID } from 'mongodb'
import { bsonType, embedded, fieldNamed, readFields, stringOf } from '../domain/raw-bson.ts'
import { type ShardKey, toShardKey } from '../domain/shard-key.ts'
import type { Cluster } from '../mongo/cluster.ts'
import { readConfig } from '../mongo/config-database.ts'

/**
 * What a cluster's config servers say of its distribution, read through mongos
 * (https://www.mongodb.com/docs/manual/reference/config-database/).
 */

export interface Distribution {
  name: string
  /** As latin1 text. */
  uuid: string
  key: ShardKey
  /** A reshardCollection is under way: it ends in a collection with another UUID. */
  resharding: boolean
}

/** The sharded collections of a database, or of all; empty for a replica set. */
export async function readDistributions(cluster: Cluster, database?: string): Promise<Distribution[]> {
  if (!cluster.sharded) return []
  // From "name." up to "name/", the character after the dot: by the index on _id, without a pattern.
  const range = database === undefined ? {} : { _id: { $gte: `${database}.`, $lt: `${database}/` } }
  const found = await readConfig(cluster, 'collections', range)
  return found.flatMap((bytes) => {
    const fields = readFields(bytes)
    const uuid = fieldNamed(fields, 'uuid')
    const key = fieldNamed(fields, 'key')
    if (uuid?.[0] !== bsonType.binary || !key) return []
    return [
      {
        name: stringOf(fieldNamed(fields, '_id')) ?? '',
        uuid: uuid.latin1Slice(6),
        key: toShardKey(readFields(embedded(key))),
        resharding: fieldNamed(fields, 'reshardingFields') !== undefined,
      },
    ]
  })
}

export interface Placement {
  database: string
  /** The shard that holds the database's collections that are not sharded. */
  primary: string
  /** Changes with each movePrimary, as text; the part before the colon when the database was dropped and made anew. */
  version: string
}

/** Where databases live; empty for a replica set. */
export async function readPlacements(cluster: Cluster, database?: string): Promise<Placement[]> {
  if (!cluster.sharded) return []
  const reply = await cluster.read('config', {
    find: 'databases',
    filter: database === undefined ? {} : { _id: database },
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
    const birth = uuid ? new UUID(uuid.buffer).toHexString() : String(timestamp ?? '')
    return { database: found['_id'] as string, primary: found['primary'] as string, version: `${birth}:${lastMod}` }
  })
}

/** More than any cluster has. */
const databasesMax = 100_000
