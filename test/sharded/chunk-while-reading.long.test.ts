import { setTimeout as delay } from 'node:timers/promises'
import { MongoClient } from 'mongodb'
import { expect, test } from 'vitest'
import { commit } from '../support/commits.ts'
import { ShardedPair, shardedCollection, start } from '../support/sharded-pair.ts'

/**
 * A chunk moves during a long read. The donor shard deletes the documents immediately, and the read may already have passed their
 * range on the recipient shard. For a cursor that was opened before the move and reads with chunk versions, the donor keeps the
 * documents.
 */

const KiB = 1024
/** These documents have 24 MB. With the limit of 1 MiB per second, cursors stay open for twenty seconds. */
const documents = Array.from({ length: 480 }, (_, _id) => ({ _id, k: _id % 40, text: 'x'.repeat(50 * KiB) }))
/** Within this time the donor would delete the documents that moved if it did not wait for the readers. */
const deletionMS = 6_000

const pair = new ShardedPair({ orphanCleanupDelaySecs: 0 }, {})

test('every document of a chunk that moves during the copy is copied', async () => {
  const { source, sourceClient: client } = pair
  const admin = client.db('admin')
  await admin.command({ balancerStop: 1 })
  await admin.command({ enableSharding: 'app', primaryShard: source.shards[0]?.name })
  const things = await shardedCollection(source, client, 'things', { k: 1 }, [20])
  // The chunk below k = 5 is small, so that it moves quickly.
  await source.split('app.things', { k: 5 })
  for (let from = 0; from < documents.length; from += 120) await things.insertMany(documents.slice(from, from + 120))

  const tandem = await pair.startTandem()
  const limit = async (bytesPerSecond: number | null): Promise<void> => {
    const body = JSON.stringify({ bytesPerSecond, readConcurrency: 1 })
    expect((await fetch(`${tandem.url}/api/v1/limits`, { method: 'PATCH', body })).status).toBe(200)
  }
  await limit(1024 * KiB)
  expect((await start(tandem)).status).toBe(200)
  await tandem.waitFor(({ collectionCopy }) => (collectionCopy?.estimatedCopiedBytes ?? 0) > 0, {
    timeoutSeconds: 60,
    what: 'copying',
  })
  await source.moveChunk('app.things', { k: 2 }, 1)
  expect((await tandem.progress()).info).toBe('collection copy')
  await using donor = await MongoClient.connect(source.shards[0]?.uri ?? '')
  const left = () =>
    donor
      .db('app')
      .collection('things')
      .countDocuments({ k: { $lt: 5 } })
  for (const until = Date.now() + deletionMS; Date.now() < until && (await left()) > 0; ) await delay(100)
  expect((await tandem.progress()).info).toBe('collection copy')
  await limit(null)
  await commit(tandem)
  await pair.expectEqual()
  await expect.poll(left, { timeout: 30_000 }).toBe(0)
})
