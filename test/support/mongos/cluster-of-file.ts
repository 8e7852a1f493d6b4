import { MongoClient, type MongoClientOptions } from 'mongodb'
import { afterAll, beforeAll } from 'vitest'
import { type ShardedCluster, type ShardedClusterOptions, startShardedCluster } from '../sharded-cluster.ts'

export interface ClusterOfFile {
  cluster: ShardedCluster
  /** Through the mongos. */
  client: MongoClient
  /** Of each shard alone. */
  shardClients: MongoClient[]
}

/** One cluster for a test file; tests keep out of each other's way by databases of their own. Filled in before the first. */
export function clusterOfFile(
  options: ShardedClusterOptions = {},
  clientOptions: MongoClientOptions = {},
): ClusterOfFile {
  const context = {} as ClusterOfFile
  beforeAll(async () => {
    const cluster = await startShardedCluster(options)
    const client = new MongoClient(cluster.uri, clientOptions)
    Object.assign(context, { cluster, client, shardClients: cluster.shards.map(({ uri }) => new MongoClient(uri)) })
  })
  afterAll(async () => {
    await Promise.all([context.client, ...(context.shardClients ?? [])].map((client) => client?.close()))
    await context.cluster?.stop()
  })
  return context
}

/** A collection on both shards: keys `k` from 100 on are on the second. */
export async function shardInTwo({ client, cluster }: ClusterOfFile, namespace: string): Promise<void> {
  const admin = client.db('admin')
  const [database] = namespace.split('.')
  await admin.command({ enableSharding: database, primaryShard: cluster.shards[0]?.name })
  await admin.command({ shardCollection: namespace, key: { k: 1 } })
  await cluster.split(namespace, { k: 100 })
  await cluster.moveChunk(namespace, { k: 100 }, 1)
}

/** How many documents each shard holds. */
export async function countsByShard({ shardClients }: ClusterOfFile, namespace: string): Promise<number[]> {
  const [database = '', collection = ''] = namespace.split('.')
  return await Promise.all(shardClients.map((shard) => shard.db(database).collection(collection).countDocuments()))
}
