import type { Timestamp } from 'mongodb'
import { MongoClient } from 'mongodb'
import { expect, it, vi } from 'vitest'
import type { Finding } from '../../src/domain/finding.ts'
import { canCommit } from '../support/commits.ts'
import { metricsOf } from '../support/metrics-of.ts'
import { failure, ShardedPair, start } from '../support/sharded-pair.ts'

/** The oplog window of a sharded source is the shortest window of its shards, also while PAUSED and FAILED. */

/** The servers truncate their oplogs at checkpoints, which run every second here. */
const pair = new ShardedPair({ oplogSizeMB: 16, extraArgs: ['--syncdelay', '1'] }, { shards: 1 })
/** tandem reads the oplogs once a minute. */
const soon = { timeout: 180_000, interval: 200 }

const big = 'x'.repeat(200_000)
async function fill(documents: number): Promise<void> {
  const filler = pair.sourceClient.db('app').collection<{ _id: number; big: string }>('fill')
  for (let at = 0; at < documents; at++) {
    await filler.replaceOne({ _id: at % 5 }, { big: `${at}${big}` }, { upsert: true })
  }
}

it('the shard with the shortest oplog window determines how long the sync may be paused', async () => {
  await pair.sourceClient.db('app').collection('things').insertOne({ n: 1 })
  const tandem = await pair.startSync()
  await canCommit(tandem)
  const remaining = async () => (await metricsOf(tandem.url)).get('tandem_oplog_remaining_seconds')
  await vi.waitFor(async () => expect((await metricsOf(tandem.url)).get('tandem_oplog_visible')).toBe(1), soon)
  // No oplog is full yet, so the remaining time is unknown.
  expect(await remaining()).toBeUndefined()
  expect(await tandem.post('pause')).toMatchObject({ status: 200 })

  // The collection is on one shard, so only the oplog of that shard fills up and discards entries that tandem has not applied.
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

it('check warns about the shard with the shortest oplog window, and progress shows the remaining time while FAILED', async () => {
  // The oplog of one shard is full since the previous test.
  await fill(10)
  const tandem = await pair.startTandem()
  const { body } = await tandem.post('check', { source: 'cluster0', destination: 'cluster1' })
  expect(body['findings'] as Finding[]).toMatchObject([
    {
      severity: 'warning',
      name: 'ShortOplogWindow',
      message: expect.stringMatching(/oplog of the shard \S+-shard\d of the source reaches back about 0\.\d hours/),
    },
  ])
  expect(await start(tandem)).toMatchObject({ status: 200 })
  await canCommit(tandem)
  await pair.sourceClient.db('app').createCollection('weather', { timeseries: { timeField: 'at' } })
  expect((await failure(tandem)).error).toBe('UnsupportedCollection')
  const { estimatedOplogTimeRemaining: left } = await tandem.waitFor(
    (progress) => progress.estimatedOplogTimeRemaining !== undefined,
    { timeoutSeconds: 30, what: 'the oplog time' },
  )
  expect(left).toBe('less than 15 minutes')
})
