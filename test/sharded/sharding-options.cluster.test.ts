import { MinKey } from 'mongodb'
import { expect, test } from 'vitest'
import { canCommit, commit } from '../support/commits.ts'
import { rowsOf } from '../support/rows.ts'
import { ShardedPair } from '../support/sharded-pair.ts'

/** The start request of a sync from a replica set to a sharded cluster contains options of shardCollection. */

const pair = new ShardedPair('replicaSet')

test('collections are sharded with the options of the request while they are copied and changed', async () => {
  const [unique, hashed, zoned] = ['unique', 'hashed', 'zoned'].map((name) => rowsOf(pair.sourceClient, name))
  await unique?.createIndex({ k: 1 }, { unique: true })
  await hashed?.createIndex({ k: 'hashed' })
  await zoned?.createIndex({ r: 1, k: 'hashed' })
  const documents = Array.from({ length: 300 }, (_, _id) => ({ _id, k: _id, r: _id % 2 ? 'east' : 'west' }))
  for (const collection of [unique, hashed, zoned]) await collection?.insertMany(documents)
  const admin = pair.destinationClient.db('admin')
  await admin.command({ addShardToZone: pair.destination.shards[0]?.name, zone: 'west' })
  const [min, max] = [
    { r: 'west', k: new MinKey() },
    { r: 'x', k: new MinKey() },
  ]
  await admin.command({ updateZoneKeyRange: 'app.zoned', min, max, zone: 'west' })
  const entry = (collection: string, shardCollection: object) => ({ database: 'app', collection, shardCollection })
  const shardingEntries = [
    entry('unique', { key: [{ k: 1 }], unique: true }),
    entry('hashed', { key: [{ k: 'hashed' }], numInitialChunks: 6 }),
    entry('zoned', { key: [{ r: 1 }, { k: 'hashed' }], presplitHashedZones: true }),
  ]
  const tandem = await pair.startSync({ sharding: { createSupportingIndexes: false, shardingEntries } })
  // Two documents exchange their values. In between, the destination may have one of the values twice.
  for (const [_id, k] of [
    [1, -1],
    [2, 1],
    [1, 2],
  ] as const)
    await unique?.updateOne({ _id }, { $set: { k } })
  await canCommit(tandem)
  await unique?.insertOne({ _id: 'late', k: 1_000 })
  await commit(tandem)
  await pair.expectEqual({
    'app.unique': '{"k":1} unique',
    'app.hashed': '{"k":"hashed"}',
    'app.zoned': '{"r":1,"k":"hashed"}',
  })
  expect(await chunksOf('hashed')).toBe(6)
  expect(await chunksOf('zoned')).toBeGreaterThan(2)
  await admin.command({ updateZoneKeyRange: 'app.zoned', min, max, zone: null })
  await admin.command({ removeShardFromZone: pair.destination.shards[0]?.name, zone: 'west' })
})

async function chunksOf(name: string): Promise<number> {
  const config = pair.destinationClient.db('config')
  const found = await config.collection<{ _id: string; uuid: unknown }>('collections').findOne({ _id: `app.${name}` })
  return await config.collection('chunks').countDocuments({ uuid: found?.uuid })
}
