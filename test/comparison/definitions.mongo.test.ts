import { type Db, Double, Long } from 'mongodb'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { TwoSides } from './two-sides.ts'

const database = 'defined'

let sides: TwoSides

beforeAll(async () => {
  sides = await TwoSides.start()
})

afterAll(() => sides?.stop())

async function fill(db: Db): Promise<void> {
  await db.createCollection('things', {
    validator: { n: { $gt: 1 } },
    changeStreamPreAndPostImages: { enabled: true },
  })
  await db.collection('things').createIndexes([
    { key: { n: 1, m: -1 }, name: 'nm', partialFilterExpression: { n: { $gt: 5 } } },
    { key: { at: 1 }, name: 'at', expireAfterSeconds: 1_000_000 },
    { key: { u: 1 }, name: 'u', unique: true, sparse: true },
  ])
  await db.createCollection('plain')
  await db.createCollection('capped', { capped: true, size: 100_096, max: 50 })
  await db.createCollection('view', { viewOn: 'things', pipeline: [{ $match: { n: 1 } }] })
}

async function linesAfter(change: (db: Db) => Promise<unknown>, options = {}): Promise<string[]> {
  const [, theirs] = await sides.fill(database, fill)
  await change(theirs)
  return (await sides.lines(database, options)).map((line) => line.replace(`${database}.`, ''))
}

const recreate = (name: string, key: object, options: object) => async (db: Db) => {
  await db.collection('things').dropIndex(name)
  await db.command({ createIndexes: 'things', indexes: [{ key, name, ...options }] })
}

describe('equivalent definitions', () => {
  test.each<[string, (db: Db) => Promise<unknown>]>([
    ['unchanged definitions', async () => {}],
    [
      'explicit validation defaults',
      (db) => db.command({ collMod: 'plain', validationLevel: 'strict', validationAction: 'error' }),
    ],
    ['a removed validator', (db) => db.command({ collMod: 'plain', validator: {} })],
    [
      'disabled pre- and post-images',
      (db) => db.command({ collMod: 'plain', changeStreamPreAndPostImages: { enabled: false } }),
    ],
    ['a TTL value as a double', recreate('at', { at: 1 }, { expireAfterSeconds: new Double(1_000_000) })],
    ['key directions as a long', recreate('at', { at: Long.fromInt(1) }, { expireAfterSeconds: 1_000_000 })],
    [
      'options in another order, and the option background',
      recreate('u', { u: 1 }, { sparse: true, background: true, unique: true }),
    ],
    [
      'a capped size as a double',
      async (db) => {
        await db.dropCollection('capped')
        await db.command({ create: 'capped', max: new Double(50), size: new Double(100_096), capped: true })
      },
    ],
  ])('%s', async (_, change) => {
    expect(await linesAfter(change)).toEqual([])
  })
})

describe('a single difference', () => {
  test.each<[string, (db: Db) => Promise<unknown>, string]>([
    ['a missing collection', (db) => db.dropCollection('plain'), 'plain: collection missing on cluster1'],
    ['an extra collection', (db) => db.createCollection('more'), 'more: collection only on cluster1'],
    ['a missing view', (db) => db.dropCollection('view'), 'view: view missing on cluster1'],
    ['an extra view', (db) => db.createCollection('more', { viewOn: 'things' }), 'more: view only on cluster1'],
    [
      'a view where a collection should be',
      (db) => db.dropCollection('plain').then(() => db.createCollection('plain', { viewOn: 'things' })),
      'plain: a collection on one cluster and a view on the other',
    ],
    [
      'the pipeline of a view',
      (db) => db.command({ collMod: 'view', viewOn: 'things', pipeline: [{ $match: { n: 2 } }] }),
      'view: option pipeline differs',
    ],
    [
      'the collection that a view is on',
      (db) => db.command({ collMod: 'view', viewOn: 'plain', pipeline: [{ $match: { n: 1 } }] }),
      'view: option viewOn differs',
    ],
    [
      'a validator',
      (db) => db.command({ collMod: 'things', validator: { n: { $gt: 2 } } }),
      'things: option validator differs',
    ],
    [
      'a validation level',
      (db) => db.command({ collMod: 'things', validationLevel: 'moderate' }),
      'things: option validationLevel differs',
    ],
    [
      'pre- and post-images',
      (db) => db.command({ collMod: 'things', changeStreamPreAndPostImages: { enabled: false } }),
      'things: option changeStreamPreAndPostImages differs',
    ],
    ['a capped size', (db) => db.command({ collMod: 'capped', cappedSize: 200_192 }), 'capped: option size differs'],
    ['a capped count', (db) => db.command({ collMod: 'capped', cappedMax: 51 }), 'capped: option max differs'],
    ['a missing index', (db) => db.collection('things').dropIndex('u'), 'things: index u missing on cluster1'],
    ['an extra index', (db) => db.collection('plain').createIndex({ a: 1 }), 'plain: index a_1 only on cluster1'],
    [
      'a TTL value',
      (db) => db.command({ collMod: 'things', index: { name: 'at', expireAfterSeconds: 1_000_001 } }),
      'things: index at differs in expireAfterSeconds',
    ],
    [
      'a hidden index',
      (db) => db.command({ collMod: 'things', index: { name: 'u', hidden: true } }),
      'things: index u differs in hidden',
    ],
    [
      'the order of a key',
      recreate('nm', { m: -1, n: 1 }, { partialFilterExpression: { n: { $gt: 5 } } }),
      'things: index nm differs in key',
    ],
    [
      'a direction of a key',
      recreate('nm', { n: 1, m: 1 }, { partialFilterExpression: { n: { $gt: 5 } } }),
      'things: index nm differs in key',
    ],
    [
      'a number within an option',
      recreate('nm', { n: 1, m: -1 }, { partialFilterExpression: { n: { $gt: Long.fromInt(5) } } }),
      'things: index nm differs in partialFilterExpression',
    ],
    ['an index that is not unique', recreate('u', { u: 1 }, { sparse: true }), 'things: index u differs in unique'],
  ])('%s', async (_, change, found) => {
    expect(await linesAfter(change)).toEqual([found])
  })
})

describe('the comparison', () => {
  test('excludes secondary indexes with ignoreIndexes', async () => {
    const change = (db: Db) => db.collection('things').dropIndexes()
    expect(await linesAfter(change)).toHaveLength(3)
    expect(await linesAfter(change, { ignoreIndexes: true })).toEqual([])
  })

  test('also excludes a hashed index on _id with ignoreIndexes', async () => {
    const change = (db: Db) => db.collection('things').createIndex({ _id: 'hashed' })
    expect(await linesAfter(change)).toHaveLength(1)
    expect(await linesAfter(change, { ignoreIndexes: true })).toEqual([])
  })

  test('excludes hashed indexes, and no others, with ignoreHashedIndexes', async () => {
    const change = (db: Db) =>
      db
        .collection('things')
        .createIndexes([{ key: { h: 'hashed' } }, { key: { a: 1, h: 'hashed' } }, { key: { p: 1 } }])
    expect(await linesAfter(change)).toHaveLength(3)
    const found = ['things: index p_1 only on cluster1']
    expect(await linesAfter(change, { ignoreHashedIndexes: true })).toEqual(found)
  })

  test('includes one or several namespaces, and never an internal namespace', async () => {
    const [, theirs] = await sides.fill(database, fill)
    await Promise.all([
      theirs.createCollection('more'),
      sides.clients[1].db('tandem_internal').createCollection('sync'),
      theirs.collection('system.js').insertOne({ _id: 'f', value: 1 } as never),
    ])
    const only = (collection: string) => sides.lines('', { namespaces: [{ database, collection }] })
    expect(await sides.audit()).toMatchObject({ totalDifferences: 1 })
    expect(await only('things')).toEqual([])
    expect(await only('more')).toEqual(['defined.more: collection only on cluster1'])
    await expect(only('thing')).rejects.toThrow('--namespace defined.thing is on neither cluster')
    await sides.clients[1].db('tandem_internal').dropDatabase()
  })

  test('reports each collection of a database that only one side has', async () => {
    await sides.fill(database, fill)
    await sides.clients[0].db('alone').collection('c').insertOne({ n: 1 })
    const report = await sides.audit()
    expect(report.differences).toEqual([{ namespace: 'alone.c', what: 'collection', how: 'missing' }])
    await sides.clients[0].db('alone').dropDatabase()
  })

  test('cannot include a time-series collection, which causes an error', async () => {
    await sides.fill(database, (db) => db.createCollection('series', { timeseries: { timeField: 't' } }))
    await expect(sides.audit()).rejects.toThrow('defined.series is a time-series collection')
    expect((await sides.audit({ skipTimeSeries: true })).differences).toEqual([])
    // The time-series collection is left out, but a collection with its name on the other cluster is compared.
    const [ours, theirs] = sides.clients.map((client) => client.db(database))
    await theirs?.dropCollection('series')
    expect((await sides.audit({ skipTimeSeries: true })).differences).toEqual([])
    await theirs?.collection('series').insertOne({ n: 1 })
    const extra = { namespace: 'defined.series', what: 'collection', how: 'extra' }
    expect((await sides.audit({ skipTimeSeries: true })).differences).toEqual([extra])
    await ours?.dropDatabase()
    await sides.fill(database, async () => {})
  })
})
