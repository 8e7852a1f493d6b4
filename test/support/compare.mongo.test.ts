import { type Collection, type Db, Double, Int32, Long, MongoClient } from 'mongodb'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { insertRaw, nastyDocument, rawDocument } from './bson-values.ts'
import { compareClusters } from './compare.ts'
import { borrowReplicaSet } from './kept-sets.ts'
import { Random } from './random.ts'
import type { ReplicaSet } from './replica-set.ts'

const onlyId = (value: unknown) => rawDocument([['_id', value]])

/** Fills one side. Both sides get the same content before a test changes one of them. */
async function fill(db: Db): Promise<void> {
  const random = new Random('compare')
  await insertRaw(
    db,
    'things',
    Array.from({ length: 300 }, (_, i) => nastyDocument(random, i, [['n', i]])),
  )
  await insertRaw(db, 'things', ['a', { a: 1, b: 2 }, Long.fromInt(1000), new Double(1001)].map(onlyId))
  await db.collection('things').createIndexes([
    { key: { n: 1, m: 1 }, name: 'nm' },
    { key: { at: 1 }, name: 'at', expireAfterSeconds: 1_000_000 },
  ])
  await db.createCollection('capped', { capped: true, size: 100_000, max: 50 })
  await db.collection<{ _id: number }>('capped').insertMany([5, 3, 9, 1].map((_id) => ({ _id })))
  await db.createCollection('view', { viewOn: 'things', pipeline: [{ $match: { n: 1 } }] })
  await db.createCollection('collated', { collation: { locale: 'en', strength: 2 } })
  await insertRaw(db, 'collated', ['b', 'A', 'c'].map(onlyId))
}

interface Change {
  readonly what: string
  readonly change: (db: Db, things: Collection) => Promise<unknown>
  readonly expected: RegExp
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
    expected: /things: document differs: .*"20".*n=.*20.*21/,
  },
  {
    what: 'a different numeric type',
    change: (_, things) => things.updateOne({ _id: 20 as never }, [{ $set: { n: { $toLong: '$n' } } }]),
    expected: /document differs: .*numberInt.*numberLong/,
  },
  {
    what: 'a missing document',
    change: (_, things) => things.deleteOne({ _id: 299 as never }),
    expected: /things: document missing on destination: .*"299"/,
  },
  {
    what: 'an extra document between others',
    change: (db) => insertRaw(db, 'things', [onlyId(20.5)]),
    expected: /things: document only on destination: .*"20.5"/,
  },
  {
    what: 'an extra document after all others',
    change: (db) => insertRaw(db, 'things', [onlyId(new Date(0))]),
    expected: /document only on destination: .*\$date/,
  },
  {
    what: 'a different index option',
    change: (db) => db.command({ collMod: 'things', index: { name: 'at', expireAfterSeconds: 1_000_001 } }),
    expected: /index at differs: expireAfterSeconds: .*1000000.*1000001/,
  },
  {
    what: 'a different order of the index key',
    change: (_, things) => things.dropIndex('nm').then(() => things.createIndex({ m: 1, n: 1 }, { name: 'nm' })),
    expected: /index nm differs: key: /,
  },
  {
    what: 'a missing index',
    change: (_, things) => things.dropIndex('nm'),
    expected: /index missing on destination: nm/,
  },
  {
    what: 'a different collection option',
    change: (db) => db.command({ collMod: 'things', changeStreamPreAndPostImages: { enabled: true } }),
    expected: /things: option differs: changeStreamPreAndPostImages: unset/,
  },
  {
    what: 'a different capped size',
    change: (db) => db.command({ collMod: 'capped', cappedSize: 100_352 + 256 }),
    expected: /capped: option differs: size: /,
  },
  {
    what: 'a different view pipeline',
    change: (db) => db.command({ collMod: 'view', viewOn: 'things', pipeline: [{ $match: { n: 2 } }] }),
    expected: /view: option differs: pipeline: /,
  },
  {
    what: 'a different natural order of a capped collection',
    change: async (db) => {
      await db.dropCollection('capped')
      await db.createCollection('capped', { capped: true, size: 100_000, max: 50 })
      await db.collection<{ _id: number }>('capped').insertMany([5, 9, 3, 1].map((_id) => ({ _id })))
    },
    expected: /capped: natural order differs: after 1: .*"3".*"9"/,
  },
  {
    what: 'a missing collection',
    change: (db) => db.dropCollection('collated'),
    expected: /collated: missing on destination: collection/,
  },
  {
    what: 'a view where a collection should be',
    change: (db) => db.dropCollection('collated').then(() => db.createCollection('collated', { viewOn: 'things' })),
    expected: /collated: type differs: collection \| view/,
  },
]

/**
 * An `_id` with other bytes that the server considers equal to the old one is reported as a missing and an extra
 * document.
 */
const respellings: readonly (readonly [string, string, unknown, unknown])[] = [
  ['_id 7 as a long', 'things', 7, Long.fromInt(7)],
  ['_id 1000 as an int', 'things', 1000, new Int32(1000)],
  ['an embedded _id with a long', 'things', { a: 1, b: 2 }, { a: Long.fromInt(1), b: 2 }],
  ['a case-insensitive _id in a different case', 'collated', 'a', 'a'],
]

describe('compareClusters', () => {
  let source: ReplicaSet
  let destination: ReplicaSet
  let clients: MongoClient[]

  beforeAll(async () => {
    ;[source, destination] = await Promise.all([borrowReplicaSet(), borrowReplicaSet()])
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

  it('finds no differences between equal clusters and counts what it read', async () => {
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

  it('treats unset and default validation as equal', async () => {
    const validation = { collMod: 'things', validationLevel: 'strict', validationAction: 'error' }
    expect(await differencesAfter((db) => db.command(validation))).toEqual([])
  })

  it.each(changes)('finds $what', async ({ change, expected }) => {
    const differences = await differencesAfter((db) => change(db, db.collection('things')))
    expect(differences).toEqual([expect.stringMatching(expected)])
  })

  it('finds a different field order and a duplicate field', async () => {
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
    const differences = await differencesAfter((db) => replaceBy(db, collection, id, onlyId(respelled)))
    expect(differences).toEqual([
      expect.stringMatching(/document missing on destination/),
      expect.stringMatching(/document only on destination/),
    ])
  })

  it('stops early if almost every document differs', async () => {
    const differences = await differencesAfter((db) =>
      db.collection('things').updateMany({ n: { $type: 'int' } }, { $inc: { n: 1 } }),
    )
    expect(differences).toHaveLength(50)
    expect(await differencesAfter((db) => db.collection('things').deleteMany({}))).toHaveLength(50)
  })
})
