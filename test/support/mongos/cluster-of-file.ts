import { MongoClient, type MongoClientOptions } from 'mongodb'
import { afterAll, beforeAll } from 'vitest'
import { type ShardedCluster, type ShardedClusterOptions, startShardedCluster } from '../sharded-cluster.ts'

export interface ClusterOfFile {
  cluster: ShardedCluster
  /** Client of the mongos. */
  client: MongoClient
  /** Clients of the individual shards. */
  shardClients: MongoClient[]
}

/**
 * Provides one cluster for a test file. Tests use separate databases to be independent. The fields are set before the
 * first test.
 */
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

/** Shards a collection over both shards. Keys `k` of at least 100 are on the second one. */
export async function shardInTwo({ client, cluster }: ClusterOfFile, namespace: string): Promise<void> {
  const admin = client.db('admin')
  const [database] = namespace.split('.')
  await admin.command({ enableSharding: database, primaryShard: cluster.shards[0]?.name })
  await admin.command({ shardCollection: namespace, key: { k: 1 } })
  await cluster.split(namespace, { k: 100 })
  await cluster.moveChunk(namespace, { k: 100 }, 1)
}

/** Returns the number of documents on each shard. */
export async function countsByShard({ shardClients }: ClusterOfFile, namespace: string): Promise<number[]> {
  const [database = '', collection = ''] = namespace.split('.')
  return await Promise.all(shardClients.map((shard) => shard.db(database).collection(collection).countDocuments()))
}
