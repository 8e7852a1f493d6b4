import { expect, test } from 'vitest'
import { canCommit, commit, rows, ShardedPair, shardedCollection } from '../support/sharded-pair.ts'

const pair = new ShardedPair({}, {})

test('a committed sync between sharded clusters is reversed, and each balancer returns to its former mode', async () => {
  const { source, sourceClient, destinationClient } = pair
  for (const client of [sourceClient, destinationClient]) await client.db('admin').command({ balancerStart: 1 })
  const things = await shardedCollection(source, sourceClient, 'things', { k: 1 }, [20])
  await things.createIndex({ k: 1, u: 1 }, { unique: true })
  await things.insertMany(Array.from({ length: 200 }, (_, i) => ({ _id: i, k: i % 40, u: i })))
  const tandem = await pair.startSync({ reversible: true, enableUserWriteBlocking: 'sourceAndDestination' })
  await canCommit(tandem)
  expect(await balancerOf(destinationClient)).toBe('off')
  await commit(tandem)
  await pair.expectEqual()
  expect(await balancerOf(destinationClient)).toBe('full')

  const there = rows(destinationClient, 'things')
  await there.insertOne({ _id: 'written after', k: 33, u: 1 })
  await there.deleteMany({ _id: { $in: [1, 2, 3] } })
  await destinationClient.db('app').collection('new').insertOne({ x: 1 })
  expect(await tandem.post('reverse')).toEqual({ status: 200, body: { success: true } })
  await canCommit(tandem)
  await there.insertOne({ _id: 'written later', k: 3, u: 2 })
  await commit(tandem)
  await pair.expectEqual()
  expect(await balancerOf(sourceClient)).toBe('full')
})

async function balancerOf(client: typeof pair.sourceClient): Promise<string> {
  return (await client.db('admin').command({ balancerStatus: 1 }))['mode']
}
