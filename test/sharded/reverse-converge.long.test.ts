import { setTimeout as sleep } from 'node:timers/promises'
import { MongoClient } from 'mongodb'
import { expect, test } from 'vitest'
import { canCommit, commit } from '../support/commits.ts'
import { compareBoth } from '../support/compare-both.ts'
import { failPoint } from '../support/fail-point.ts'
import { convergencesOf, loseShardHistory } from '../support/lost-history.ts'
import { type Row, rowsOf } from '../support/rows.ts'
import { ShardedPair, shardedCollection } from '../support/sharded-pair.ts'

/**
 * The new source has documents for which its oplogs have no events, because one oplog no longer reaches back to the commit, or
 * because the server has cloned collections. A reversal then converges.
 */

const pair = new ShardedPair({}, { oplogSizeMB: 16, extraArgs: ['--syncdelay', '1'] })
const documents = Array.from({ length: 300 }, (_, _id): Row => ({ _id, k: _id % 40, z: _id }))

test('facts 2.5: a reversal between sharded clusters converges under writes if an oplog no longer reaches back to the commit', async () => {
  const { source, destination, sourceClient, destinationClient } = pair
  const admin = destinationClient.db('admin')
  for (const name of ['changed', 'dropped', 'rekeyed']) {
    await (await shardedCollection(source, sourceClient, name, { k: 1 }, [20])).insertMany(documents)
  }
  await rowsOf(sourceClient, 'plain').insertMany(documents)
  const tandem = await pair.startSync({ reversible: true, enableUserWriteBlocking: 'sourceAndDestination' })
  await commit(tandem)
  await pair.expectEqual()

  await admin.command({ balancerStop: 1 })
  for (const name of ['changed', 'plain']) {
    const there = rowsOf(destinationClient, name)
    await there.insertMany(Array.from({ length: 50 }, (_, at): Row => ({ _id: 1_000 + at, k: at % 40, z: -at })))
    await there.deleteMany({ _id: { $gte: 50, $lt: 100 } })
  }
  await rowsOf(destinationClient, 'dropped').drop()
  await rowsOf(destinationClient, 'rekeyed').createIndex({ z: 1 })
  await admin.command({ reshardCollection: 'app.rekeyed', key: { z: 1 }, numInitialChunks: 2 })
  await (await shardedCollection(destination, destinationClient, 'created', { k: 'hashed' })).insertMany(documents)
  await loseShardHistory(destination)

  // Users write while the reversal converges.
  const changed = rowsOf(destinationClient, 'changed')
  const ended = new AbortController()
  const writing = (async () => {
    for (let at = 0; !ended.signal.aborted; at++) {
      await changed.updateOne({ _id: `written ${at % 20}`, k: 7 }, { $inc: { times: 1 } }, { upsert: true })
      await changed.deleteOne({ _id: `written ${(at + 10) % 20}`, k: 7 })
      await sleep(5)
    }
  })()
  try {
    expect(await tandem.post('reverse')).toEqual({ status: 200, body: { success: true } })
    await canCommit(tandem)
  } finally {
    ended.abort()
    await writing
  }
  expect(await convergencesOf(sourceClient)).toBe(1)
  await commit(tandem)
  expect((await compareBoth(destination.uri, pair.sourceUri)).differences).toEqual([])
})

test('a reversal between sharded clusters converges the collections that movePrimary has cloned since the commit', async () => {
  const { destination, sourceClient, destinationClient } = pair
  await (await shardedCollection(pair.source, sourceClient, 'keyed', { k: 1 }, [20])).insertMany(documents)
  await rowsOf(sourceClient, 'plain').insertMany(documents)
  const tandem = await pair.startSync({ reversible: true, enableUserWriteBlocking: 'sourceAndDestination' })
  await commit(tandem)
  const admin = destinationClient.db('admin')
  const { primary } = (await destinationClient
    .db('config')
    .collection('databases')
    .findOne({ _id: 'app' as never })) as unknown as {
    primary: string
  }
  const other = destination.shards.find(({ name }) => name !== primary)
  await admin.command({ movePrimary: 'app', to: other?.name })
  await rowsOf(destinationClient, 'plain').updateOne({ _id: 1 }, { $set: { z: -1 } })
  expect(await tandem.post('reverse')).toEqual({ status: 200, body: { success: true } })
  await canCommit(tandem)
  expect(await convergencesOf(sourceClient)).toBe(1)
  await commit(tandem)
  expect((await compareBoth(destination.uri, pair.sourceUri)).differences).toEqual([])
})

test('a reversal is refused while either cluster reshards a collection, and converges the resharded collection later', async () => {
  const { source, destination, sourceClient, destinationClient } = pair
  for (const name of ['left', 'right']) {
    const collection = await shardedCollection(source, sourceClient, name, { k: 1 }, [20])
    await collection.insertMany(documents)
    await collection.createIndex({ z: 1 })
  }
  const tandem = await pair.startSync({ reversible: true, enableUserWriteBlocking: 'sourceAndDestination' })
  await commit(tandem)

  const cases = [
    { cluster: destination, client: destinationClient, name: 'right', on: 'cluster1', ends: true },
    { cluster: source, client: sourceClient, name: 'left', on: 'cluster0', ends: false },
  ]
  for (const { cluster, client, name, on, ends } of cases) {
    await using config = await MongoClient.connect(cluster.config.uri)
    await using paused = await failPoint(config, 'reshardingPauseCoordinatorBeforeBlockingWrites', {})
    const admin = client.db('admin')
    // The server does not begin a resharding while writes are blocked.
    if (!ends) await admin.command({ setUserWriteBlockMode: 1, global: false })
    const resharded = admin
      .command({ reshardCollection: `app.${name}`, key: { z: 1 }, numInitialChunks: 2 })
      .catch((error: unknown) => error)
    const tracked = client.db('config').collection('collections', { readConcern: { level: 'majority' } })
    const inProgress = { _id: `app.${name}`, reshardingFields: { $exists: true } } as never
    await expect.poll(() => tracked.countDocuments(inProgress), { timeout: 30_000 }).toBe(1)
    expect(await tandem.post('reverse')).toMatchObject({
      status: 422,
      body: {
        success: false,
        error: 'UnsupportedCollection',
        errorDescription: expect.stringMatching(new RegExp(`app\\.${name} on ${on} is being resharded`)),
      },
    })
    expect((await tandem.progress()).state).toBe('COMMITTED')
    // If this resharding completed, the former source would count as changed, so it is aborted. The abort waits for the fail point.
    const abort = { _configsvrAbortReshardCollection: `app.${name}`, writeConcern: { w: 'majority' } }
    const aborted = ends ? null : config.db('admin').command(abort)
    await paused.release()
    await Promise.all([resharded, aborted])
    if (!ends) await admin.command({ setUserWriteBlockMode: 1, global: true })
  }
  await rowsOf(destinationClient, 'right').insertOne({ _id: 'after', k: 1, z: 5 })
  expect(await tandem.post('reverse')).toEqual({ status: 200, body: { success: true } })
  // tandem reads the event of the completed resharding on the new source, and converges the collection.
  await expect.poll(() => convergencesOf(sourceClient), { timeout: 60_000 }).toBeGreaterThan(0)
  await commit(tandem)
  expect((await compareBoth(destination.uri, pair.sourceUri)).differences).toEqual([])
})
