import { type Document, type Timestamp, UUID } from 'mongodb'
import { bsonType, embedded, fieldNamed, readFields, stringOf } from '../domain/raw-bson.ts'
import { type ShardKey, toShardKey } from '../domain/shard-key.ts'
import type { Cluster } from '../mongo/cluster.ts'
import { readConfig } from '../mongo/config-database.ts'

/**
 * Reads the distribution of a cluster's data from its config servers, through mongos
 * (https://www.mongodb.com/docs/manual/reference/config-database/).
 */

export interface Distribution {
  name: string
  /** 16 bytes as latin1 text. */
  uuid: string
  key: ShardKey
  /** A reshardCollection is in progress. It ends with a collection that has another UUID. */
  resharding: boolean
}

/** The sharded collections of one database, or of all databases; empty for a replica set. */
export async function readDistributions(cluster: Cluster, database?: string): Promise<Distribution[]> {
  if (!cluster.sharded) return []
  // The range from "name." up to "name/" ("/" follows "." in ASCII) uses the index on _id without a regular expression.
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
  /** The shard that holds the database's unsharded collections. */
  primary: string
  /** Text that changes with each movePrimary. The part before the colon changes when the database is created again. */
  version: string
}

/** The primary shards of one database, or of all databases; empty for a replica set. */
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

/** More databases than any cluster has. */
const databasesMax = 100_000
