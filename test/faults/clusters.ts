import { loadBulk } from '../support/load-bulk.ts'
import { type ReplicaSet, type ReplicaSetOptions, startReplicaSet } from '../support/replica-set.ts'
import { type ShardedCluster, type ShardedClusterOptions, startShardedCluster } from '../support/sharded-cluster.ts'
import type { SteppedClock } from '../support/stepped-clock.ts'

/** A cluster of a migration. Only a replica set has `hosts`. */
type Endpoint = Pick<ReplicaSet, 'uri'> & Partial<Pick<ReplicaSet, 'hosts'>>

export interface Clusters {
  source: Endpoint
  destination: Endpoint
}

export interface Pair extends AsyncDisposable {
  source: ReplicaSet
  destination: ReplicaSet
}

export interface ShardedClusters extends AsyncDisposable {
  source: ShardedCluster
  destination: ShardedCluster
}

export interface PairOptions extends ReplicaSetOptions {
  /** Clock of the destination's servers. The source keeps the real clock. */
  destinationClock?: SteppedClock
  /** Number of documents in the source's database `bulk`, which no run empties. */
  bulk?: number
}

/** The database that `PairOptions.bulk` fills. */
export const bulkDatabase = 'bulk'

export async function startPair({ destinationClock, bulk = 0, ...both }: PairOptions = {}): Promise<Pair> {
  const pair = await startBoth(
    startReplicaSet(both),
    startReplicaSet(destinationClock ? { ...both, clock: destinationClock } : both),
  )
  try {
    if (bulk > 0) await loadBulk(pair.source.uri, bulkDatabase, bulk)
    return pair
  } catch (error) {
    await pair[Symbol.asyncDispose]()
    throw error
  }
}

export async function startShardedClusters(
  source: ShardedClusterOptions = {},
  destination: ShardedClusterOptions = {},
): Promise<ShardedClusters> {
  return await startBoth(startShardedCluster(source), startShardedCluster(destination))
}

/**
 * Returns the cluster with a connection string that makes the driver use all routers. The driver uses every server
 * whose latency is within this threshold of the fastest server's.
 */
export function throughAll(cluster: ShardedCluster): ShardedCluster {
  return { ...cluster, uri: `${cluster.uri}?localThresholdMS=60000` }
}

/** Starts both clusters. If one of them does not start, the other is stopped. */
async function startBoth<Cluster extends { stop(): Promise<void> }>(
  ...starting: [source: Promise<Cluster>, destination: Promise<Cluster>]
): Promise<{ source: Cluster; destination: Cluster } & AsyncDisposable> {
  const stopAll = async (): Promise<void> => {
    const results = await Promise.allSettled(starting)
    await Promise.all(results.map((result) => (result.status === 'fulfilled' ? result.value.stop() : null)))
  }
  try {
    const [source, destination] = await Promise.all(starting)
    return { source, destination, [Symbol.asyncDispose]: stopAll }
  } catch (error) {
    await stopAll()
    throw error
  }
}
