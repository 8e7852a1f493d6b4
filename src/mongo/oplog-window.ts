import type { Timestamp } from 'mongodb'
import type { Cluster } from './cluster.ts'
import { askShards, type ShardAnswer, type ShardRead } from './shard-connections.ts'

/**
 * An oplog that uses less than this share of its maximum size counts as never having been full. Its window will still
 * grow, so its current window is not a limit.
 */
const fullShare = 0.9

/**
 * Returns the seconds between the oldest and the newest entry of a replica set's oplog. The result is infinite while the
 * oplog has never been full.
 */
export async function oplogWindowOf(source: Cluster): Promise<number> {
  return await windowOf((database, command) => source.read(database, command))
}

/**
 * Does what `oplogWindowOf` does for each shard. It is for `check`, so it also reads from shards that have recently
 * refused the user. Rejects only when `config.shards` cannot be read.
 */
export function shardOplogWindows(source: Cluster): Promise<ShardAnswer<number>[]> {
  return askShards(source, windowOf, { retriesRefusedLogins: true })
}

/**
 * Returns the time, in seconds, from which on the source's oplog is complete. For a sharded cluster it is the latest such
 * time of all current shards, because a sync fails as soon as one shard lacks an event. Minus infinity while no oplog has
 * ever been full. Rejects when one of the oplogs cannot be read.
 *
 * The oplog of the config servers does not count. A router opens one more cursor there for each change stream, which
 * reports new shards, but it starts at the current time and not at the position from which the stream is resumed
 * (`shardRegistryReloadTime` in src/mongo/db/pipeline/sharded_agg_helpers.cpp). If that cursor is overtaken while it is
 * open, the stream is opened again from its position, which only the shards must still have.
 */
export async function oplogBegin(source: Cluster): Promise<number> {
  if (!source.sharded) return await oldestOf((database, command) => source.read(database, command))
  const oldest = (await askShards(source, oldestOf)).map((answer) => {
    if ('error' in answer) throw answer.error
    return answer.result
  })
  return Math.max(...oldest)
}

async function windowOf(read: ShardRead): Promise<number> {
  const oldest = await oldestOf(read)
  return (await edgeOf(read, -1)) - oldest
}

/** Returns the time of the oldest entry of one oplog, in seconds. Minus infinity while this oplog has never been full. */
async function oldestOf(read: ShardRead): Promise<number> {
  const pipeline = [
    { $collStats: { storageStats: {} } },
    { $project: { size: '$storageStats.size', maxSize: '$storageStats.maxSize' } },
  ]
  const reply = await read('local', { aggregate: 'oplog.rs', pipeline, cursor: {} })
  const [{ size = 0, maxSize = 0 } = {}] = reply['cursor'].firstBatch as { size?: number; maxSize?: number }[]
  if (Number(size) < fullShare * Number(maxSize)) return Number.NEGATIVE_INFINITY
  return await edgeOf(read, 1)
}

async function edgeOf(read: ShardRead, order: 1 | -1): Promise<number> {
  const command = { find: 'oplog.rs', sort: { $natural: order }, limit: 1, projection: { ts: 1 }, singleBatch: true }
  const [entry] = (await read('local', command))['cursor'].firstBatch as { ts: Timestamp }[]
  return entry?.ts.getHighBitsUnsigned() ?? 0
}
