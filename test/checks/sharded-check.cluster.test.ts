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
  // Both shards must have documents of the collection.
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
    {
      severity: 'warning',
      name: 'DuplicateDocumentId',
      namespace: 'app.things',
      message: expect.stringContaining('they stay different documents if'),
    },
  ])
})

it('check of a sharded source reports _ids on two shards that are equal under the collation, although the shard key is _id', async () => {
  const db = pair.sourceClient.db('app')
  await db.createCollection('folded', { collation: { locale: 'en', strength: 2 } })
  const folded = db.collection<{ _id: string }>('folded')
  await folded.createIndex({ _id: 'hashed' }, { collation: { locale: 'simple' } })
  const key = { _id: 'hashed' }
  await pair.sourceClient.db('admin').command({ shardCollection: 'app.folded', key, collation: { locale: 'simple' } })
  const lower = Array.from({ length: 20 }, (_, i) => ({ _id: `name ${i}` }))
  await folded.insertMany(lower)
  const ofFolded = async (): Promise<Finding[]> =>
    (await check(await pair.startTandem())).filter(({ namespace }) => namespace === 'app.folded')
  expect(await ofFolded()).toEqual([])
  // Each shard refuses a document if an equal _id is on the same shard.
  const upper = lower.map(({ _id }) => ({ _id: _id.toUpperCase() }))
  await expect(folded.insertMany(upper, { ordered: false })).rejects.toMatchObject({ code: 11000 })
  expect(await ofFolded()).toMatchObject([
    { severity: 'warning', name: 'DuplicateDocumentId', message: expect.stringContaining('the copy would end') },
  ])
})
