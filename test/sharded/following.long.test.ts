import { describe, expect, test } from 'vitest'
import { expectAccepted, startInstances } from '../support/instances.ts'
import { canCommit, commit, failure, rows, ShardedPair, shardedCollection } from '../support/sharded-pair.ts'

const documents = Array.from({ length: 400 }, (_, i) => ({ _id: i, k: i % 40, z: i }))

describe('what changes on a sharded source while it is synced', () => {
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
    // What the chunk left behind, on a shard that is still asked, is as it was: read, it would undo this.
    await things.deleteMany({ k: { $gte: 10, $lt: 15 } })
    await things.updateMany({ k: { $gte: 15, $lt: 20 } }, { $set: { z: -1 } })
    await commit(await pair.startSync())
    await pair.expectEqual()
    expect(await rows(pair.destinationClient, 'things').countDocuments()).toBe(await things.countDocuments())
  })

  test('a collection becomes sharded, another is created sharded, and a key is refined', async () => {
    const { client, admin, things } = await prepared()
    const plain = rows(client, 'plain')
    await plain.insertMany(documents)
    await plain.createIndex({ z: 1 })
    const tandem = await pair.startSync()
    await canCommit(tandem)

    await admin.command({ shardCollection: 'app.plain', key: { z: 1 } })
    await pair.source.split('app.plain', { z: 200 })
    await pair.source.moveChunk('app.plain', { z: 300 }, 1)
    await plain.insertOne({ _id: 'late', z: 7 })
    const born = await shardedCollection(pair.source, client, 'born', { k: 1 }, [20])
    await born.insertMany(documents)
    await things.createIndex({ k: 1, z: 1 })
    await admin.command({ refineCollectionShardKey: 'app.things', key: { k: 1, z: 1 } })
    await things.dropIndex('k_1')
    await expect
      .poll(() => keyOf('things'), { timeout: 20_000 }) // 6.0.27 tells no event of it
      .toEqual({ k: 1, z: 1 })
    await things.updateOne({ _id: 5 }, { $set: { refined: true } })
    await commit(tandem)
    await pair.expectEqual()
  })

  test('a key that is refined right before the commit is refined as well', async () => {
    const { admin, things } = await prepared()
    const tandem = await pair.startSync()
    await canCommit(tandem)
    await things.createIndex({ k: 1, z: 1 })
    await admin.command({ refineCollectionShardKey: 'app.things', key: { k: 1, z: 1 } })
    await commit(tandem)
    await pair.expectEqual()
  })

  test('a collection that is resharded ends in a named failure', async () => {
    const { admin, things } = await prepared()
    await things.createIndex({ z: 1 })
    const tandem = await pair.startSync()
    await canCommit(tandem)
    await admin.command({ reshardCollection: 'app.things', key: { z: 1 }, numInitialChunks: 2 })
    expect(await failure(tandem)).toMatchObject({
      error: 'UnsupportedChange',
      errorDescription: expect.stringContaining('app.things'),
    })
  })

  test('sharded collections stay when the primary shard changes; one cloned by it ends in a named failure', async () => {
    const { client, admin, things } = await prepared()
    const tandem = await pair.startSync()
    await canCommit(tandem)
    const before = await placement()
    await admin.command({ movePrimary: 'app', to: pair.source.shards[1]?.name })
    await expect.poll(async () => (await placement())?.version !== before?.version, { timeout: 20_000 }).toBe(true)
    await things.insertOne({ _id: 'after', k: 1 })
    await rows(client, 'new').insertOne({ _id: 1 })
    await things.createIndex({ z: 1 })
    await expect.poll(() => rows(pair.destinationClient, 'new').countDocuments(), { timeout: 20_000 }).toBe(1)
    await admin.command({ movePrimary: 'app', to: pair.source.shards[0]?.name })
    expect(await failure(tandem)).toMatchObject({
      error: 'UnsupportedChange',
      errorDescription: expect.stringContaining('movePrimary'),
    })
  })

  test('several instances follow a changed primary shard as well, and do not take a later collection for a clone', async () => {
    const { client, admin, things } = await prepared()
    const instances = await startInstances(['a', 'b'], { cluster0: pair.source.uri, cluster1: pair.destination.uri })
    try {
      await instances.allReach(({ state }) => state === 'IDLE', 'IDLE')
      expectAccepted(await instances.post('start', { source: 'cluster0', destination: 'cluster1' }))
      await instances.allReach((progress) => progress.canCommit, 'ready to commit')
      const before = await placement()
      await admin.command({ movePrimary: 'app', to: pair.source.shards[1]?.name })
      await expect.poll(async () => (await placement())?.version !== before?.version, { timeout: 20_000 }).toBe(true)
      await rows(client, 'new').insertOne({ _id: 1 })
      await things.insertOne({ _id: 'after', k: 1 })
      await expect.poll(() => rows(pair.destinationClient, 'new').countDocuments(), { timeout: 20_000 }).toBe(1)
      await admin.command({ movePrimary: 'app', to: pair.source.shards[0]?.name })
      const failed = await instances.allReach(({ state }) => state === 'FAILED', 'FAILED')
      expect(failed.map((progress) => progress.failure)).toContainEqual({
        error: 'UnsupportedChange',
        errorDescription: expect.stringContaining('movePrimary'),
      })
    } finally {
      await instances.stop()
    }
  })

  test('one _id on two shards ends in a named failure, met by the copy or by an event', async () => {
    const { things } = await prepared()
    await things.insertOne({ _id: 'twice', k: 1 })
    const tandem = await pair.startSync()
    await canCommit(tandem)
    await things.insertOne({ _id: 'twice', k: 39 })
    await things.updateOne({ _id: 'twice', k: 39 }, { $set: { x: 1 } })
    const named = { error: 'DuplicateDocumentId', errorDescription: expect.stringContaining('app.things') }
    expect(await failure(tandem)).toMatchObject(named)
    await tandem.kill9()

    await pair.destinationClient.db('admin').command({ setUserWriteBlockMode: 1, global: false })
    await pair.destinationClient.db('app').dropDatabase()
    await pair.destinationClient.db('tandem_internal').dropDatabase()
    expect(await failure(await pair.startSync())).toMatchObject(named)
  })

  test('one _id inserted on a second shard, which its event tells whole, is not taken for the first one', async () => {
    const { things } = await prepared()
    await things.insertOne({ _id: 'twice', k: 1 })
    const tandem = await pair.startSync()
    await canCommit(tandem)
    await things.insertOne({ _id: 'twice', k: 39 })
    // Where the destination has both keys on one shard the event's application fails; else both stand, and the verdict does.
    await tandem.post('commit')
    expect(await failure(tandem)).toMatchObject({
      error: 'DuplicateDocumentId',
      errorDescription: expect.stringContaining('app.things'),
    })
  })

  /** Where the source has the database, as last looked at. */
  function placement(): Promise<{ version: string } | null> {
    const placements = pair.destinationClient
      .db('tandem_internal')
      .collection<{ _id: string; version: string }>('placements')
    return placements.findOne({ _id: 'app' })
  }

  async function keyOf(name: string): Promise<unknown> {
    const config = pair.destinationClient.db('config').collection<{ _id: string; key: unknown }>('collections')
    return (await config.findOne({ _id: `app.${name}` }))?.key
  }
})
