import { type Collection, type Db, Decimal128, Double, Int32, Long, MaxKey, MinKey } from 'mongodb'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { array, insertRaw, nastyDocument, nested, type RawField, rawDocument } from '../support/bson-values.ts'
import { Random } from '../support/random.ts'
import { TwoSides } from './two-sides.ts'

const database = 'audited'

let sides: TwoSides

beforeAll(async () => {
  sides = await TwoSides.start()
})

afterAll(() => sides?.stop())

/** The data of both clusters before one of them is changed. */
async function fill(db: Db): Promise<void> {
  const random = new Random('audit')
  const documents = Array.from({ length: 300 }, (_, i) => nastyDocument(random, i, [['n', i]]))
  await insertRaw(db, 'things', [
    ...documents,
    rawDocument([['_id', new MinKey()]]),
    rawDocument([['_id', new MaxKey()]]),
  ])
  await db.collection('things').createIndexes([
    { key: { n: 1, m: 1 }, name: 'nm' },
    { key: { at: 1 }, name: 'at', expireAfterSeconds: 1_000_000 },
  ])
  await db.createCollection('capped', { capped: true, size: 100_000, max: 50 })
  await db.collection<{ _id: number }>('capped').insertMany([5, 3, 9, 1].map((_id) => ({ _id })))
  await db.createCollection('view', { viewOn: 'things', pipeline: [{ $match: { n: 1 } }] })
  await db.createCollection('collated', { collation: { locale: 'en', strength: 2 } })
  await insertRaw(db, 'collated', ['b', 'A', 'c', 'É'].map(hello))
  await db.createCollection('clustered', { clusteredIndex: { key: { _id: 1 }, unique: true } })
  await insertRaw(db, 'clustered', [1, 2, 3].map(hello))
}

const hello = (value: unknown): Buffer => rawDocument([['_id', value]])

async function replaceBy(db: Db, collection: string, id: unknown, fields: RawField[]): Promise<void> {
  await db.collection(collection).deleteOne({ _id: id as never })
  await insertRaw(db, collection, [rawDocument(fields)])
}

/** Returns the differences after a change on cluster1, each line without the name of the database. */
async function linesAfter(change: (db: Db, things: Collection) => Promise<unknown>): Promise<string[]> {
  const [, theirs] = await sides.fill(database, fill)
  await change(theirs, theirs.collection('things'))
  return (await sides.lines(database)).map((line) => line.replace(`${database}.`, ''))
}

test('equal clusters have no difference, and all documents read are counted', async () => {
  const [ours] = await sides.fill(database, fill)
  const report = await sides.audit()
  expect(report).toMatchObject({
    equal: true,
    totalDifferences: 0,
    truncated: false,
    differences: [],
    collections: 4,
    views: 1,
    documents: { cluster0: 302 + 4 + 4 + 3, cluster1: 302 + 4 + 4 + 3 },
  })
  expect(report.bytes.cluster0).toBe(report.bytes.cluster1)
  const sizes = await Promise.all(
    ['things', 'capped', 'collated', 'clustered'].map(
      async (name) => (await ours.command({ collStats: name }))['size'],
    ),
  )
  expect(report.bytes.cluster0).toBe(sizes.reduce((sum, size) => sum + size, 0))
})

describe('a single difference between documents', () => {
  test.each<[string, (db: Db, things: Collection) => Promise<unknown>, string]>([
    [
      'a value',
      (_, things) => things.updateOne({ _id: 20 as never }, { $set: { n: 21 } }),
      '{"$numberInt":"20"} differs at n',
    ],
    [
      'a numeric type',
      (_, things) => things.updateOne({ _id: 20 as never }, [{ $set: { n: { $toLong: '$n' } } }]),
      '{"$numberInt":"20"} differs at n',
    ],
    [
      'a missing document',
      (_, things) => things.deleteOne({ _id: 0 as never }),
      '{"$numberInt":"0"} missing on cluster1',
    ],
    [
      'a missing document with the least _id',
      (_, things) => things.deleteOne({ _id: new MinKey() as never }),
      '{"$minKey":1} missing on cluster1',
    ],
    [
      'a missing document with the greatest _id',
      (_, things) => things.deleteOne({ _id: new MaxKey() as never }),
      '{"$maxKey":1} missing on cluster1',
    ],
    [
      'an extra document between others',
      (db) => insertRaw(db, 'things', [hello(20.5)]),
      '{"$numberDouble":"20.5"} only on cluster1',
    ],
    [
      'an extra document with an _id of another type',
      (db) => insertRaw(db, 'things', [hello(new Date(0))]),
      '{"$date":{"$numberLong":"0"}} only on cluster1',
    ],
  ])('%s', async (_, change, found) => {
    expect(await linesAfter(change)).toEqual([`things: document ${found}`])
  })

  const inner = (last: RawField): RawField[] => [['a', nested([['b', array([nested([['x', 1]]), nested([last])])]])]]

  test.each<[string, RawField[], RawField[], string]>([
    [
      'the order of fields',
      [
        ['a', 1],
        ['b', 2],
      ],
      [
        ['b', 2],
        ['a', 1],
      ],
      'a',
    ],
    [
      'a duplicate field',
      [
        ['a', 1],
        ['b', 2],
      ],
      [
        ['a', 1],
        ['b', 2],
        ['b', 2],
      ],
      'b',
    ],
    ['a double instead of an int', [['a', new Int32(1)]], [['a', new Double(1)]], 'a'],
    ['a decimal instead of a long', [['a', Long.fromInt(1)]], [['a', Decimal128.fromString('1')]], 'a'],
    ['trailing zeros of a decimal', [['a', Decimal128.fromString('1.0')]], [['a', Decimal128.fromString('1.00')]], 'a'],
    ['a nested element of an array', inner(['y', 1]), inner(['y', 2]), 'a.b.1.y'],
    ['a nested field that only one side has', inner(['y', 1]), inner(['z', 1]), 'a.b.1.y'],
    [
      'numeric names in another order',
      [
        ['10', 1],
        ['2', 2],
      ],
      [
        ['2', 2],
        ['10', 1],
      ],
      '10',
    ],
  ])('%s', async (_, ours, theirs, path) => {
    const [left, right] = await sides.fill(database, fill)
    await replaceBy(left, 'things', 150, [['_id', 150], ...ours])
    await replaceBy(right, 'things', 150, [['_id', 150], ...theirs])
    expect(await sides.lines(database)).toEqual([`audited.things: document {"$numberInt":"150"} differs at ${path}`])
  })

  test.each<[string, unknown, unknown, string]>([
    ['an int instead of a long', 7_000, Long.fromInt(7_000), '_id'],
    ['a decimal instead of a double', new Double(0.5), Decimal128.fromString('0.50'), '_id'],
    ['a long inside a document', nested([['k', 1]]), nested([['k', Long.fromInt(1)]]), '_id.k'],
  ])('an _id with %s identifies the same document', async (_, ours, theirs, path) => {
    const [left, right] = await sides.fill(database, fill)
    await insertRaw(left, 'things', [hello(ours)])
    await insertRaw(right, 'things', [hello(theirs)])
    expect(await sides.lines(database)).toEqual([
      expect.stringMatching(new RegExp(`: document .* differs at ${path}$`)),
    ])
  })

  test('values of other fields than _id never appear', async () => {
    const lines = await linesAfter(async (db, things) => {
      await things.updateMany({ _id: { $lt: 9 } as never }, { $set: { secret: 'hunter2' } })
      await db.command({ collMod: 'things', validator: { secret: 'hunter2' }, validationLevel: 'off' })
    })
    expect(lines.length).toBeGreaterThan(9)
    expect(lines.join()).not.toContain('hunter2')
  })
})

describe('a collated collection', () => {
  test.each<[string, (db: Db) => Promise<unknown>, string[]]>([
    [
      'an _id in another case identifies the same document',
      (db) => replaceBy(db, 'collated', 'a', [['_id', 'a']]),
      ['document "A" differs at _id'],
    ],
    [
      'an _id in another case after a missing document',
      (db) =>
        replaceBy(db, 'collated', 'b', [['_id', 'B']]).then(() =>
          db.collection('collated').deleteOne({ _id: 'a' as never }),
        ),
      ['document "A" missing on cluster1', 'document "b" differs at _id'],
    ],
    ['an extra document', (db) => insertRaw(db, 'collated', [hello('bb')]), ['document "bb" only on cluster1']],
    [
      'a letter with an accent is another letter',
      (db) => replaceBy(db, 'collated', 'é', [['_id', 'E']]),
      ['document "E" only on cluster1', 'document "É" missing on cluster1'],
    ],
  ])('%s', async (_, change, found) => {
    expect(await linesAfter(change)).toEqual(found.map((line) => `collated: ${line}`))
  })

  test('with different collations on the two sides is still compared document by document', async () => {
    const lines = await linesAfter(async (db) => {
      await db.dropCollection('collated')
      await db.createCollection('collated', { collation: { locale: 'sv' } })
      await insertRaw(db, 'collated', ['c', 'É', 'A', 'x', 'B'].map(hello))
    })
    expect(lines.sort()).toEqual([
      'collated: document "B" only on cluster1',
      'collated: document "b" missing on cluster1',
      'collated: document "x" only on cluster1',
      'collated: index _id_ differs in collation',
      'collated: option collation differs',
    ])
  })
})

describe('a capped collection', () => {
  const refill = (ids: number[]) => async (db: Db) => {
    await db.dropCollection('capped')
    await db.createCollection('capped', { capped: true, size: 100_000, max: 50 })
    await db.collection<{ _id: number }>('capped').insertMany(ids.map((_id) => ({ _id })))
  }

  test('in another order differs only in its order', async () => {
    expect(await linesAfter(refill([5, 9, 3, 1]))).toEqual([
      'capped: natural order differs, starting at document {"$numberInt":"3"}',
    ])
  })

  test('with a missing or an extra document differs only in that document', async () => {
    expect(await linesAfter(refill([5, 9, 1]))).toEqual(['capped: document {"$numberInt":"3"} missing on cluster1'])
    expect(await linesAfter(refill([5, 3, 7, 9, 1]))).toEqual(['capped: document {"$numberInt":"7"} only on cluster1'])
  })
})

describe('a long gap', () => {
  test('is counted exactly, and listed up to the maximum', async () => {
    const [, theirs] = await sides.fill(database, (db) =>
      db.collection<{ _id: number }>('many').insertMany(Array.from({ length: 9_000 }, (_, _id) => ({ _id }))),
    )
    await theirs.collection('many').deleteMany({ _id: { $gte: 10, $lt: 8_000 } as never })
    const namespaces = [{ database, collection: null }]
    expect(await sides.audit({ namespaces, maxDifferences: 3 })).toMatchObject({
      totalDifferences: 7_990,
      truncated: true,
      differences: [10, 11, 12].map((id) => ({ how: 'missing', id: `{"$numberInt":"${id}"}` })),
      documents: { cluster0: 9_000, cluster1: 1_010 },
    })
    await sides.database(database)[0].collection('many').deleteMany({})
    expect(await sides.audit({ namespaces, maxDifferences: 0 })).toMatchObject({
      totalDifferences: 1_010,
      truncated: true,
      differences: [],
    })
  })
})
