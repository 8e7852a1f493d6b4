import { BSON, Decimal128, type Document, Double, Int32, Long, ObjectId, UUID } from 'mongodb'
import { beforeAll, describe, expect, it } from 'vitest'
import { type PartitionedEvents, readChangeStream, type StreamPosition } from '../../src/mongo/change-stream.ts'
import { Metadata } from '../../src/mongo/metadata.ts'
import { appendOplogNote } from '../../src/mongo/oplog-note.ts'
import type { Tombstone } from '../../src/mongo/tombstone-store.ts'
import { fromUuid } from '../../src/mongo/uuid.ts'
import { testContext } from './clusters.ts'
import { oneSet } from './one-set.ts'

/** Several readers share the events of one stream. Each requests only the events of its partitions. */

const one = oneSet()
const count = 4
const all = [0, 1, 2, 3]
let start: StreamPosition
let end: bigint
let whole: string

interface Row extends Document {
  _id: object | string | number | boolean
}

/** Returns the same number in different types. The server treats these values as the same `_id`. */
const spellings = (value: number) => [
  new Int32(value),
  Long.fromNumber(value),
  new Double(value),
  Decimal128.fromString(`${value}.00`),
]
const numbers = [0, 1, -7, 12_345, 2 ** 40]
/** Values of every type that an `_id` may have. */
const ids = [
  ...Array.from({ length: 60 }, (_, index) => index + 100),
  ...Array.from({ length: 20 }, (_, index) => `text ${index}`),
  ...Array.from({ length: 10 }, () => new ObjectId()),
  ...[
    new UUID(),
    new Date(5),
    true,
    new Double(0.1),
    Decimal128.fromString('0.1'),
    Long.fromString('9007199254740993'),
  ],
  ...[{ a: 1, b: [1, 2] }, { b: [1, 2], a: 1 }, { deep: { er: 'x' } }, new Double(Number.NaN), '', {}, -1, -100],
]

beforeAll(async () => {
  const app = one.client.db('app')
  await app.createCollection('whole', { capped: true, size: 1_000_000 })
  const [info] = await app.listCollections({ name: 'whole' }).toArray()
  whole = fromUuid((info as unknown as { info: { uuid: UUID } }).info.uuid)
  await appendOplogNote(one.cluster, 'test')
  start = { kind: 'time', time: one.cluster.latest + 1n }
  const things = app.collection<Row>('things')
  await things.insertMany(ids.map((_id) => ({ _id })))
  const spelled = app.collection<Row>('numbers')
  for (const value of numbers) {
    for (const _id of spellings(value)) {
      if (_id instanceof Int32 && value > 2 ** 31) continue
      await spelled.insertOne({ _id, value })
      await spelled.updateOne({ _id }, { $set: { changed: true } })
      await spelled.deleteOne({ _id })
    }
  }
  await app.command({ update: 'things', updates: [{ q: { _id: 100 }, u: { replaced: true } }] })
  await app.collection('whole').insertMany(Array.from({ length: 30 }, (_, n) => ({ n })))
  await things.createIndex({ value: 1 })
  await app.createCollection('made')
  await app.renameCollection('made', 'renamed')
  await app.dropCollection('renamed')
  await appendOplogNote(one.cluster, 'test')
  end = one.cluster.latest
})

async function eventsOf(only?: Omit<PartitionedEvents, 'count'>, from = start): Promise<Document[]> {
  const events: Document[] = []
  const content = only ? { only: { ...only, count } } : {}
  for await (const batch of readChangeStream(one.cluster, from, testContext(), { awaitMS: () => 20, ...content })) {
    for (const event of batch.events) events.push(BSON.deserialize(event, { promoteValues: false }))
    if (batch.position.time >= end) break
  }
  return events
}

const tokenOf = (event: Document): string => String(event['_id']._data)
const isDefinition = (event: Document): boolean => event['documentKey'] === undefined
const tokens = (events: Document[]): string[] => events.map(tokenOf)

describe('events', () => {
  it('of documents belong to one partition each, and events of definitions to all partitions, in the order of the stream', async () => {
    const everything = await eventsOf()
    const parts = await Promise.all(
      all.map((partition) => eventsOf({ partitions: [partition], whole: [{ uuid: whole, database: '', name: '' }] })),
    )
    const definitions = everything.filter(isDefinition)
    expect(definitions.map((event) => String(event['operationType']))).toEqual(
      expect.arrayContaining(['create', 'createIndexes', 'rename', 'drop']),
    )
    for (const part of parts) {
      expect(tokens(part.filter(isDefinition))).toEqual(tokens(definitions))
      const known = new Set(tokens(part))
      expect(tokens(part)).toEqual(tokens(everything).filter((token) => known.has(token)))
      // There are more than a hundred `_id`s, so every partition gets a considerable part.
      expect(part.length - definitions.length).toBeGreaterThan(10)
    }
    const documents = parts.flatMap((part) => tokens(part.filter((event) => !isDefinition(event))))
    expect(documents.sort()).toEqual(tokens(everything.filter((event) => !isDefinition(event))).sort())
  })

  it('that a reader of several partitions gets are the events of each of these partitions', async () => {
    const some = await eventsOf({ partitions: [1, 3], whole: [] })
    const each = await Promise.all([1, 3].map((partition) => eventsOf({ partitions: [partition], whole: [] })))
    expect(new Set(tokens(some))).toEqual(new Set(each.flatMap(tokens)))
    expect(tokens(await eventsOf({ partitions: all, whole: [] }))).toEqual(tokens(await eventsOf()))
  })

  it('of documents whose _id is the same number in any numeric type belong to one partition', async () => {
    const found = new Map<string, Set<number>>()
    for (const partition of all) {
      for (const { documentKey, ns } of await eventsOf({ partitions: [partition], whole: [] })) {
        if (!documentKey || String(ns.coll) !== 'numbers') continue
        const value = Number(documentKey['_id'])
        const known = found.get(String(value)) ?? new Set()
        found.set(String(value), known.add(partition))
      }
    }
    expect([...found.keys()].sort()).toEqual(numbers.map(String).sort())
    for (const [value, partitions] of found) expect([value, partitions.size]).toEqual([value, 1])
  })

  it('of a collection that is not divided belong to partition 0 only', async () => {
    for (const partition of all) {
      const events = await eventsOf({ partitions: [partition], whole: [{ uuid: whole, database: '', name: '' }] })
      const ofWhole = events.filter((event) => !isDefinition(event) && String(event['ns'].coll) === 'whole')
      expect(ofWhole).toHaveLength(partition === 0 ? 30 : 0)
    }
  })
})

describe('identities recorded during the copy', () => {
  it('belong to the same partition as their events', async () => {
    const context = testContext()
    const metadata = new Metadata(one.cluster, context)
    const uuid = Buffer.alloc(16, 3).toString('latin1')
    const values = [...ids, ...[1, -7].flatMap(spellings)]
    const elements = values.map((_id) => Buffer.from(BSON.serialize({ _id })).subarray(4, -1))
    await metadata.tombstones.add(
      uuid,
      elements.map((idElement, order) => ({ idElement, order, reorder: false })),
    )
    const partitionOf = new Map<string, number>()
    for (const partition of all) {
      for (const event of await eventsOf({ partitions: [partition], whole: [] })) {
        if (isDefinition(event)) continue
        const idElement = Buffer.from(BSON.serialize({ _id: event['documentKey']._id })).subarray(4, -1)
        partitionOf.set(idElement.toString('hex'), partition)
      }
    }
    let found = 0
    for (const partition of all) {
      const tombstones = await metadata.tombstones.read(uuid, null, 1_000, { partitions: [partition], count })
      found += tombstones.length
      for (const { idElement } of tombstones) {
        expect([idElement.toString('hex'), partitionOf.get(idElement.toString('hex'))]).toEqual([
          idElement.toString('hex'),
          partition,
        ])
      }
    }
    expect(found).toBe(new Set(elements.map((element) => element.toString('hex'))).size)
    const after = { order: 10, idElement: elements[10] as Buffer }
    const page = await metadata.tombstones.read(uuid, after, 5, { partitions: [0, 2], count })
    expect(page.map(({ order }) => order)).toEqual([...page.map(({ order }) => order)].sort((a, b) => a - b))
    for (const { order } of page) expect(order).toBeGreaterThan(10)
  })

  it('are all read in pages, even if several instances gave them the same numbers', async () => {
    const metadata = new Metadata(one.cluster, testContext())
    const uuid = Buffer.alloc(16, 4).toString('latin1')
    const elementOf = (_id: string): Buffer => Buffer.from(BSON.serialize({ _id })).subarray(4, -1)
    for (const instance of ['a', 'b', 'c']) {
      const recorded = Array.from({ length: 20 }, (_, order) => ({
        idElement: elementOf(`${instance} ${order}`),
        order,
        reorder: false,
      }))
      await metadata.tombstones.add(uuid, recorded)
    }
    const read: Tombstone[] = []
    for (let page = await metadata.tombstones.read(uuid, null, 7); page.length > 0; ) {
      read.push(...page)
      page = await metadata.tombstones.read(uuid, page.at(-1) ?? null, 7)
    }
    expect(new Set(read.map(({ idElement }) => idElement.toString('hex'))).size).toBe(60)
    expect(read).toHaveLength(60)
    expect(read.map(({ order }) => order)).toEqual(read.map(({ order }) => order).sort((a, b) => a - b))
  })
})
