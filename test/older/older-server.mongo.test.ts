import { type Binary, Long, UUID } from 'mongodb'
import { beforeAll, describe, expect, it } from 'vitest'
import { listIndexes } from '../../src/definitions/listing.ts'
import { openRange, readByIds } from '../../src/documents/read-documents.ts'
import { typedInt32 } from '../../src/domain/raw-bson.ts'
import { renamedTo } from '../../src/mongo/collection-name.ts'
import { readFacts } from '../../src/mongo/identity.ts'
import { sizeOf } from '../../src/mongo/sample.ts'
import { changesDuring } from '../mongo/clusters.ts'
import { oneSet } from '../mongo/one-set.ts'
import { idOfEveryType, insertRaw, rawDocument } from '../support/bson-values.ts'
import { Random } from '../support/random.ts'

/** A source older than 6.0 has no `collectionUUID` in commands and events, but it can read a collection by its UUID. */

const one = oneSet({ version: '5.0' })

beforeAll(async () => {
  await readFacts(one.cluster)
})

async function uuidOf(database: string, name: string): Promise<string> {
  const [info] = await one.client.db(database).listCollections({ name }).toArray()
  return Buffer.from((info as unknown as { info: { uuid: Binary } }).info.uuid.buffer).toString('latin1')
}

async function idsOf(database: string, uuid: string, ids: number[]): Promise<number> {
  let found = 0
  const notBefore = one.cluster.latest
  const collection = { database, name: 'whatever', uuid }
  for await (const documents of readByIds(one.cluster, collection, ids.map(typedInt32), notBefore)) {
    found += documents.length
  }
  return found
}

describe('a source older than 6.0', () => {
  it('names the collection of an event by UUID in the resume token, for every type of _id, also in transactions', async () => {
    const random = new Random('tokens')
    const db = one.client.db('tokens')
    const uuids: string[] = []
    const events = await changesDuring(one.cluster, async () => {
      for (const [at, make] of idOfEveryType.entries()) {
        await insertRaw(db, `c${at}`, [rawDocument([['_id', make(random)]])])
        await db.collection(`c${at}`).updateMany({}, { $set: { changed: true } })
        await db.collection(`c${at}`).deleteMany({})
        uuids.push(await uuidOf('tokens', `c${at}`))
      }
    })
    expect(events).toHaveLength(3 * idOfEveryType.length)
    expect(events.map(({ uuid }) => uuid)).toEqual(events.map(({ collection }) => uuids[Number(collection.slice(1))]))

    await db.createCollection('many')
    const uuid = await uuidOf('tokens', 'many')
    const inTransaction = await changesDuring(one.cluster, () =>
      one.client.withSession((session) =>
        session.withTransaction(async () => {
          const documents = Array.from({ length: 70_000 }, (_, at) => ({ at: Long.fromNumber(at) }))
          await db.collection('many').insertMany(documents, { session })
        }),
      ),
    )
    expect(inTransaction).toHaveLength(70_000)
    expect(new Set(inTransaction.map((event) => event.uuid))).toEqual(new Set([uuid]))
  })

  it('distinguishes a collection from a former collection of the same name', async () => {
    const things = one.client.db('names').collection<{ _id: number }>('things')
    let former = ''
    const events = await changesDuring(one.cluster, async () => {
      await things.insertOne({ _id: 1 })
      former = await uuidOf('names', 'things')
      await things.drop()
      await things.insertMany([{ _id: 1 }, { _id: 2 }])
    })
    const uuid = await uuidOf('names', 'things')
    expect(former).not.toBe(uuid)
    expect(events.map((event) => [event.operationType, event.uuid])).toEqual([
      ['insert', former],
      ['drop', ''],
      ['insert', uuid],
      ['insert', uuid],
    ])
    expect(await idsOf('names', uuid, [1, 2])).toBe(2)
    await things.rename('renamed')
    expect(await idsOf('names', uuid, [1, 2])).toBe(2)
    for (const gone of [former, Buffer.from(new UUID().buffer).toString('latin1')]) {
      const collection = { database: 'names', name: 'renamed', uuid: gone }
      for (const read of [
        () => idsOf('names', gone, [1]),
        () => openRange(one.cluster, collection, { from: null, to: null }, one.cluster.latest, 10),
        () => sizeOf(one.cluster, collection),
      ]) {
        const error = await read().then(
          () => null,
          (thrown: unknown) => thrown,
        )
        expect(renamedTo(error)).toBeNull()
      }
      expect(await listIndexes(one.cluster, 'names', gone)).toBeNull()
    }
  })
})
