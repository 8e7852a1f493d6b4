import { setTimeout as sleep } from 'node:timers/promises'
import { MongoClient } from 'mongodb'
import { describe, expect, test } from 'vitest'
import { metadataDatabase } from '../../src/domain/namespace.ts'
import { canCommit, commit, committed } from '../support/commits.ts'
import { failPoint } from '../support/fail-point.ts'
import { expectAccepted, startInstances } from '../support/instances.ts'
import { convergencesOf } from '../support/lost-history.ts'
import { rowsOf } from '../support/rows.ts'
import { failure, ShardedPair, shardedCollection } from '../support/sharded-pair.ts'

const documents = Array.from({ length: 400 }, (_, i) => ({ _id: i, k: i % 40, z: i }))

describe('changes on a sharded source during a sync', () => {
  const pair = new ShardedPair({ orphanCleanupDelaySecs: 3600 }, {})

  async function prepared() {
    const { source, sourceClient: client } = pair
    const admin = client.db('admin')
    await admin.command({ balancerStop: 1 })
    await admin.command({ enableSharding: 'app', primaryShard: source.shards[0]?.name })
    const things = await shardedCollection(source, client, 'things', { k: 1 }, [20])
    await things.insertMany(documents)
    return { client, admin, things }
  }

  test('orphans are not copied', async () => {
    const { things } = await prepared()
    await pair.source.split('app.things', { k: 10 })
    await pair.source.moveChunk('app.things', { k: 15 }, 1)
    expect(await pair.spread('things', pair.source)).toEqual([200, 300])
    // tandem still reads the shard with the orphaned documents. If it copied them, their former content would undo these changes.
    await things.deleteMany({ k: { $gte: 10, $lt: 15 } })
    await things.updateMany({ k: { $gte: 15, $lt: 20 } }, { $set: { z: -1 } })
    await commit(await pair.startSync())
    await pair.expectEqual()
    expect(await rowsOf(pair.destinationClient, 'things').countDocuments()).toBe(await things.countDocuments())
  })

  test('a collection becomes sharded, another is created sharded, and a key is refined', async () => {
    const { client, admin, things } = await prepared()
    const plain = rowsOf(client, 'plain')
    await plain.insertMany(documents)
    await plain.createIndex({ z: 1 })
    const tandem = await pair.startSync()
    await canCommit(tandem)

    await admin.command({ shardCollection: 'app.plain', key: { z: 1 } })
    await pair.source.split('app.plain', { z: 200 })
    await pair.source.moveChunk('app.plain', { z: 300 }, 1)
    await plain.insertOne({ _id: 'late', z: 7 })
    const created = await shardedCollection(pair.source, client, 'born', { k: 1 }, [20])
    await created.insertMany(documents)
    await things.createIndex({ k: 1, z: 1 })
    await admin.command({ refineCollectionShardKey: 'app.things', key: { k: 1, z: 1 } })
    await things.dropIndex('k_1')
    await expect
      .poll(() => keyOf('things'), { timeout: 20_000 }) // 6.0.27 emits no event for refineCollectionShardKey
      .toEqual({ k: 1, z: 1 })
    await things.updateOne({ _id: 5 }, { $set: { refined: true } })
    await commit(tandem)
    await pair.expectEqual()
  })

  test('a shard key that is refined right before the commit is refined on the destination', async () => {
    const { admin, things } = await prepared()
    const tandem = await pair.startSync()
    await canCommit(tandem)
    await things.createIndex({ k: 1, z: 1 })
    await admin.command({ refineCollectionShardKey: 'app.things', key: { k: 1, z: 1 } })
    await commit(tandem)
    await pair.expectEqual()
  })

  /** Writes to the collections until `stop` is called. The server refuses writes to a collection while it moves the collection. */
  function writing(...names: string[]): { stop: () => Promise<void> } & AsyncDisposable {
    const stopped = new AbortController()
    const written = (async () => {
      for (let at = 0; !stopped.signal.aborted; at++) {
        for (const name of names) {
          const collection = rowsOf(pair.sourceClient, name)
          await collection.insertOne({ _id: `written ${at}`, k: at % 40, z: -at }).catch(() => {})
          await collection.updateOne({ _id: at % 400 }, { $inc: { times: 1 } }).catch(() => {})
          await collection.deleteOne({ _id: (at * 7) % 400 }).catch(() => {})
        }
        await sleep(10)
      }
    })()
    const stop = async () => {
      stopped.abort()
      await written
    }
    return { stop, [Symbol.asyncDispose]: stop }
  }

  test('a collection that is resharded under writes converges, and canCommit is false until the resharding and the convergence have ended', async () => {
    const { client, admin, things } = await prepared()
    await things.createIndex({ z: 1 })
    await (await shardedCollection(pair.source, client, 'quiet', { k: 1 }, [20])).insertMany(documents)
    await rowsOf(client, 'quiet').createIndex({ z: 1 })
    const tandem = await pair.startSync({ enableUserWriteBlocking: 'none' })
    await canCommit(tandem)
    // Make reshardCollection wait before it blocks writes.
    await using config = await MongoClient.connect(pair.source.config.uri)
    await using paused = await failPoint(config, 'reshardingPauseCoordinatorBeforeBlockingWrites', {})
    const resharded = admin.command({ reshardCollection: 'app.things', key: { z: 1 }, numInitialChunks: 2 })
    await tandem.waitFor((progress) => !progress.canCommit, { timeoutSeconds: 30, what: 'canCommit is false' })
    expect(await tandem.post('commit')).toMatchObject({
      status: 409,
      body: { errorDescription: expect.stringContaining('app.things is being resharded') },
    })
    expect(await tandem.post('filter', { excludeNamespaces: [{ database: 'none' }] })).toMatchObject({
      status: 422,
      body: { error: 'UnsupportedCollection', errorDescription: expect.stringContaining('being resharded') },
    })
    await using writer = writing('things')
    await rowsOf(client, 'new').insertOne({ _id: 1 })
    await expect.poll(() => rowsOf(pair.destinationClient, 'new').countDocuments(), { timeout: 20_000 }).toBe(1)
    await paused.release()
    await resharded
    await admin.command({ reshardCollection: 'app.quiet', key: { z: 1 }, numInitialChunks: 2 })
    await things.insertOne({ _id: 'after', z: 5 })
    for (const name of ['things', 'quiet']) {
      await expect.poll(() => keyOf(name), { timeout: 60_000 }).toEqual({ z: 1 })
    }
    await writer.stop()
    await commit(tandem)
    await pair.expectEqual()
    expect(await rowsOf(pair.destinationClient, 'quiet').countDocuments()).toBe(400)
    expect(await convergencesOf(pair.destinationClient)).toBeGreaterThan(0)
  })

  test('after movePrimary, sharded collections stay as they are, and the collections that the server has cloned converge under writes', async () => {
    const { client, admin, things } = await prepared()
    const tandem = await pair.startSync({ enableUserWriteBlocking: 'none' })
    await canCommit(tandem)
    const before = await placement()
    await admin.command({ movePrimary: 'app', to: pair.source.shards[1]?.name })
    await expect.poll(async () => (await placement())?.version !== before?.version, { timeout: 20_000 }).toBe(true)
    await things.insertOne({ _id: 'after', k: 1 })
    for (const name of ['new', 'quiet']) await rowsOf(client, name).insertMany(documents)
    await things.createIndex({ z: 1 })
    await expect.poll(() => rowsOf(pair.destinationClient, 'new').countDocuments(), { timeout: 20_000 }).toBe(400)
    expect(await convergencesOf(pair.destinationClient)).toBe(0)
    await using writer = writing('new', 'things')
    await admin.command({ movePrimary: 'app', to: pair.source.shards[0]?.name })
    await expect.poll(() => convergencesOf(pair.destinationClient), { timeout: 30_000 }).toBeGreaterThan(0)
    await canCommit(tandem)
    await writer.stop()
    await commit(tandem)
    await pair.expectEqual()
    expect(await rowsOf(pair.destinationClient, 'quiet').countDocuments()).toBe(400)
  })

  test('several instances converge the collections that movePrimary has cloned, and do not mistake a later collection for a clone', async () => {
    const { client, admin, things } = await prepared()
    await things.createIndex({ z: 1 })
    const instances = await startInstances(['a', 'b'], { cluster0: pair.source.uri, cluster1: pair.destination.uri })
    try {
      await instances.allReach(({ state }) => state === 'IDLE', 'IDLE')
      const body = { source: 'cluster0', destination: 'cluster1', enableUserWriteBlocking: 'none' }
      expectAccepted(await instances.post('start', body))
      await instances.allReach((progress) => progress.canCommit, 'ready to commit')
      const before = await placement()
      await admin.command({ movePrimary: 'app', to: pair.source.shards[1]?.name })
      await expect.poll(async () => (await placement())?.version !== before?.version, { timeout: 20_000 }).toBe(true)
      await rowsOf(client, 'new').insertMany(documents)
      await things.insertOne({ _id: 'after', k: 1 })
      await expect.poll(() => rowsOf(pair.destinationClient, 'new').countDocuments(), { timeout: 20_000 }).toBe(400)
      expect(await convergencesOf(pair.destinationClient)).toBe(0)
      await using writer = writing('new', 'things')
      await admin.command({ movePrimary: 'app', to: pair.source.shards[0]?.name })
      await admin.command({ reshardCollection: 'app.things', key: { z: 1 }, numInitialChunks: 2 })
      await expect.poll(() => keyOf('things'), { timeout: 60_000 }).toEqual({ z: 1 })
      await writer.stop()
      await instances.allReach((progress) => progress.canCommit, 'ready to commit again', 120)
      expectAccepted(await instances.post('commit'))
      await instances.allReach(({ state }) => state === 'COMMITTED', 'COMMITTED', 120)
      await pair.expectEqual()
    } finally {
      await instances.stop()
    }
  })

  test('documents with the same _id on two shards are copied, changed, moved and deleted separately', async () => {
    const { things } = await prepared()
    await things.insertMany([1, 2, 3, 4, 5].flatMap((n) => [1, 39].map((k) => ({ _id: `twice ${n}`, k }))))
    const tandem = await pair.startSync()
    await canCommit(tandem)
    await things.updateOne({ _id: 'twice 1', k: 39 }, { $set: { x: 1 } })
    await things.replaceOne({ _id: 'twice 2', k: 1 }, { k: 1, x: 2 })
    await things.deleteOne({ _id: 'twice 3', k: 1 })
    await things.updateOne({ _id: 'twice 3', k: 39 }, { $set: { k: 2 } })
    await things.updateOne({ _id: 'twice 4', k: 39 }, { $set: { k: 38 } })
    await things.insertMany([1, 39].map((k) => ({ _id: 'new', k })))
    await things.updateMany({ _id: 'new' }, { $set: { x: 3 } })
    await commit(tandem)
    await pair.expectEqual()
    const twice = rowsOf(pair.destinationClient, 'things').countDocuments({ _id: { $in: ['twice 5', 'new'] } })
    expect(await twice).toBe(4)
  })

  test('documents with the same _id that belong to one shard of the destination fail the sync with a named error', async () => {
    const { things } = await prepared()
    const tandem = await pair.startSync()
    await canCommit(tandem)
    // Another program moves all chunks of the destination to one shard.
    const { shards } = pair.destination
    for (const k of [0, 39]) await pair.destination.moveChunk('app.things', { k }, 0).catch(() => {})
    expect(shards).toHaveLength(2)
    await things.insertMany([1, 39].map((k) => ({ _id: 'twice', k })))
    await tandem.post('commit')
    expect(await failure(tandem)).toMatchObject({
      error: 'DuplicateDocumentId',
      errorDescription: expect.stringMatching(/app\.things .*places two of them on one shard/),
    })
    expect(await rowsOf(pair.destinationClient, 'things').countDocuments({ _id: 'twice' })).toBe(1)
    await things.deleteOne({ _id: 'twice', k: 39 })
    expect(await tandem.post('resume')).toMatchObject({ status: 200 })
    await committed(tandem)
    await pair.expectEqual()
  })

  /** Returns the placement of the database on the source that tandem has stored after its last read of it. */
  function placement(): Promise<{ version: string } | null> {
    const placements = pair.destinationClient
      .db(metadataDatabase)
      .collection<{ _id: string; version: string }>('placements')
    return placements.findOne({ _id: 'app' })
  }

  async function keyOf(name: string): Promise<unknown> {
    const config = pair.destinationClient.db('config').collection<{ _id: string; key: unknown }>('collections')
    return (await config.findOne({ _id: `app.${name}` }))?.key
  }
})
