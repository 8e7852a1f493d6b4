import type { Binary, CollectionInfo } from 'mongodb'
import { expect, it } from 'vitest'
import { renamedTo } from '../../src/mongo/collection-name.ts'
import { documentsOf, sizeOf } from '../../src/mongo/sample.ts'
import { fromUuid } from '../../src/mongo/uuid.ts'
import { failPoint } from '../support/fail-point.ts'
import { oneSet } from './one-set.ts'

const one = oneSet()

it('returns the size and the new name of a collection that is renamed during the command', async () => {
  const db = one.client.db('app')
  await db.collection('before').insertOne({ a: 1 })
  const [listed] = await db.listCollections({ name: 'before' }).toArray()
  const uuid = fromUuid((listed as CollectionInfo).info?.uuid as Binary)
  await db.renameCollection('before', 'after')
  await using _ = await failPoint(
    one.client,
    'failCommand',
    { failCommands: ['aggregate'], errorCode: 26 },
    { times: 1 },
  )

  const size = sizeOf(one.cluster, { database: 'app', name: 'before', uuid })

  await expect(size.catch(renamedTo)).resolves.toBe('after')
})

it('reads the size and the number of documents, also of an empty collection', async () => {
  const db = one.client.db('app')
  await db.collection('full').insertMany([{ _id: 1 }, { _id: 2, text: 'x'.repeat(1_000) }] as never[])
  await db.createCollection('empty')
  const located = async (name: string) => {
    const [listed] = await db.listCollections({ name }).toArray()
    return { database: 'app', name, uuid: fromUuid((listed as CollectionInfo).info?.uuid as Binary) }
  }
  const [statistics] = await db
    .collection('full')
    .aggregate([{ $collStats: { storageStats: {} } }])
    .toArray()
  const { size, count } = statistics?.['storageStats'] ?? {}
  expect(await sizeOf(one.cluster, await located('full'))).toEqual({ bytes: size, documents: count })
  expect(await documentsOf(one.cluster, await located('full'))).toBe(2)
  const full = await located('full')
  {
    await using _ = await failPoint(one.client, 'failCommand', { failCommands: ['dataSize'], errorCode: 13 })
    expect(await sizeOf(one.cluster, full)).toEqual({ bytes: size, documents: count })
  }
  expect(await sizeOf(one.cluster, await located('empty'))).toEqual({ bytes: 0, documents: 0 })
})
