import { setTimeout as sleep } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { canCommit, commit } from '../support/commits.ts'
import { type Row, rowsOf } from '../support/rows.ts'
import { ShardedPair } from '../support/sharded-pair.ts'

/** During syncs from a replica set to a sharded cluster, collections are renamed into another database. */

const pair = new ShardedPair('replicaSet', {})
const entry = (collection: string) => ({ database: 'other', collection, shardCollection: { key: [{ k: 1 }] } })
const documents = Array.from({ length: 200 }, (_, _id): Row => ({ _id, k: _id % 40 }))

test('a collection that is renamed from another database is sharded if the start request lists its new name, and not otherwise', async () => {
  const { sourceClient, destinationClient } = pair
  const other = sourceClient.db('other')
  for (const name of ['listed', 'unlisted', 'replacing']) {
    await rowsOf(sourceClient, name).createIndex({ k: 1 })
    await rowsOf(sourceClient, name).insertMany(documents)
  }
  await other.collection<Row>('target').createIndex({ k: 1 })
  await other.collection<Row>('target').insertMany(documents.slice(0, 10))
  const sharding = { createSupportingIndexes: false, shardingEntries: [entry('listed'), entry('target')] }
  const tandem = await pair.startSync({ sharding, enableUserWriteBlocking: 'none' })
  await canCommit(tandem)
  const admin = sourceClient.db('admin')
  await admin.command({ renameCollection: 'app.unlisted', to: 'other.unlisted' })
  await admin.command({ renameCollection: 'app.listed', to: 'other.listed' })
  await admin.command({ renameCollection: 'app.replacing', to: 'other.target', dropTarget: true })
  let at = 0
  for (const name of ['listed', 'target']) {
    while (!(await keyOf(name)) || (await destinationClient.db('other').collection(name).countDocuments()) < 200 + at) {
      expect((await tandem.progress()).state).toBe('RUNNING')
      await other.collection<Row>(name).insertOne({ _id: `written ${at++}`, k: at % 40 })
      await sleep(100)
    }
    at = 0
  }
  await commit(tandem)
  await pair.expectEqual({ 'other.listed': '{"k":1}', 'other.target': '{"k":1}' })
  expect(await keyOf('unlisted')).toBeNull()
})

/** A name like the temporary names of the server when it copies a collection for such a rename. Here the test does each step itself. */
const temporary = 'tmpAbCdE.renameCollection'

test.each([[['listed']], [['between', 'listed']]])(
  'a collection is also sharded if tandem reads its new name from the catalog before it reads the rename event, after these renames: %s',
  async (names) => {
    const other = pair.sourceClient.db('other')
    await other.createCollection('present')
    const sharding = { createSupportingIndexes: false, shardingEntries: [entry('listed')] }
    const tandem = await pair.startSync({ sharding, enableUserWriteBlocking: 'none' })
    await canCommit(tandem)
    await other.collection(temporary).createIndex({ k: 1 })
    await other.collection<Row>(temporary).insertMany(documents)
    const copied = pair.destinationClient.db('other').collection(temporary)
    await expect.poll(() => copied.countDocuments(), { timeout: 20_000 }).toBe(200)

    expect(await tandem.post('pause')).toMatchObject({ status: 200 })
    // The event of this index makes tandem read the catalog. The insert separates that read from the rename event.
    await other.collection('present').createIndex({ k: 1 })
    await other.collection<Row>('present').insertOne({ _id: 1 })
    for (const [at, name] of names.entries()) await other.renameCollection(names[at - 1] ?? temporary, name)
    expect(await tandem.post('resume')).toMatchObject({ status: 200 })
    await expect.poll(() => keyOf('listed'), { timeout: 20_000 }).toEqual({ k: 1 })
    await commit(tandem)
    await pair.expectEqual({ 'other.listed': '{"k":1}' })
  },
)

async function keyOf(name: string): Promise<unknown> {
  const config = pair.destinationClient.db('config').collection<{ _id: string; key: unknown }>('collections')
  return (await config.findOne({ _id: `other.${name}` }))?.key ?? null
}

test('a collection is also sharded if it is renamed while a new filter excludes another renamed collection', async () => {
  const other = pair.sourceClient.db('other')
  await other.createCollection('leaving')
  const sharding = { createSupportingIndexes: false, shardingEntries: [entry('listed')] }
  const tandem = await pair.startSync({ sharding, enableUserWriteBlocking: 'none' })
  await canCommit(tandem)
  await other.collection(temporary).createIndex({ k: 1 })
  await other.collection<Row>(temporary).insertMany(documents)
  const copied = pair.destinationClient.db('other').collection(temporary)
  await expect.poll(() => copied.countDocuments(), { timeout: 20_000 }).toBe(200)

  expect(await tandem.post('pause')).toMatchObject({ status: 200 })
  await other.renameCollection('leaving', 'left')
  await other.renameCollection(temporary, 'listed')
  const filter = { excludeNamespaces: [{ database: 'other', collections: ['left'] }] }
  expect(await tandem.post('filter', filter)).toMatchObject({ status: 200 })
  expect(await tandem.post('resume')).toMatchObject({ status: 200 })
  await canCommit(tandem)
  await commit(tandem)
  expect(await keyOf('listed')).toEqual({ k: 1 })
  expect(await pair.destinationClient.db('other').collection('listed').countDocuments()).toBe(200)
})
