import { MongoClient, type Timestamp } from 'mongodb'
import { expect, vi } from 'vitest'
import { metadataDatabase } from '../../src/domain/namespace.ts'
import type { ReplicaSetOptions } from './replica-set.ts'
import type { ShardedCluster } from './sharded-cluster.ts'
import type { Tandem } from './tandem-process.ts'

/**
 * Options of a source that takes a checkpoint each second. Each checkpoint truncates the oplog to the configured size.
 */
export const smallOplog = (oplogSizeMB: number): ReplicaSetOptions => ({
  oplogSizeMB,
  extraArgs: ['--syncdelay', '1', '--setParameter', 'writePeriodicNoops=false'],
})

const megabyte = 'x'.repeat(1_000_000)

/**
 * Writes until the source's oplog no longer reaches back to the time of the call.
 * @param server the server that has the oplog, if the source is a router
 */
export async function loseHistory(source: MongoClient, server = source): Promise<void> {
  const lost = await edgeOfOplog(server, -1)
  await writeUntil(source, async () => expect((await edgeOfOplog(server, 1)).greaterThan(lost)).toBe(true))
}

/** Writes until the oplog of the source's first shard no longer reaches back to the time of the call. */
export async function loseShardHistory({ uri, shards: [shard] }: ShardedCluster): Promise<void> {
  await using client = await MongoClient.connect(uri)
  await using direct = await MongoClient.connect(shard?.uri ?? '')
  await client.db('admin').command({ enableSharding: 'filler', primaryShard: shard?.name })
  await loseHistory(client, direct)
}

/** Writes until the source's oplog has its configured size. */
export async function fillOplog(source: MongoClient): Promise<void> {
  await writeUntil(source, async () => {
    const { size, maxSize } = await source.db('local').command({ collStats: 'oplog.rs' })
    expect(size).toBeGreaterThanOrEqual(maxSize)
  })
}

async function writeUntil(source: MongoClient, holds: () => Promise<void>): Promise<void> {
  const filler = source.db('filler').collection('filler')
  await vi.waitFor(
    async () => {
      await filler.insertMany(Array.from({ length: 4 }, () => ({ text: megabyte })))
      await holds()
    },
    { timeout: 120_000, interval: 20 },
  )
  await source.db('filler').dropDatabase()
}

async function edgeOfOplog(source: MongoClient, order: 1 | -1): Promise<Timestamp> {
  const oplog = source.db('local').collection('oplog.rs')
  const [edge] = await oplog.find().sort({ $natural: order }).limit(1).toArray()
  return edge?.['ts'] as Timestamp
}

/** Returns the number of convergences that were requested for the stored sync. */
export async function convergencesOf(destination: MongoClient): Promise<number> {
  const stored = await destination.db(metadataDatabase).collection('stages').findOne()
  return stored?.['context']?.convergences as number
}

export const failedForOplog = (tandem: Tandem) =>
  tandem.waitFor(({ state, failure }) => state === 'FAILED' && failure?.error === 'OplogWindowLost', {
    timeoutSeconds: 60,
    what: 'FAILED with OplogWindowLost',
  })
