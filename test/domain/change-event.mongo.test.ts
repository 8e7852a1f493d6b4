import { type Binary, BSON, Long } from 'mongodb'
import { describe, expect, it } from 'vitest'
import type { ChangeEvent } from '../../src/domain/change-event.ts'
import { changesDuring } from '../mongo/clusters.ts'
import { oneSet } from '../mongo/one-set.ts'
import { array, idOfEveryType, insertRaw, nested, rawDocument } from '../support/bson-values.ts'
import { Random } from '../support/random.ts'

const one = oneSet()

async function uuidOf(database: string, name: string): Promise<string> {
  const [info] = await one.client.db(database).listCollections({ name }).toArray()
  const uuid = (info as { info?: { uuid?: Binary } } | undefined)?.info?.uuid
  return uuid ? Buffer.from(uuid.buffer).toString('hex') : ''
}

const hex = (event: ChangeEvent) => Buffer.from(event.uuid, 'latin1').toString('hex')

describe('change events of a real server', () => {
  it('contain the bytes of the document’s _id, whatever its type', async () => {
    const random = new Random('ids')
    const ids = [
      ...idOfEveryType.map((make) => make(random)),
      nested([
        ['b', 1],
        ['10', array([1, Long.fromInt(2)])],
        ['2', nested([])],
      ]),
    ]
    const documents = ids.map((id, at) =>
      rawDocument([
        ['_id', id],
        ['at', at],
      ]),
    )
    const idElements = documents.map((document) => document.subarray(4, document.indexOf(Buffer.from('\x10at\0'))))
    const events = await changesDuring(one.cluster, async () => {
      for (const [at, document] of documents.entries()) {
        await insertRaw(one.client.db('ids'), `c${at}`, [document])
        await one.client
          .db('ids')
          .collection(`c${at}`)
          .updateMany({}, { $set: { changed: true } })
        await one.client.db('ids').collection(`c${at}`).deleteMany({})
      }
    })
    for (const [at, idElement] of idElements.entries()) {
      const own = events.filter((event) => event.collection === `c${at}`)
      expect(own.map(({ operationType }) => operationType)).toEqual(['create', 'insert', 'update', 'delete'])
      expect(own.slice(1).map((event) => event.idElement)).toEqual([idElement, idElement, idElement])
      expect(own.map((event) => event.document)).toEqual([null, documents[at], null, null])
    }
    const times = events.map((event) => event.time)
    expect(times).toEqual([...times].sort((one, other) => (one < other ? -1 : 1)))
  })

  it('are distinguished as definition or data changes, and contain the UUID of their collection', async () => {
    const db = one.client.db('definitions')
    let uuid = ''
    const events = await changesDuring(one.cluster, async () => {
      await db.collection<{ _id: number }>('one').insertOne({ _id: 1 })
      uuid = await uuidOf('definitions', 'one')
      await db.collection('one').createIndex({ a: 1 })
      await db.command({ collMod: 'one', validationLevel: 'moderate' })
      await db.collection('one').dropIndex('a_1')
      await db.collection('one').rename('two')
      await db.createCollection('view', { viewOn: 'two', pipeline: [] })
      await db.collection('view').drop()
      await db.dropDatabase()
    })
    const parsed = events.map((event) => [event.kind, event.operationType, event.collection])
    expect(parsed).toEqual([
      ['definition', 'create', 'one'],
      ['insert', 'insert', 'one'],
      ['definition', 'createIndexes', 'one'],
      ['definition', 'modify', 'one'],
      ['definition', 'dropIndexes', 'one'],
      ['definition', 'rename', 'one'],
      ['definition', 'create', 'view'],
      ['definition', 'drop', 'view'],
      ['definition', 'drop', 'two'],
      ['definition', 'dropDatabase', ''],
    ])
    expect(events.every((event) => event.database === 'definitions')).toBe(true)
    expect(events.filter((event) => event.uuid !== '').map(hex)).toEqual(Array.from({ length: 7 }, () => uuid))
  })

  it('contain the new document of an insert or replace, unless it is large', async () => {
    const documents = [
      { _id: 'small', text: 'x' },
      { _id: 'large', text: 'x'.repeat(300_000) },
      { _id: 'full', text: 'x'.repeat(16 * 1024 * 1024 - 200) },
    ]
    const collection = one.client.db('documents').collection<{ _id: string; text: string }>('c')
    const events = await changesDuring(one.cluster, async () => {
      await collection.insertMany(documents)
      await collection.replaceOne({ _id: 'small' }, { text: 'y' })
      await collection.replaceOne({ _id: 'full' }, { text: 'y'.repeat(16 * 1024 * 1024 - 200) })
      await collection.updateOne({ _id: 'full' }, { $set: { text: 'z'.repeat(16 * 1024 * 1024 - 200) } })
    })
    const small = BSON.calculateObjectSize({ _id: 'small', text: 'x' })
    const carried = events.map((event) => [event.operationType, event.document?.length ?? 0])
    expect(carried).toEqual([
      ['create', 0],
      ['insert', small],
      ['insert', 0],
      ['insert', 0],
      ['replace', small],
      ['replace', 0],
      ['update', 0],
    ])
  })

  it('contain the _id with the BSON type that it had before the event, not with the type that a replace gives it', async () => {
    const collection = one.client.db('spellings').collection<{ _id: number | Long }>('c')
    const events = await changesDuring(one.cluster, async () => {
      await collection.insertOne({ _id: 1 })
      await collection.replaceOne({ _id: 1 }, { _id: Long.fromInt(1) })
      await collection.deleteOne({ _id: 1 })
    })
    expect(events.slice(1).map((event) => [event.operationType, event.idType])).toEqual([
      ['insert', 0x10],
      ['replace', 0x10],
      ['delete', 0x12],
    ])
  })

  it('of the internal databases of the server and of tandem are not delivered', async () => {
    const events = await changesDuring(one.cluster, async () => {
      for (const database of ['mongosync_internal_tandem', 'tandem_internal', 'admin', 'app']) {
        await one.client.db(database).collection('c').insertOne({})
      }
    })
    expect(new Set(events.map((event) => event.database))).toEqual(new Set(['app']))
  })
})
