import { type Document, MongoClient } from 'mongodb'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { CopyEnds } from '../../src/apply/copy-ends.ts'
import { convergeSegment } from '../../src/copy/converge-segment.ts'
import { SegmentProgress } from '../../src/copy/segment-progress.ts'
import { listCollections } from '../../src/definitions/listing.ts'
import { DocumentWriter } from '../../src/documents/write-identities.ts'
import { Catalog, type CatalogEntry, newEntry, type Segment } from '../../src/domain/catalog.ts'
import type { Cluster } from '../../src/mongo/cluster.ts'
import { readFacts } from '../../src/mongo/identity.ts'
import { Metadata } from '../../src/mongo/metadata.ts'
import { appendOplogNote } from '../../src/mongo/oplog-note.ts'
import { Throttle } from '../../src/throttle/throttle.ts'
import { type TestContext, testCluster, testContext } from '../mongo/clusters.ts'
import { emptyCluster } from '../support/empty-cluster.ts'
import { type ShardedCluster, startShardedCluster } from '../support/sharded-cluster.ts'

/**
 * Both collections have the shard key {k: 1}, whose chunks from 50 on are on the second shard. They are in one sharded
 * cluster: `wanted` is the source's collection, and `things` the destination's.
 */
describe('converging a collection whose shard key is not _id', () => {
  let sharded: ShardedCluster
  let cluster: Cluster
  let client: MongoClient
  let context: TestContext
  let metadata: Metadata
  let entry: CatalogEntry

  interface Row extends Document {
    _id: number
    k: number
  }
  const rows = (name: string) => client.db('app').collection<Row>(name)
  const stored = (name: string) => rows(name).find().sort({ _id: 1, k: 1 }).toArray()
  const documents = Array.from({ length: 400 }, (_, _id): Row => ({ _id, k: _id % 100 }))

  beforeAll(async () => {
    sharded = await startShardedCluster()
    cluster = testCluster(sharded.uri, 'converge-keyed')
    await readFacts(cluster)
    client = new MongoClient(sharded.uri)
  })
  afterAll(async () => {
    await Promise.all([cluster?.close(), client?.close()])
    await sharded?.stop()
  })
  beforeEach(async () => {
    await emptyCluster(client)
    context = testContext()
    metadata = new Metadata(cluster, context)
    await client.db('admin').command({ enableSharding: 'app', primaryShard: sharded.shards[0]?.name })
    for (const name of ['wanted', 'things']) {
      await client.db('admin').command({ shardCollection: `app.${name}`, key: { k: 1 } })
      await sharded.split(`app.${name}`, { k: 50 })
      await sharded.moveChunk(`app.${name}`, { k: 50 }, 1)
      await rows(name).insertMany(documents)
    }
    const [wanted] = await listCollections(cluster, 'app', 'wanted')
    const [things] = await listCollections(cluster, 'app', 'things')
    if (!wanted || !things) throw new Error('not created')
    entry = {
      ...newEntry('app', wanted, { options: wanted.options, indexes: [] }, 'copying'),
      name: 'things',
      destinationUUID: things.uuid,
      converging: true,
      planned: true,
      shardKey: [{ path: 'k', hashed: false }],
    }
    await metadata.collections.save([entry])
  })

  /** Converges the whole collection, and then ends the copy as the owners of all partitions do. */
  async function converge(): Promise<void> {
    await appendOplogNote(cluster, 'test')
    const segment: Segment = {
      ...{
        collection: entry.uuid,
        ordinal: 0,
        priority: 0,
        from: null,
        to: null,
        last: null,
        natural: null,
        done: false,
      },
      ...{ documents: 0, bytes: 0, wasOwn: false, claim: 1, attempts: 0 },
    }
    await metadata.segments.plan([segment])
    await metadata.segments.open([entry.uuid])
    await metadata.segments.claim('copier#1', segment.claim, 1, () => false)
    let order = 0
    const nextOrder = (count: number): number => {
      order += count
      return order - count
    }
    const progress = new SegmentProgress(metadata.segments, 'copier#1')
    const sides = { source: cluster, destination: cluster, metadata, context, nextOrder }
    const parts = { ...sides, progress, throttle: new Throttle(3), startTime: cluster.latest, isKnown: () => true }
    await convergeSegment({ ...parts, progressed: () => {}, locate: async () => true }, entry, segment)
    await progress.close()
    const catalog = new Catalog()
    catalog.add(entry)
    const writer = new DocumentWriter(cluster, async () => false)
    const reconciled = { source: cluster, destination: cluster, metadata, writer, context, nextOrder }
    const partitions = new Map([[0, { epoch: 1 }]])
    const ends = { source: cluster, metadata, catalog, documents: reconciled, partitions, partitionCount: 1 }
    await new CopyEnds({ ...ends, shared: false }).reconcile(entry)
  }

  it('leaves exactly one document for each _id of the source, with its shard key', async () => {
    const things = rows('things')
    await things.deleteMany({ _id: { $in: [1, 60] } })
    await things.updateOne({ _id: 2, k: 2 }, { $set: { other: true } })
    await things.insertMany([
      { _id: 1_000, k: 10 },
      { _id: 1_000, k: 90 },
    ])
    // Replace documents by some with another shard key, on the same shard and on the other shard.
    await things.deleteMany({ _id: { $in: [3, 4] } })
    await things.insertMany([
      { _id: 3, k: 30 },
      { _id: 4, k: 99 },
    ])
    // Besides the correct document, insert another one with its _id on the other shard.
    await things.insertMany([
      { _id: 5, k: 95 },
      { _id: 70, k: 7 },
      { _id: 399, k: 9 },
    ])
    await converge()
    expect(await stored('things')).toEqual(documents)
  })

  it('copies a range that is empty on the destination, and records nothing', async () => {
    await rows('things').deleteMany({})
    await converge()
    expect(await stored('things')).toEqual(documents)
    expect(entry.hasTombstones).toBe(false)
  })

  it('does not copy orphans, and waits until the shard has deleted an orphan that has the _id of a document', async () => {
    const direct = await MongoClient.connect(sharded.shards[0]?.uri ?? '')
    try {
      for (const name of ['wanted', 'things']) {
        // This shard does not own the chunk of this shard key.
        await direct.db('app').collection<Row>(name).insertOne({ _id: 2_000, k: 80, in: name })
      }
      await rows('things').deleteOne({ _id: 1, k: 1 })
      const stale = direct.db('app').collection<Row>('things')
      await stale.insertOne({ _id: 1, k: 80, is: 'an orphan' })
      const converging = converge()
      converging.catch(() => {}) // it is awaited below
      await expect
        .poll(() => context.retried.map(({ error }) => String(error)).join(), { timeout: 30_000 })
        .toContain('orphaned')
      await stale.deleteOne({ _id: 1, k: 80 })
      await converging
    } finally {
      await direct.close()
    }
    expect(await stored('things')).toEqual(documents)
  })

  it('makes documents with the same _id on two shards equal, if the destination has both, one or none of them', async () => {
    const twice = (_id: number): Row[] => [7, 77].map((k) => ({ _id, k }))
    await rows('wanted').insertMany([501, 502, 503, 504].flatMap(twice))
    await rows('things').insertMany([...twice(501), { _id: 502, k: 77 }, { _id: 504, k: 78 }, { _id: 505, k: 7 }])
    await converge()
    expect(await stored('things')).toEqual(await stored('wanted'))
    expect(await rows('things').countDocuments({ _id: { $gt: 500 } })).toBe(8)
  })
})
