import { expect, test } from 'vitest'
import { canCommit, commit } from '../support/commits.ts'
import { ShardedPair, shardedCollection } from '../support/sharded-pair.ts'

/** The shards of both clusters have the same names. */
const pair = new ShardedPair({ name: 'zoned' }, { name: 'zoned' })

test('the destination has the zones of the source before the copy, and exactly these zones after the commit', async () => {
  const { source, sourceClient, destinationClient } = pair
  const admin = sourceClient.db('admin')
  await admin.command({ enableSharding: 'app', primaryShard: source.shards[0]?.name })
  const things = await shardedCollection(source, sourceClient, 'things', { k: 1 }, [20])
  await things.insertMany(Array.from({ length: 400 }, (_, k) => ({ _id: k, k })))
  const other = source.shards[1]?.name
  await admin.command({ addShardToZone: other, zone: 'upper' })
  const range = (min: number, max: number, zone: string | null) =>
    admin.command({ updateZoneKeyRange: 'app.things', min: { k: min }, max: { k: max }, zone })
  await range(200, 400, 'upper')

  const tandem = await pair.startSync()
  await canCommit(tandem)
  const ranges = () =>
    destinationClient
      .db('config')
      .collection('tags')
      .find({}, { projection: { _id: 0 } })
      .sort({ min: 1 })
      .toArray()
  expect(await ranges()).toEqual([{ ns: 'app.things', min: { k: 200 }, max: { k: 400 }, tag: 'upper' }])
  expect((await pair.spread('things'))[1]).toBeGreaterThanOrEqual(200)

  await range(200, 400, null)
  await range(100, 300, 'upper')
  await commit(tandem)
  expect(await ranges()).toEqual([{ ns: 'app.things', min: { k: 100 }, max: { k: 300 }, tag: 'upper' }])
  await pair.expectEqual()
})
