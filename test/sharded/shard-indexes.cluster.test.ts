import { type Document, MongoClient } from 'mongodb'
import { expect, test } from 'vitest'
import { canCommit, commit } from '../support/commits.ts'
import { compareBoth } from '../support/compare-both.ts'
import { failPoint } from '../support/fail-point.ts'
import { rowsOf } from '../support/rows.ts'
import type { Shard } from '../support/sharded-cluster.ts'
import { ShardedPair } from '../support/sharded-pair.ts'

/** The router sends createIndexes to each shard by itself, and listIndexes only to the shard of the first chunk. */

const pair = new ShardedPair('replicaSet')

const sharding = {
  createSupportingIndexes: false,
  shardingEntries: [{ database: 'app', collection: 'things', shardCollection: { key: [{ k: 1 }] } }],
}

/** Returns the shards of the destination. The first one is the shard that answers listIndexes. */
async function shardsInOrder(): Promise<[Shard, Shard]> {
  const config = pair.destinationClient.db('config')
  const { uuid } = (await config
    .collection<Document>('collections')
    .findOne({ _id: 'app.things' as never })) as Document
  const owners = await config.collection('chunks').distinct('shard', { uuid })
  expect(owners).toHaveLength(2)
  const [first] = await config.collection('chunks').find({ uuid }).sort({ min: 1 }).limit(1).toArray()
  const of = (isFirst: boolean): Shard =>
    pair.destination.shards.find(({ name }) => (name === first?.['shard']) === isFirst) as Shard
  return [of(true), of(false)]
}

async function indexOn({ uri }: Shard, name: string): Promise<Document | undefined> {
  await using client = await MongoClient.connect(uri)
  return (await rowsOf(client, 'things').indexes()).find((index) => index['name'] === name)
}

test('tandem builds a unique index that only one shard has on the other shard too, and the index is unique on both', async () => {
  const rows = rowsOf(pair.sourceClient, 'things')
  await rows.insertMany(Array.from({ length: 400 }, (_, _id) => ({ _id, k: _id, u: _id })))
  await rows.createIndex({ k: 1 })
  const tandem = await pair.startSync({ sharding })
  await canCommit(tandem)
  const [first, other] = await shardsInOrder()
  await using direct = await MongoClient.connect(other.uri)
  const failing = { failCommands: ['createIndexes'], errorCode: 10_107, failInternalCommands: true }
  const point = await failPoint(direct, 'failCommand', failing, { times: 1 })
  await rows.createIndex({ k: 1, u: 1 }, { unique: true })
  await point.reached()
  await expect.poll(() => indexOn(first, 'k_1_u_1'), { timeout: 60_000 }).toBeDefined()
  await commit(tandem)
  expect(await Promise.all([first, other].map((shard) => indexOn(shard, 'k_1_u_1')))).toEqual([
    expect.objectContaining({ unique: true }),
    expect.objectContaining({ unique: true }),
  ])
  await pair.expectEqual({ 'app.things': '{"k":1}' })

  // Somebody drops the index on one shard after the commit.
  await rowsOf(direct, 'things').dropIndex('k_1_u_1')
  const compared = await compareBoth(pair.sourceUri, pair.destinationUri, { shardKeys: { 'app.things': '{"k":1}' } })
  // Both the comparison of the tests and `tandem verify` report the difference.
  expect(compared.differences).toEqual([expect.stringContaining(other.name), expect.stringContaining(other.name)])
})
