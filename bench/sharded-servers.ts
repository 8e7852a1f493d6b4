import { MongoClient } from 'mongodb'
import { startShardedClusters } from '../test/faults/clusters.ts'
import { distributeChunks, type ShardKeyPattern } from '../test/support/distribute-chunks.ts'
import type { ShardedCluster } from '../test/support/sharded-cluster.ts'
import { type Server, untilIdle } from './servers.ts'
import type { BenchOptions } from './tandem-run.ts'

/** Every shard has a cache of its own, and all shards and config servers share the memory of one machine. */
const cacheSizeGB = 0.25
/** Enough for what the runs of a section write to one shard. */
const oplogSizeMB = 1_024

/** A sharded cluster with one router. Everything that is compared reaches the cluster through this router. */
export interface ShardedServer extends Pick<Server, 'uri' | 'linkUri' | 'client'> {
  cluster: ShardedCluster
  /** The shards' processes, without the router and the config server. */
  pids: number[]
}

export interface ShardedServers extends AsyncDisposable {
  source: ShardedServer
  destination: ShardedServer
}

export async function startShardedServers({ shards }: Pick<BenchOptions, 'shards'>): Promise<ShardedServers> {
  const size = { shards, cacheSizeGB, oplogSizeMB }
  const clusters = await startShardedClusters(size, size)
  const clients: MongoClient[] = []
  const serverOf = async (cluster: ShardedCluster): Promise<ShardedServer> => {
    const client = new MongoClient(cluster.uri)
    clients.push(client)
    const pids = await Promise.all(cluster.shards.map((shard) => shard.primaryPid()))
    return { uri: cluster.uri, linkUri: cluster.uri, client, cluster, pids }
  }
  const stop = async (): Promise<void> => {
    await Promise.all(clients.map((client) => client.close()))
    await clusters[Symbol.asyncDispose]()
  }
  try {
    const [source, destination] = [await serverOf(clusters.source), await serverOf(clusters.destination)]
    return { source, destination, [Symbol.asyncDispose]: stop }
  } catch (error) {
    await stop()
    throw error
  }
}

/** Creates a sharded collection that has one chunk on each shard, with borders at equal distances from 0 to `end`. */
export async function createSharded(
  { client, cluster }: ShardedServer,
  [database, collection]: readonly [database: string, collection: string],
  key: ShardKeyPattern,
  end: number,
): Promise<void> {
  const admin = client.db('admin')
  const namespace = `${database}.${collection}`
  await admin.command({ enableSharding: database, primaryShard: cluster.shards[0]?.name })
  await admin.command({ shardCollection: namespace, key })
  // The server itself distributes a collection whose key is hashed.
  if (Object.values(key)[0] === 'hashed') return
  const { length } = cluster.shards
  const borders = Array.from({ length: length - 1 }, (_, at) => Math.round((end * (at + 1)) / length))
  await distributeChunks(cluster, namespace, key, borders)
}

/** Waits until a checkpoint of every shard holds all data and the shards are idle. */
export async function waitUntilShardsIdle({ source, destination }: ShardedServers): Promise<void> {
  for (const { uri } of [...source.cluster.shards, ...destination.cluster.shards]) {
    await using direct = await MongoClient.connect(uri)
    await direct.db('admin').command({ fsync: 1 })
  }
  await untilIdle([...source.pids, ...destination.pids])
}
