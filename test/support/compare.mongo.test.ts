import { type Collection, type Db, Double, Int32, Long, MongoClient } from 'mongodb'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { insertRaw, nastyDocument, rawDocument } from './bson-values.ts'
import { compareClusters } from './compare.ts'
import { Random } from './random.ts'
import { type ReplicaSet, startReplicaSet } from './replica-set.ts'

const hello = (value: unknown) => rawDocument([['_id', value]])

/** The same on both sides, before one of them is changed. */
async function fill(db: Db): Promise<void> {
  const random = new Random('compare')
  await insertRaw(
    db,
    'things',
    Array.from({ length: 300 }, (_, i) => nastyDocument(random, i, [['n', i]])),
  )
  await insertRaw(db, 'things', ['a', { a: 1, b: 2 }, Long.fromInt(1000), new Double(1001)].map(hello))
  await db.collection('things').createIndexes([
    { key: { n: 1, m: 1 }, name: 'nm' },
    { key: { at: 1 }, name: 'at', expireAfterSeconds: 1_000_000 },
  ])
  await db.createCollection('capped', { capped: true, size: 100_000, max: 50 })
  await db.collection<{ _id: number }>('capped').insertMany([5, 3, 9, 1].map((_id) => ({ _id })))
  await db.createCollection('view', { viewOn: 'things', pipeline: [{ $match: { n: 1 } }] })
  await db.createCollection('collated', { collation: { locale: 'en', strength: 2 } })
  await insertRaw(db, 'collated', ['b', 'A', 'c'].map(hello))
}

interface Change {
  readonly what: string
  readonly change: (db: Db, things: Collection) => Promise<unknown>
  readonly found: RegExp
}

const replaceBy = (db: Db, collection: string, id: unknown, document: Buffer) =>
  db
    .collection(collection)
    .deleteOne({ _id: id as never })
    .then(() => insertRaw(db, collection, [document]))

const seven = (value: unknown) => rawDocument([['_id', 7], ...(value as [string, unknown][])])

const changes: readonly Change[] = [
  {
    what: 'a changed byte',
    change: (_, things) => things.updateOne({ _id: 20 as never }, { $set: { n: 21 } }),
    found: /things: document differs: .*"20".*n=.*20.*21/,
  },
  {
    what: 'another numeric type',
    change: (_, things) => things.updateOne({ _id: 20 as never }, [{ $set: { n: { $toLong: '$n' } } }]),
    found: /document differs: .*numberInt.*numberLong/,
  },
  {
    what: 'a missing document',
    change: (_, things) => things.deleteOne({ _id: 299 as never }),
    found: /things: document missing on destination: .*"299"/,
  },
  {
    what: 'a document too many, between others',
    change: (db) => insertRaw(db, 'things', [hello(20.5)]),
    found: /things: document only on destination: .*"20.5"/,
  },
  {
    what: 'a document too many, behind all others',
    change: (db) => insertRaw(db, 'things', [hello(new Date(0))]),
    found: /document only on destination: .*\$date/,
  },
  {
    what: 'another index option',
    change: (db) => db.command({ collMod: 'things', index: { name: 'at', expireAfterSeconds: 1_000_001 } }),
    found: /index at differs: expireAfterSeconds: .*1000000.*1000001/,
  },
  {
    what: 'another order of the index key',
    change: (_, things) => things.dropIndex('nm').then(() => things.createIndex({ m: 1, n: 1 }, { name: 'nm' })),
    found: /index nm differs: key: /,
  },
  { what: 'a missing index', change: (_, things) => things.dropIndex('nm'), found: /index missing on destination: nm/ },
  {
    what: 'another collection option',
    change: (db) => db.command({ collMod: 'things', changeStreamPreAndPostImages: { enabled: true } }),
    found: /things: option differs: changeStreamPreAndPostImages: unset/,
  },
  {
    what: 'another capped size',
    change: (db) => db.command({ collMod: 'capped', cappedSize: 100_352 + 256 }),
    found: /capped: option differs: size: /,
  },
  {
    what: 'another view pipeline',
    change: (db) => db.command({ collMod: 'view', viewOn: 'things', pipeline: [{ $match: { n: 2 } }] }),
    found: /view: option differs: pipeline: /,
  },
  {
    what: 'another natural order of a capped collection',
    change: async (db) => {
      await db.dropCollection('capped')
      await db.createCollection('capped', { capped: true, size: 100_000, max: 50 })
      await db.collection<{ _id: number }>('capped').insertMany([5, 9, 3, 1].map((_id) => ({ _id })))
    },
    found: /capped: natural order differs: after 1: .*"3".*"9"/,
  },
  {
    what: 'a missing collection',
    change: (db) => db.dropCollection('collated'),
    found: /collated: missing on destination: collection/,
  },
  {
    what: 'a view where a collection should be',
    change: (db) => db.dropCollection('collated').then(() => db.createCollection('collated', { viewOn: 'things' })),
    found: /collated: type differs: collection \| view/,
  },
]

/** An `_id` that the server holds equal to the old one is reported twice, as the old one missing and the new one too many. */
const respellings: readonly (readonly [string, string, unknown, unknown])[] = [
  ['_id 7 as a long', 'things', 7, Long.fromInt(7)],
  ['_id 1000 as an int', 'things', 1000, new Int32(1000)],
  ['an embedded _id with a long', 'things', { a: 1, b: 2 }, { a: Long.fromInt(1), b: 2 }],
  ['a caseless _id in another case', 'collated', 'a', 'a'],
]

describe('compareClusters', () => {
  let source: ReplicaSet
  let destination: ReplicaSet
  let clients: MongoClient[]

  beforeAll(async () => {
    ;[source, destination] = await Promise.all([startReplicaSet(), startReplicaSet()])
    clients = [new MongoClient(source.uri), new MongoClient(destination.uri)]
  })

  afterAll(async () => {
    await Promise.all((clients ?? []).map((client) => client.close()))
    await Promise.all([source?.stop(), destination?.stop()])
  })

  async function differencesAfter(change: (db: Db) => Promise<unknown>): Promise<string[]> {
    const [ours, theirs] = clients.map((client) => client.db('compared')) as [Db, Db]
    await Promise.all([ours.dropDatabase(), theirs.dropDatabase()])
    await Promise.all([fill(ours), fill(theirs)])
    await change(theirs)
    const { equal, differences } = await compareClusters(source.uri, destination.uri)
    expect(equal).toBe(differences.length === 0)
    return differences
  }

  it('finds nothing between equals and counts what it read', async () => {
    expect(await differencesAfter(async () => {})).toEqual([])
    const { collections, documents, bytes } = await compareClusters(source.uri, destination.uri)
    expect({ collections, documents }).toEqual({ collections: 4, documents: 304 + 4 + 3 })
    expect(bytes).toBeGreaterThan(10_000)
    await clients[1]?.db('foreign').collection('c').insertOne({})
    expect(await compareClusters(source.uri, destination.uri, { ignoreDatabases: ['foreign'] })).toMatchObject({
      equal: true,
    })
    await clients[1]?.db('foreign').dropDatabase()
  })

  it('holds unset and default validation to be the same', async () => {
    const validation = { collMod: 'things', validationLevel: 'strict', validationAction: 'error' }
    expect(await differencesAfter((db) => db.command(validation))).toEqual([])
  })

  it.each(changes)('finds $what', async ({ change, found }) => {
    const differences = await differencesAfter((db) => change(db, db.collection('things')))
    expect(differences).toEqual([expect.stringMatching(found)])
  })

  it('finds another order of fields, and a field that is there twice', async () => {
    const [ours, theirs] = clients.map((client) => client.db('compared')) as [Db, Db]
    const inOrder = [
      ['a', 1],
      ['b', 2],
    ]
    for (const other of [
      [
        ['b', 2],
        ['a', 1],
      ],
      [
        ['a', 1],
        ['b', 2],
        ['b', 2],
      ],
    ]) {
      const differences = await differencesAfter(async () => {
        await replaceBy(ours, 'things', 7, seven(inOrder))
        await replaceBy(theirs, 'things', 7, seven(other))
      })
      expect(differences).toEqual([expect.stringMatching(/things: document differs: \{"\$numberInt":"7"\}/)])
    }
  })

  it.each(respellings)('finds %s', async (_, collection, id, respelled) => {
    const differences = await differencesAfter((db) => replaceBy(db, collection, id, hello(respelled)))
    expect(differences).toEqual([
      expect.stringMatching(/document missing on destination/),
      expect.stringMatching(/document only on destination/),
    ])
  })

  it('stops early when next to everything differs', async () => {
    const differences = await differencesAfter((db) =>
      db.collection('things').updateMany({ n: { $type: 'int' } }, { $inc: { n: 1 } }),
    )
    expect(differences).toHaveLength(50)
    expect(await differencesAfter((db) => db.collection('things').deleteMany({}))).toHaveLength(50)
  })
})
