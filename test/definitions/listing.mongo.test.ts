import type { Binary } from 'mongodb'
import { expect, it } from 'vitest'
import { listByUuid, listCollections, listIndexes, listNamed, listViews } from '../../src/definitions/listing.ts'
import { indexName } from '../../src/domain/definition.ts'
import { appendOplogNote } from '../../src/mongo/oplog-note.ts'
import { fromUuid } from '../../src/mongo/uuid.ts'
import { oneSet } from '../mongo/one-set.ts'
import { failPoint } from '../support/fail-point.ts'

/** Tests reads of a catalog that changes, and oplog no-ops while earlier writes are in flight. */

const one = oneSet()

it('an index that is still being built is not listed, because the build may be aborted', async () => {
  const collection = one.client.db('app').collection('built')
  await collection.insertMany([{ n: 1 }, { n: 2 }])
  await collection.createIndex({ ready: 1 })
  const [info] = await one.client.db('app').listCollections({ name: 'built' }).toArray()
  const uuid = fromUuid((info as unknown as { info: { uuid: Binary } }).info.uuid)
  const names = async () => (await listIndexes(one.cluster, 'app', uuid))?.map(indexName)
  await using building = await failPoint(one.client, 'hangAfterStartingIndexBuild', {})
  const built = collection.createIndex({ n: 1 })
  await building.reached()
  expect(await names()).toEqual(['ready_1'])
  await building.release()
  await built
  expect(await names()).toEqual(['ready_1', 'n_1'])
})

it('an oplog no-op is acknowledged only when all earlier writes can be read', async () => {
  const collection = one.client.db('app').collection<{ _id: number }>('delayed')
  await collection.insertOne({ _id: 0 })
  const name = 'sleepBetweenInsertOpTimeGenerationAndLogOp'
  await using sleeping = await failPoint(one.client, name, { waitForMillis: 3_000 }, { times: 1 })
  const delayed = collection.insertOne({ _id: 1 })
  await sleeping.reached()
  await appendOplogNote(one.cluster, 'test')
  // This read does not wait for a cluster time. It returns what is majority-committed at the moment.
  const reply = await one.cluster.read('app', { find: 'delayed', readConcern: { level: 'majority' } })
  expect(reply['cursor'].firstBatch).toHaveLength(2)
  await delayed
})

it('single collections and the views of a database are listed without the other collections', async () => {
  const db = one.client.db('app')
  for (const name of ['first', 'second', 'third']) await db.createCollection(name)
  await db.createCollection('view', { viewOn: 'first', pipeline: [] })
  const all = new Map((await listCollections(one.cluster, 'app')).map((found) => [found.name, found]))
  const { uuid = '' } = all.get('second') ?? {}
  const gone = 'g'.repeat(16)
  expect(await listByUuid(one.cluster, 'app', [uuid, gone, ''])).toEqual([all.get('second')])
  expect(await listByUuid(one.cluster, 'app', [gone])).toEqual([])
  expect(await listViews(one.cluster, 'app')).toEqual([all.get('view')])
  const named = await listNamed(one.cluster, 'app', ['third', 'first', 'absent', 'view'])
  expect(named.map(({ name }) => name).sort()).toEqual(['first', 'third', 'view'])
  expect(named.find(({ name }) => name === 'third')).toEqual(all.get('third'))
})
