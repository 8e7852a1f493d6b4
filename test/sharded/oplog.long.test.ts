import type { Timestamp } from 'mongodb'
import { MongoClient } from 'mongodb'
import { expect, it, vi } from 'vitest'
import { metricsOf } from '../support/metrics-of.ts'
import { canCommit, ShardedPair } from '../support/sharded-pair.ts'

/** The oplogs of a sharded source are those of its shards, and the one that reaches back least counts, also while PAUSED. */

/** Oplogs are cut at checkpoints, each second here. */
const pair = new ShardedPair({ oplogSizeMB: 16, extraArgs: ['--syncdelay', '1'] }, { shards: 1 })
/** tandem looks at the oplogs once a minute. */
const soon = { timeout: 180_000, interval: 200 }

it('how long the sync may stand still is what the shard with the shortest oplog leaves', async () => {
  await pair.sourceClient.db('app').collection('things').insertOne({ n: 1 })
  const tandem = await pair.startSync()
  await canCommit(tandem)
  const remaining = async () => (await metricsOf(tandem.url)).get('tandem_oplog_remaining_seconds')
  await vi.waitFor(async () => expect((await metricsOf(tandem.url)).get('tandem_oplog_visible')).toBe(1), soon)
  // None has ever been full.
  expect(await remaining()).toBeUndefined()
  expect(await tandem.post('pause')).toMatchObject({ status: 200 })

  // One collection lives on one shard: its oplog alone is filled, and rolls over what is not applied.
  const big = 'x'.repeat(200_000)
  const filler = pair.sourceClient.db('app').collection<{ _id: number; big: string }>('fill')
  const fill = async (documents: number): Promise<void> => {
    for (let at = 0; at < documents; at++) {
      await filler.replaceOne({ _id: at % 5 }, { big: `${at}${big}` }, { upsert: true })
    }
  }
  await fill(200)
  const overtaken = async (): Promise<void> => {
    // It is cut only while there is something to add.
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
  // The other shard still has everything.
  expect(new Set(begins).size).toBe(2)
})
