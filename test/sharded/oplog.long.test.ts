import type { Timestamp } from 'mongodb'
import { MongoClient } from 'mongodb'
import { expect, it, vi } from 'vitest'
import { canCommit } from '../support/commits.ts'
import { metricsOf } from '../support/metrics-of.ts'
import { ShardedPair } from '../support/sharded-pair.ts'

/** The oplog window of a sharded source is the shortest window of its shards, also while PAUSED. */

/** The server truncates oplogs at checkpoints, which happen every second here. */
const pair = new ShardedPair({ oplogSizeMB: 16, extraArgs: ['--syncdelay', '1'] }, { shards: 1 })
/** tandem reads the oplogs once a minute. */
const soon = { timeout: 180_000, interval: 200 }

it('the shard with the shortest oplog window determines how long the sync may be paused', async () => {
  await pair.sourceClient.db('app').collection('things').insertOne({ n: 1 })
  const tandem = await pair.startSync()
  await canCommit(tandem)
  const remaining = async () => (await metricsOf(tandem.url)).get('tandem_oplog_remaining_seconds')
  await vi.waitFor(async () => expect((await metricsOf(tandem.url)).get('tandem_oplog_visible')).toBe(1), soon)
  // No oplog has been full yet.
  expect(await remaining()).toBeUndefined()
  expect(await tandem.post('pause')).toMatchObject({ status: 200 })

  // The collection is on one shard, so only that shard's oplog fills up and discards entries that are not applied.
  const big = 'x'.repeat(200_000)
  const filler = pair.sourceClient.db('app').collection<{ _id: number; big: string }>('fill')
  const fill = async (documents: number): Promise<void> => {
    for (let at = 0; at < documents; at++) {
      await filler.replaceOne({ _id: at % 5 }, { big: `${at}${big}` }, { upsert: true })
    }
  }
  await fill(200)
  const overtaken = async (): Promise<void> => {
    // The server truncates the oplog only while entries are added.
    await fill(10)
    expect(await remaining()).toBe(0)
  }
  await vi.waitFor(overtaken, { ...soon, interval: 1_000 })

  const begins = await Promise.all(
    pair.source.shards.map(async (shard) => {
      await using direct = await MongoClient.connect(shard.uri)
      const [first] = await direct.db('local').collection('oplog.rs').find().sort({ $natural: 1 }).limit(1).toArray()
      return first ? (first['ts'] as Timestamp).getHighBitsUnsigned() : 0
    }),
  )
  // The other shard's oplog still has all entries.
  expect(new Set(begins).size).toBe(2)
})
