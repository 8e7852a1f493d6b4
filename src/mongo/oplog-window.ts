import type { Document, Timestamp } from 'mongodb'
import type { Cluster } from './cluster.ts'

/**
 * An oplog that uses less than this share of its maximum size has never been full. Its window will still grow, so its
 * current window is not a limit.
 */
const fullShare = 0.9

type Read = (database: string, command: Document) => Promise<Document>

/**
 * Seconds between the oldest and newest entry of a replica set's oplog. Infinite while the oplog has never been full.
 */
export async function oplogWindowOf(source: Cluster): Promise<number> {
  const read: Read = (database, command) => source.read(database, command)
  const oldest = await oldestOf(read)
  return (await edgeOf(read, -1)) - oldest
}

/**
 * The time, in seconds, since which the source's oplog is complete. For a sharded cluster it is the latest time of all
 * shards, because a sync fails as soon as one shard lacks an event. Minus infinity while no oplog has ever been
 * full. Rejects when one of them cannot be read. A router cannot read the oplog of a shard, so each shard is read over
 * its own connection, with the user and the options of the connection string. With access control, that user must also
 * exist on the shards (https://www.mongodb.com/docs/manual/core/sharded-cluster-shards/#shard-local-users).
 */
export async function oplogBegin(source: Cluster): Promise<number> {
  if (!source.sharded) return await oldestOf((database, command) => source.read(database, command))
  const { cursor } = await source.read('config', { find: 'shards', projection: { host: 1 } })
  const hosts = (cursor.firstBatch as { host: string }[]).map(({ host }) => host)
  return Math.max(...(await Promise.all(hosts.map((host) => source.onShard(host, oldestOf)))))
}

/** The time of the oldest entry of one oplog, in seconds. Minus infinity while this oplog has never been full. */
async function oldestOf(read: Read): Promise<number> {
  const pipeline = [
    { $collStats: { storageStats: {} } },
    { $project: { size: '$storageStats.size', maxSize: '$storageStats.maxSize' } },
  ]
  const reply = await read('local', { aggregate: 'oplog.rs', pipeline, cursor: {} })
  const [{ size = 0, maxSize = 0 } = {}] = reply['cursor'].firstBatch as { size?: number; maxSize?: number }[]
  if (Number(size) < fullShare * Number(maxSize)) return Number.NEGATIVE_INFINITY
  return await edgeOf(read, 1)
}

async function edgeOf(read: Read, order: 1 | -1): Promise<number> {
  const command = { find: 'oplog.rs', sort: { $natural: order }, limit: 1, projection: { ts: 1 }, singleBatch: true }
  const [entry] = (await read('local', command))['cursor'].firstBatch as { ts: Timestamp }[]
  return entry?.ts.getHighBitsUnsigned() ?? 0
}
