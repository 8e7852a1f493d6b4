import { Double, Long } from 'mongodb'
import { afterEach, expect, test } from 'vitest'
import { listCollections } from '../../src/definitions/listing.ts'
import { newEntry } from '../../src/domain/catalog.ts'
import { sampleHash } from '../../src/mongo/document-hash.ts'
import { testCluster } from '../mongo/clusters.ts'
import { canCommit, commit } from '../support/commits.ts'
import { type Row, rowsOf } from '../support/rows.ts'
import { ShardedPair, shardedCollection, start } from '../support/sharded-pair.ts'
import { compareBy } from '../verify/compare-by.ts'

/** A first pass by hashes between sharded clusters, whose shards may have several documents with one `_id`. */

const pair = new ShardedPair({}, {})
const opened: AsyncDisposable[] = []
afterEach(async () => {
  for (const one of opened.splice(0)) await one[Symbol.asyncDispose]()
})

function clusterOf(uri: string, name: string) {
  const cluster = testCluster(uri, name)
  // Without it, reads request no order, and routers return the documents of their shards in an arbitrary one.
  cluster.sharded = true
  opened.push({ [Symbol.asyncDispose]: () => cluster.close() })
  return cluster
}

test('the routers hash, and the first pass finds exactly the documents that differ on any shard', async () => {
  const { sourceClient, destinationClient } = pair
  const rows = Array.from({ length: 600 }, (_, _id): Row => ({ _id, k: _id % 40, v: new Double(_id / 8) }))
  // Documents with an `_id` that another shard has too.
  const twice = [7, 47, 87, 127].map((_id): Row => ({ _id, k: 39, v: 'second' }))
  for (const client of [sourceClient, destinationClient]) {
    const cluster = client === sourceClient ? pair.source : pair.destination
    await client.db('admin').command({ enableSharding: 'app', primaryShard: cluster.shards[0]?.name })
    await shardedCollection(cluster, client, 'rows', { k: 1 }, [20])
    await rowsOf(client, 'rows').insertMany([...rows, ...twice])
  }
  const clusters = {
    source: clusterOf(pair.sourceUri, 'source'),
    destination: clusterOf(pair.destinationUri, 'destination'),
  }
  expect(await sampleHash(clusters.source)).toBe(await sampleHash(clusters.destination))
  const [from, to] = await Promise.all(
    Object.values(clusters).map(async (cluster) => (await listCollections(cluster, 'app'))[0]),
  )
  if (!from || !to) throw new Error('app.rows does not exist on both clusters')
  const entry = { ...newEntry('app', from, { options: [], indexes: [] }, 'copied'), destinationUUID: to.uuid }
  const suspects = async () => {
    const found = (await compareBy(clusters, 'toHashedIndexKey', entry)).suspects
    return [...new Set(found.map((idElement) => idElement.readInt32LE(5)))].sort((one, other) => one - other)
  }
  expect(await suspects()).toEqual([])
  const there = rowsOf(destinationClient, 'rows')
  await there.deleteOne({ _id: 7, k: 39 })
  await there.updateOne({ _id: 47, k: 7 }, { $set: { v: new Double(1.5) } })
  await there.updateOne({ _id: 87, k: 39 }, { $set: { v: 'fourth' } })
  await there.insertOne({ _id: 9, k: 39, v: 'extra' })
  await there.updateOne({ _id: 200, k: 0 }, { $set: { v: Long.fromNumber(25) } })
  // 200 is a double of this value on the source, so only its type differs.
  expect(await suspects()).toEqual([7, 9, 47, 87])
})

test('a sync that compares hashes first commits', async () => {
  const { source, sourceClient } = pair
  await sourceClient.db('admin').command({ enableSharding: 'app', primaryShard: source.shards[0]?.name })
  const rows = await shardedCollection(source, sourceClient, 'rows', { k: 1 }, [20])
  await rows.insertMany(Array.from({ length: 600 }, (_, _id) => ({ _id, k: _id % 40 })))
  const tandem = await pair.startTandem()
  const request = {
    verification: { initialCompareMethod: 'toHashedIndexKey' },
    enableUserWriteBlocking: 'destinationOnly',
  }
  expect(await start(tandem, request)).toMatchObject({ status: 200, body: { warnings: [expect.any(String)] } })
  const { verification: progress } = await canCommit(tandem)
  expect(progress?.source.hashedDocumentCount).toBe(600)
  await commit(tandem)
  await pair.expectEqual()
})
