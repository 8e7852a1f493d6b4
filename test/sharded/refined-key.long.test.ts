import { expect, test } from 'vitest'
import { expectAccepted, startInstances } from '../support/instances.ts'
import { rowsOf } from '../support/rows.ts'
import { ShardedPair, shardedCollection } from '../support/sharded-pair.ts'

/**
 * On the source, the shard key `_id` is refined. 6.0 emits no event for that, and several instances refine the key on the
 * destination only at the commit. Until then the shard key of the destination is `_id`, but the source may have documents with
 * the same `_id` on several shards, and may move a document between shards.
 */

const pair = new ShardedPair({}, {})
const last = 40
let rounds = 0

/** Syncs `app.things` with two instances and without the verifier. The test itself has to detect lost documents. */
async function refined(change: (things: ReturnType<typeof rowsOf>) => Promise<void>) {
  const { source, sourceClient: client } = pair
  const admin = client.db('admin')
  await admin.command({ balancerStop: 1 })
  await admin.command({ enableSharding: 'app', primaryShard: source.shards[0]?.name })
  const things = await shardedCollection(source, client, 'things', { _id: 1 }, [last / 2])
  await things.insertMany(Array.from({ length: last }, (_, _id) => ({ _id, k: _id < last / 2 ? 80 : 10 })))
  await things.createIndex({ _id: 1, k: 1 })
  const instances = await startInstances(['a', 'b'], { cluster0: pair.sourceUri, cluster1: pair.destinationUri })
  try {
    await instances.allReach(() => true, 'an answer')
    const body = { source: 'cluster0', destination: 'cluster1', verification: { enabled: false } }
    expectAccepted(await instances.post('start', { ...body, enableUserWriteBlocking: 'none' }))
    await instances.allReach((progress) => progress.canCommit, 'ready to commit')

    await admin.command({ refineCollectionShardKey: 'app.things', key: { _id: 1, k: 1 } })
    await change(things)
    return instances
  } catch (error) {
    await instances.stop()
    throw error
  }
}

/** Inserts so many documents that each lane of each partition probably gets one, and waits until all of them are applied. */
async function untilApplied(things: ReturnType<typeof rowsOf>): Promise<void> {
  const round = rounds++
  const ids = Array.from({ length: 200 }, (_, at) => `round ${round}: ${at}`)
  await things.insertMany(ids.map((_id) => ({ _id, k: 0 })))
  const there = rowsOf(pair.destinationClient, 'things')
  await expect.poll(() => there.countDocuments({ _id: { $in: ids } }), { timeout: 30_000 }).toBe(ids.length)
}

test('a document that moves between shards after its key was refined is not deleted on the destination', async () => {
  await using instances = await refined(async (things) => {
    // Split the chunks between values of k for the same `_id`, so that documents with k of 50 or more are on the other shard.
    for (const _id of [3, 30]) {
      const here = _id < last / 2 ? 0 : 1
      await pair.source.split('app.things', { _id, k: 50 })
      await pair.source.split('app.things', { _id: _id + 1, k: 0 })
      await pair.source.moveChunk('app.things', { _id, k: 80 }, 1 - here)
      // The delete event and the insert event have the same cluster time. The stream orders them by the document key, so the
      // insert event comes first for one of the two documents.
      const [from, to] = here === 0 ? [80, 10] : [10, 80]
      await things.updateOne({ _id, k: from }, { $set: { k: to, moved: true } })
    }
    const moved = async (collection: typeof things) =>
      (
        await collection
          .find({ _id: { $in: [3, 30] } })
          .sort({ _id: 1 })
          .toArray()
      ).map(({ _id, k }) => [_id, k])
    const expected = [
      [3, 10],
      [30, 80],
    ]
    expect(await moved(things)).toEqual(expected)
    await expect
      .poll(() => moved(rowsOf(pair.destinationClient, 'things')), { timeout: 20_000 })
      .not.toEqual([
        [3, 80],
        [30, 10],
      ])
    await untilApplied(things)
    await untilApplied(things)
    expect(await moved(rowsOf(pair.destinationClient, 'things'))).toEqual(expected)
  })
  expectAccepted(await instances.post('commit'))
  await instances.allReach(({ state }) => state === 'COMMITTED', 'COMMITTED')
  await pair.expectEqual()
})

test('a second document with the same _id, which the refined key allows, fails the sync and does not replace the first one', async () => {
  await using instances = await refined(async (things) => {
    await pair.source.split('app.things', { _id: 3, k: 50 })
    await pair.source.split('app.things', { _id: 4, k: 0 })
    await pair.source.moveChunk('app.things', { _id: 3, k: 80 }, 1)
    await things.insertOne({ _id: 3, k: 10 })
  })
  // The instance that applies the event fails. The other instance continues with its own partitions.
  const failures = async () => {
    const all = await Promise.all([...instances.members.values()].map((tandem) => tandem.progress()))
    return all.flatMap(({ failure }) => failure?.error ?? [])
  }
  await expect.poll(failures, { timeout: 30_000 }).toEqual(['DuplicateDocumentId'])
  const kept = await rowsOf(pair.destinationClient, 'things').find({ _id: 3 }).toArray()
  expect(kept.map(({ k }) => k)).toEqual([80])
})
