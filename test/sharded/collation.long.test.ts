import { MinKey } from 'mongodb'
import { expect, test } from 'vitest'
import { metadataDatabase } from '../../src/domain/namespace.ts'
import { canCommit, commit } from '../support/commits.ts'
import { rowsOf } from '../support/rows.ts'
import { failure, ShardedPair, start } from '../support/sharded-pair.ts'

/**
 * Sharded collections with a collation of their own. The shard key uses the simple collation, and the `_id` index of each
 * shard uses that of the collection.
 */

const pair = new ShardedPair({}, {})
const collation = { locale: 'en', strength: 2 }
const keys = { ranged: { k: 1 }, hashed: { _id: 'hashed' }, withId: { _id: 1, k: 1 } } as const
type Name = keyof typeof keys
const documents = Array.from({ length: 300 }, (_, at) => ({ _id: `Name ${at}`, k: at % 40 }))

async function shard(name: string, key: Record<string, unknown>): Promise<void> {
  const admin = pair.sourceClient.db('admin')
  await admin.command({ shardCollection: `app.${name}`, key, collation: { locale: 'simple' } })
  if (Object.values(key).includes('hashed')) return
  const [first] = Object.keys(key) as [string]
  const rest = Object.fromEntries(
    Object.keys(key)
      .slice(1)
      .map((field) => [field, new MinKey()]),
  )
  const middle = { [first]: first === 'k' ? 20 : 'Name 2', ...rest }
  await pair.source.split(`app.${name}`, middle)
  await pair.source.moveChunk(`app.${name}`, middle, 1)
}

async function create(name: string, key: Record<string, unknown>) {
  const db = pair.sourceClient.db('app')
  await db.createCollection(name, { collation })
  await db.collection(name).createIndex(key as never, { collation: { locale: 'simple' } })
  await shard(name, key)
  return rowsOf(pair.sourceClient, name)
}

async function prepare(): Promise<void> {
  const admin = pair.sourceClient.db('admin')
  await admin.command({ balancerStop: 1 })
  await admin.command({ enableSharding: 'app', primaryShard: pair.source.shards[0]?.name })
}

test('have the same shard keys and equal documents after a copy, changes, a shardCollection during the sync and a convergence', async () => {
  await prepare()
  for (const name of Object.keys(keys) as Name[]) await (await create(name, keys[name])).insertMany(documents)
  const db = pair.sourceClient.db('app')
  await db.createCollection('later', { collation })
  await db.collection('later').createIndex({ k: 1 }, { collation: { locale: 'simple' } })
  await rowsOf(pair.sourceClient, 'later').insertMany(documents)

  const tandem = await pair.startSync({ enableUserWriteBlocking: 'none' })
  await canCommit(tandem)
  expect(Math.min(...(await pair.spread('ranged')))).toBeGreaterThan(0)
  await shard('later', { k: 1 })
  await (await create('born', { k: 1 })).insertMany(documents.slice(0, 50))
  for (const name of [...Object.keys(keys), 'later']) {
    const there = rowsOf(pair.sourceClient, name)
    await there.insertOne({ _id: 'new', k: 7 })
    await there.updateOne({ _id: 'name 5' }, { $set: { changed: true } })
    await there.deleteMany({ _id: { $in: ['NAME 6', 'NAME 26'] } })
    // Replace a document with one whose _id has another spelling. With two of the shard keys it belongs to another chunk.
    await there.deleteMany({ _id: 'Name 30' })
    await there.insertOne({ _id: 'NAME 30', k: 33 })
  }
  // The shard key changes, so the document moves to the other shard.
  await rowsOf(pair.sourceClient, 'ranged').updateOne({ _id: 'Name 7', k: 7 }, { $set: { k: 39 } })
  await pair.destinationClient
    .db('app')
    .collection('ranged')
    .deleteMany({ k: { $gt: 30 } })
  await rowsOf(pair.destinationClient, 'ranged').updateMany({ k: 3 }, { $set: { wrong: true } })
  const namespaces = [{ database: 'app', collection: 'ranged' }]
  await expect.poll(() => tandem.post('resync', { namespaces }), { timeout: 30_000 }).toMatchObject({ status: 200 })
  await commit(tandem)
  await pair.expectEqual()
})

test('two _ids on different shards that are equal under the collation fail the sync, whether an event or the copy finds them', async () => {
  await prepare()
  const ranged = await create('ranged', { k: 1 })
  await ranged.insertMany(documents)
  const tandem = await pair.startSync({ enableUserWriteBlocking: 'none' })
  await canCommit(tandem)
  await ranged.insertOne({ _id: 'NAME 8', k: 39 })
  const named = { error: 'DuplicateDocumentId', errorDescription: expect.stringContaining('equal under its collation') }
  expect(await failure(tandem)).toMatchObject(named)
  // The destination has lost neither document.
  const kept = await rowsOf(pair.destinationClient, 'ranged').find({ _id: 'name 8' }).toArray()
  expect(kept.map(({ _id }) => _id)).toEqual(['Name 8'])
  await tandem.kill9()

  await pair.destinationClient.db('admin').command({ setUserWriteBlockMode: 1, global: false })
  await pair.destinationClient.db('app').dropDatabase()
  await pair.destinationClient.db(metadataDatabase).dropDatabase()
  const again = await pair.startTandem()
  expect(await start(again, { enableUserWriteBlocking: 'none' })).toMatchObject({ status: 200 })
  expect(await failure(again)).toMatchObject(named)
  await ranged.deleteOne({ _id: 'NAME 8', k: 39 })
  expect(await again.post('resume')).toMatchObject({ status: 200 })
  await commit(again)
  await pair.expectEqual()
})
