import { expect, test } from 'vitest'
import { commit } from '../support/commits.ts'
import { rowsOf } from '../support/rows.ts'
import { ShardedPair } from '../support/sharded-pair.ts'

/** With a sharded destination, an index that the shard key needs exists before the copy, also with `excludeHashedAfterCopy`. */

const pair = new ShardedPair('replicaSet')

const documents = Array.from({ length: 300 }, (_, _id) => ({ _id, k: _id % 40, h: `${_id}`, n: _id }))
const sharding = {
  createSupportingIndexes: false,
  shardingEntries: [
    { database: 'app', collection: 'hashed', shardCollection: { key: [{ h: 'hashed' }] } },
    { database: 'app', collection: 'ranged', shardCollection: { key: [{ k: 1 }] } },
  ],
}

async function names(collection: string): Promise<unknown[]> {
  return (await rowsOf(pair.destinationClient, collection).indexes()).map(({ name }) => name).sort()
}

test('excludeHashedAfterCopy builds the hashed index of the shard key under its name on the source, and no other hashed index', async () => {
  for (const collection of ['hashed', 'ranged']) await rowsOf(pair.sourceClient, collection).insertMany(documents)
  await rowsOf(pair.sourceClient, 'hashed').createIndexes([
    { key: { h: 'hashed' }, name: 'by h' },
    { key: { n: 'hashed' }, name: 'by n' },
    { key: { n: 1 }, name: 'plain' },
  ])
  await rowsOf(pair.sourceClient, 'ranged').createIndexes([
    { key: { k: 1, n: 1 }, name: 'by k' },
    { key: { n: 'hashed' }, name: 'by n' },
    { key: { n: -1 }, name: 'plain', unique: false },
  ])
  const tandem = await pair.startSync({ buildIndexes: 'excludeHashedAfterCopy', sharding })
  await commit(tandem)
  expect(await names('hashed')).toEqual(['_id_', 'by h', 'plain'])
  expect(await names('ranged')).toEqual(['_id_', 'by k', 'plain'])
  expect(await rowsOf(pair.destinationClient, 'hashed').countDocuments()).toBe(documents.length)
})
