import { MongoClient } from 'mongodb'
import { expect, it } from 'vitest'
import type { Finding } from '../../src/domain/finding.ts'
import { ShardedPair, shardedCollection } from '../support/sharded-pair.ts'
import type { Tandem } from '../support/tandem-process.ts'

const pair = new ShardedPair({}, {})

async function check(tandem: Tandem): Promise<Finding[]> {
  const { status, body } = await tandem.post('check', { source: 'cluster0', destination: 'cluster1' })
  expect([status, body.success]).toEqual([200, true])
  return body['findings'] as Finding[]
}

it('check of sharded clusters reports an index that only one shard has, and an _id that two shards have', async () => {
  // Both shards must hold documents of the collection.
  const primaryShard = pair.source.shards[0]?.name
  await pair.sourceClient.db('admin').command({ enableSharding: 'app', primaryShard })
  const things = await shardedCollection(pair.source, pair.sourceClient, 'things', { k: 1 }, [20])
  await things.insertMany(Array.from({ length: 40 }, (_, i) => ({ _id: i, k: i })))
  await things.createIndex({ a: 1 }, { name: 'on all' })
  const tandem = await pair.startTandem()
  expect(await check(tandem)).toEqual([])
  await using shard = await MongoClient.connect(pair.source.shards[0]?.uri as string)
  await shard.db('app').collection('things').createIndex({ b: 1 }, { name: 'on one' })
  const found = await check(tandem)
  expect(found.filter(({ severity }) => severity === 'warning')).toMatchObject([
    { name: 'InconsistentIndex', namespace: 'app.things', message: expect.stringContaining('on one') },
  ])
  await things.insertOne({ _id: 3, k: 30 })
  expect(await check(tandem)).toMatchObject([
    { name: 'InconsistentIndex' },
    { severity: 'warning', name: 'DuplicateDocumentId', namespace: 'app.things' },
  ])
})
