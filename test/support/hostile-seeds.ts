import {
  type Binary,
  BSONSymbol,
  type Db,
  Decimal128,
  Double,
  Int32,
  Long,
  type MongoClient,
  ObjectId,
  Timestamp,
} from 'mongodb'

/**
 * Pairs of `_id`s that are equal for the server, which compares numbers of different types by value, and symbols like
 * strings.
 */
const equalIds: [source: unknown, destination: unknown][] = [
  [new Int32(1), Decimal128.fromString('1')],
  [Long.fromInt(2), Decimal128.fromString('2.00')],
  [new Double(3), Decimal128.fromString('3')],
  [Decimal128.fromString('4.0'), new Double(4)],
  [Decimal128.fromString('5.0'), Decimal128.fromString('5')],
  [new Double(-0), new Int32(0)],
  [new Double(Number.NaN), Decimal128.fromString('NaN')],
  [new Double(Number.POSITIVE_INFINITY), Decimal128.fromString('Infinity')],
  ['text', new BSONSymbol('text')],
  [
    { k: new Int32(1), l: [new Double(2)] },
    { k: Decimal128.fromString('1.0'), l: [Long.fromInt(2)] },
  ],
]

/** Pairs of different values that most comparisons take for equal. */
const similarValues: [source: unknown, destination: unknown][] = [
  [new Int32(1), new Double(1)],
  [new Int32(1), '1'],
  [new Double(0), new Double(-0)],
  [Decimal128.fromString('1.0'), Decimal128.fromString('1.00')],
  ['x', new BSONSymbol('x')],
  [[1], 1],
  [[], {}],
  [null, 'null'],
  [
    { a: 1, b: 2 },
    { b: 2, a: 1 },
  ],
  [new Date(1_000), new Timestamp({ t: 1, i: 0 })],
  [new ObjectId('0123456789ab0123456789ab'), '0123456789ab0123456789ab'],
  [Buffer.from('x') as unknown as Binary, 'x'],
]

type Any = { _id: unknown; [field: string]: unknown }

const insert = async (db: Db, name: string, documents: Any[]): Promise<unknown> =>
  await db.collection<Any>(name).insertMany(documents)

/**
 * Fills the database `hostile` of both clusters with data that is difficult to converge, because indexes or
 * validators of one side refuse documents of the other side, or because values are equal for the server and not equal
 * in bytes.
 */
export async function seedHostile(source: MongoClient, destination: MongoClient): Promise<void> {
  const [from, to] = [source.db('hostile'), destination.db('hostile')]
  await seedEqualValues(from, to)
  await seedRefusingIndexes(from, to)
  await seedNames(source, destination)

  // A validator that refuses every document of the source.
  await from.createCollection('refused')
  await insert(from, 'refused', [{ _id: 1, a: 1 }, { _id: 2 }])
  await to.createCollection('refused', { validator: { b: { $exists: true } }, validationLevel: 'strict' })
  await insert(to, 'refused', [{ _id: 1, b: 1 }])
  // A validator that refuses every document of the destination.
  await from.createCollection('strict', { validator: { a: { $exists: true } }, validationLevel: 'strict' })
  await insert(from, 'strict', [{ _id: 1, a: 1 }])
  await insert(to, 'strict', [{ _id: 1 }, { _id: 2 }])
  // Only the source records pre- and post-images of changes.
  await from.createCollection('images', { changeStreamPreAndPostImages: { enabled: true } })
  await insert(from, 'images', [{ _id: 1, a: 1 }])
  await insert(to, 'images', [{ _id: 1, a: 2 }])
}

async function seedEqualValues(from: Db, to: Db): Promise<void> {
  await insert(
    from,
    'ids',
    equalIds.map(([_id]) => ({ _id, same: 1 })),
  )
  await insert(
    to,
    'ids',
    equalIds.map(([, _id]) => ({ _id, same: 1 })),
  )
  await from.createCollection('clusteredIds', { clusteredIndex: { key: { _id: 1 }, unique: true } })
  await to.createCollection('clusteredIds', { clusteredIndex: { key: { _id: 1 }, unique: true } })
  await insert(
    from,
    'clusteredIds',
    equalIds.map(([_id]) => ({ _id })),
  )
  await insert(
    to,
    'clusteredIds',
    equalIds.map(([, _id]) => ({ _id })),
  )
  await insert(
    from,
    'values',
    similarValues.map(([value], _id) => ({ _id, value })),
  )
  await insert(
    to,
    'values',
    similarValues.map(([, value], _id) => ({ _id, value })),
  )
}

async function seedRefusingIndexes(from: Db, to: Db): Promise<void> {
  // Documents that have exchanged their unique values.
  const values = ['a', 'b', 'c']
  await insert(
    from,
    'exchanged',
    values.map((u, _id) => ({ _id, u })),
  )
  await insert(
    to,
    'exchanged',
    values.map((_, _id) => ({ _id, u: values[(_id + 1) % 3] })),
  )
  for (const db of [from, to]) await db.collection('exchanged').createIndex({ u: 1 }, { unique: true })

  // Indexes of the destination that refuse documents of the source.
  const arrays = { a: [1, 2], b: [3, 4] }
  await insert(from, 'refusedByIndexes', [
    { _id: 1, ...arrays },
    { _id: 2, loc: 'nowhere', ...arrays },
  ])
  await insert(to, 'refusedByIndexes', [{ _id: 1, a: 1, b: 1, loc: [0, 0] }, { _id: 3 }])
  await to.collection('refusedByIndexes').createIndex({ a: 1, b: 1 })
  await to.collection('refusedByIndexes').createIndex({ loc: '2dsphere' })
  await insert(
    from,
    'prepared',
    [1, 1, 1].map((same, _id) => ({ _id, same })),
  )
  await insert(to, 'prepared', [{ _id: 3, same: 1 }])
  for (const db of [from, to]) await db.collection('prepared').createIndex({ same: 1 })
  await to.command({ collMod: 'prepared', index: { keyPattern: { same: 1 }, prepareUnique: true } })

  // Indexes of the source that refuse documents of the destination.
  await insert(from, 'refusing', [{ _id: 1, a: 1, b: 1, loc: [0, 0], at: new Date(), text: 'x', language: 'en' }])
  await from.collection('refusing').createIndex({ a: 1, b: 1 })
  await from.collection('refusing').createIndex({ loc: '2dsphere' })
  await from.collection('refusing').createIndex({ text: 'text' })
  await from.collection('refusing').createIndex({ at: 1 }, { unique: true })
  await insert(to, 'refusing', [
    { _id: 1, ...arrays, loc: 'nowhere' },
    { _id: 2, ...arrays, text: 'x', language: 'unknown' },
    { _id: 3, loc: { type: 'Point' } },
  ])
}

async function seedNames(source: MongoClient, destination: MongoClient): Promise<void> {
  const [from, to] = [source.db('hostile'), destination.db('hostile')]
  // Views of views. Two names are a view on one side and a collection on the other.
  await from.createCollection('outer', { viewOn: 'inner', pipeline: [{ $match: { a: 1 } }] })
  await from.createCollection('inner', { viewOn: 'ids', pipeline: [] })
  await insert(to, 'outer', [{ _id: 1 }])
  await to.createCollection('inner', { viewOn: 'outer', pipeline: [] })
  await insert(from, 'shown', [{ _id: 1 }])
  await to.createCollection('shown', { viewOn: 'inner', pipeline: [] })
  // The server does not create a database whose name differs from another one only in its letters' case.
  await insert(source.db('letters'), 'things', [{ _id: 1 }])
  await insert(destination.db('Letters'), 'things', [{ _id: 2 }])
  await destination.db('Letters').createCollection('seen', { viewOn: 'things', pipeline: [] })
}
