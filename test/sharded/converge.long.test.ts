import type { MongoClient } from 'mongodb'
import { describe, expect, test } from 'vitest'
import { canCommit, commit } from '../support/commits.ts'
import { expectAccepted, startInstances } from '../support/instances.ts'
import { convergencesOf } from '../support/lost-history.ts'
import { Random } from '../support/random.ts'
import { type Row, rowsOf } from '../support/rows.ts'
import { ShardedPair, start } from '../support/sharded-pair.ts'
import { ShardedWorkload } from '../support/sharded-workload.ts'

/** Sharded destinations converge under a random workload that moves documents and chunks between shards. */

const names = ['ranged', 'dotted', 'hashedField', 'withId', 'hashedId', 'plain']

/** Changes about a fifth of the documents of a collection on the destination, including their shard keys. */
async function corrupt(client: MongoClient, name: string, random: Random): Promise<void> {
  const there = rowsOf(client, name)
  for (const one of await there.find().toArray()) {
    if (!random.chance(0.2)) continue
    const moved: Row = { ...one, k: random.int(0, 40), a: { b: random.int(0, 40) } }
    const change = random.pick<() => Promise<unknown>>([
      () => there.deleteMany({ _id: one._id }),
      () => there.updateMany({ _id: one._id }, { $set: { corrupt: true } }),
      () => there.deleteMany({ _id: one._id }).then(() => there.insertOne(moved)),
      // Insert another document with this _id. The server refuses the insert if both documents belong to one shard.
      () => there.insertOne(moved).catch(() => {}),
      () => there.insertOne({ ...moved, _id: `extra ${one._id}` }),
    ])
    await change()
  }
}

describe('a sync from two shards to two', () => {
  const pair = new ShardedPair({}, {})

  test('by two instances ends equal after resyncs under a workload, while chunks move and the coordinator is killed', async () => {
    const workload = new ShardedWorkload(pair.sourceUri, pair.source, 'resync')
    const random = new Random('resync')
    const moving = new AbortController()
    const instances = await startInstances(['a', 'b'], { cluster0: pair.sourceUri, cluster1: pair.destination.uri })
    const ready = () => instances.allReach((progress) => progress.canCommit, 'canCommit', 120)
    try {
      await instances.allReach(({ state }) => state === 'IDLE', 'IDLE')
      await workload.create()
      const body = { source: 'cluster0', destination: 'cluster1', enableUserWriteBlocking: 'none' }
      expectAccepted(await instances.post('start', body))
      await ready()
      const moves = workload.pingPong(200, moving.signal)
      const namespaces = names.map((collection) => ({ database: 'app', collection }))
      for (let round = 0; round < 3; round++) {
        for (const name of names) await corrupt(pair.destinationClient, name, random)
        const coordinator = await instances.coordinator()
        expect(await coordinator.post('resync', { namespaces })).toMatchObject({ status: 200 })
        await workload.run(40)
        if (round === 1) {
          const [id] = [...instances.members].find(([, one]) => one === coordinator) ?? ['']
          await instances.kill9(id)
          await instances.start(id)
        }
        await workload.run(40)
        await ready()
      }
      moving.abort()
      await moves
      await ready()
      expectAccepted(await instances.post('commit'))
      await instances.allReach(({ state }) => state === 'COMMITTED', 'COMMITTED', 120)
      await pair.expectEqual()
      expect(await convergencesOf(pair.destinationClient)).toBe(3)
      expect(workload.counts['moveChunk']).toBeGreaterThan(0)
    } finally {
      moving.abort()
      await instances.stop()
      await workload.close()
    }
  })
})

describe('a sync from a replica set to two shards', () => {
  const pair = new ShardedPair('replicaSet', {})

  test('begins on a destination with an older copy, and makes it equal under a workload, a resync and a kill', async () => {
    const workload = new ShardedWorkload(pair.sourceUri, null, 'older copy')
    const random = new Random('older copy')
    const { destination, destinationClient, sourceClient } = pair
    const orders = { database: 'app', collection: 'orders', shardCollection: { key: [{ k: 1 }] } }
    const shardingEntries = [...ShardedWorkload.shardingEntries, orders]
    const sharding = { shardingEntries, createSupportingIndexes: false }
    try {
      await workload.create()
      const admin = destinationClient.db('admin')
      await admin.command({ enableSharding: 'app', primaryShard: destination.shards[0]?.name })
      await rowsOf(sourceClient, 'orders').createIndex({ k: 1 })
      await rowsOf(sourceClient, 'orders').insertMany(Array.from({ length: 100 }, (_, _id) => ({ _id, k: _id % 40 })))
      for (const { collection, shardCollection } of ShardedWorkload.shardingEntries) {
        const key = Object.assign({}, ...shardCollection.key)
        await admin.command({ shardCollection: `app.${collection}`, key })
        const isRanged = Object.values(key)[0] === 1
        const middle = Object.fromEntries(Object.keys(key).map((field, at) => [field, at === 0 ? 20 : 0]))
        if (isRanged) await destination.split(`app.${collection}`, middle)
        if (isRanged) await destination.moveChunk(`app.${collection}`, middle, 1)
      }
      for (const name of names) {
        await rowsOf(destinationClient, name).insertMany(await rowsOf(sourceClient, name).find().toArray())
        await corrupt(destinationClient, name, random)
      }
      let tandem = await pair.startTandem()
      const options = { sharding, existingData: 'converge', enableUserWriteBlocking: 'none' }
      expect(await start(tandem, options)).toMatchObject({ status: 200, body: { success: true } })
      await workload.run(60)
      await tandem.kill9()
      tandem = await pair.startTandem()
      await workload.run(40)
      await canCommit(tandem)
      for (const name of names) await corrupt(destinationClient, name, random)
      // The collection keeps its shard key when it is renamed.
      await sourceClient.db('app').renameCollection('orders', 'renamed')
      const renamed = rowsOf(destinationClient, 'renamed')
      await expect.poll(() => renamed.countDocuments(), { timeout: 30_000 }).toBe(100)
      await renamed.drop()
      const namespaces = [...names, 'renamed'].map((collection) => ({ database: 'app', collection }))
      expect(await tandem.post('resync', { namespaces })).toMatchObject({ status: 200 })
      await workload.run(40)
      await commit(tandem)
      await pair.expectEqual({ ...ShardedWorkload.shardKeys, 'app.renamed': JSON.stringify({ k: 1 }) })
    } finally {
      await workload.close()
    }
  })
})
