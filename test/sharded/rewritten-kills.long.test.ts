import { expect, test, vi } from 'vitest'
import { canCommit, commit } from '../support/commits.ts'
import { type Row, rowsOf } from '../support/rows.ts'
import { ShardedPair, shardedCollection, start } from '../support/sharded-pair.ts'
import { startTandem } from '../support/tandem-process.ts'

/**
 * The only instance crashes while it plans the convergence of the collections that movePrimary has cloned. Before the instance is
 * restarted, movePrimary clones these collections again, and reshardCollection rewrites another collection.
 */

const pair = new ShardedPair({}, {})
const documents = Array.from({ length: 400 }, (_, _id): Row => ({ _id, k: _id % 40, z: _id }))

test.each(['replanCollections', 'replanDefinitions', 'replanEnd'])(
  'an instance that is killed at %s continues by itself, and the clusters are equal',
  async (crashAt) => {
    const { source, sourceClient: client, destination, destinationClient } = pair
    const admin = client.db('admin')
    await admin.command({ balancerStop: 1 })
    await admin.command({ enableSharding: 'app', primaryShard: source.shards[0]?.name })
    const things = await shardedCollection(source, client, 'things', { k: 1 }, [20])
    await things.insertMany(documents)
    await things.createIndex({ z: 1 })
    for (const name of ['one', 'two']) await rowsOf(client, name).insertMany(documents)
    const clusters = { cluster0: pair.sourceUri, cluster1: destination.uri, id: 'a' }
    await using faulty = await startTandem({ ...clusters, faults: { crashAt } })
    await vi.waitFor(() => faulty.progress(), { timeout: 30_000 })
    expect(await start(faulty, { enableUserWriteBlocking: 'none' })).toMatchObject({ status: 200 })
    await canCommit(faulty)
    await admin.command({ movePrimary: 'app', to: source.shards[1]?.name })
    await vi.waitFor(() => expect(faulty.isRunning()).toBe(false), { timeout: 60_000 })
    // This movePrimary drops the clones that the instance has found. No instance has requested the convergence of the new clones
    // or of the resharded collection yet.
    await admin.command({ movePrimary: 'app', to: source.shards[0]?.name })
    await admin.command({ reshardCollection: 'app.things', key: { z: 1 }, numInitialChunks: 2 })
    await rowsOf(client, 'one').deleteMany({ _id: { $lt: 10 } })

    await using last = await startTandem(clusters)
    const one = rowsOf(destinationClient, 'one')
    await vi.waitFor(async () => expect(await one.countDocuments()).toBe(390), { timeout: 60_000 })
    await rowsOf(client, 'two').insertOne({ _id: 'after', k: 1 })
    await commit(last)
    await pair.expectEqual()
    expect(await rowsOf(destinationClient, 'two').countDocuments()).toBe(401)
  },
)
