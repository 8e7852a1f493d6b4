import { MinKey } from 'mongodb'
import { expect, test } from 'vitest'
import { canCommit, commit } from '../support/commits.ts'
import { compareBoth } from '../support/compare-both.ts'
import { rowsOf } from '../support/rows.ts'
import { ShardedPair } from '../support/sharded-pair.ts'

/** `shardingEntries` together with `namespaceRemap`, from a replica set to a sharded cluster. */

const pair = new ShardedPair('replicaSet')

test('shardingEntries use the names of collections on the source, and zones use the names on the destination', async () => {
  const { sourceClient, destinationClient, destination } = pair
  const [hashed, zoned] = ['hashed', 'zoned'].map((name) => rowsOf(sourceClient, name))
  await hashed?.createIndex({ k: 'hashed' })
  await zoned?.createIndex({ r: 1, k: 'hashed' })
  const rows = Array.from({ length: 300 }, (_, _id) => ({ _id, k: _id, r: _id % 2 ? 'east' : 'west' }))
  for (const collection of [hashed, zoned]) await collection?.insertMany(rows)
  const entry = (collection: string, shardCollection: object) => ({ database: 'app', collection, shardCollection })
  const body = {
    namespaceRemap: [{ from: { database: 'app' }, to: { database: 'store' } }],
    includeNamespaces: [{ database: 'app' }],
    sharding: {
      shardingEntries: [
        entry('hashed', { key: [{ k: 'hashed' }], numInitialChunks: 6 }),
        entry('zoned', { key: [{ r: 1 }, { k: 'hashed' }], presplitHashedZones: true }),
      ],
    },
  }
  const tandem = await pair.startTandem()
  const start = async () => await tandem.post('start', { source: 'cluster0', destination: 'cluster1', ...body })
  expect((await start()).body).toMatchObject({
    error: 'InvalidRequest',
    errorDescription: expect.stringContaining('no zone ranges for store.zoned (on the source: app.zoned)'),
  })
  const admin = destinationClient.db('admin')
  await admin.command({ addShardToZone: destination.shards[0]?.name, zone: 'west' })
  const range = {
    updateZoneKeyRange: 'store.zoned',
    ...{ min: { r: 'west', k: new MinKey() }, max: { r: 'x', k: new MinKey() } },
  }
  await admin.command({ ...range, zone: 'west' })
  expect((await start()).body).toMatchObject({ success: true })
  await canCommit(tandem)
  await hashed?.insertOne({ _id: 1_000, k: 1 })
  await commit(tandem)
  const compared = await compareBoth(pair.sourceUri, pair.destinationUri, {
    renamed: { app: 'store' },
    shardKeys: { 'app.hashed': '{"k":"hashed"}', 'app.zoned': '{"r":1,"k":"hashed"}' },
  })
  expect(compared.differences).toEqual([])
  await pair.expectOwned()
  await admin.command({ ...range, zone: null })
  await admin.command({ removeShardFromZone: destination.shards[0]?.name, zone: 'west' })
})
