import { Binary, type Db, type Document, Double, Int32, Long, Timestamp } from 'mongodb'

/** The mismatch that the verifier must report for a corruption: exactly this, and nothing else. */
export interface Expected {
  namespace: string
  kind: string
  id?: unknown
  field?: string
}

/** Moments of a migration at which something is corrupted. */
export const phases = ['copying', 'hashing', 'applying', 'committing'] as const
export type Phase = (typeof phases)[number]

/** A single corruption of the destination, as a defect of tandem or a foreign write might leave it. */
export interface Corruption {
  name: string
  apply: (destination: Db, source: Db) => Promise<unknown>
  expected: Expected
  /** Removes a corruption that `repair` cannot remove. */
  remove?: (destination: Db) => Promise<unknown>
  /** Phases in which the corruption makes sense. Default: all. */
  phases?: readonly Phase[]
  /** For each phase in which the corruption is gone before the verdict: why that is correct. */
  gone?: Partial<Record<Phase, string>>
  /** True if tandem loses events, and there is no foreign write. */
  dropsEvents?: boolean
  /** True if the corruption is made before the collection's own documents are copied. */
  beforeItsCopy?: boolean
}

export const corrupted = 'app'

/** Loads data into the source that every corruption can corrupt. */
export async function seedForCorruptions(source: Db): Promise<void> {
  const things = source.collection<Document>('things')
  const rows: Document[] = []
  for (let number = 0; number < 400; number++) rows.push(thing(number))
  await things.insertMany(rows as never[])
  await things.createIndexes([
    { key: { size: 1 }, name: 'bySize' },
    { key: { at: 1 }, name: 'expiry', expireAfterSeconds: 86_400 * 365 * 50 },
    { key: { code: 1 }, name: 'code', unique: true },
    { key: { 'inner.a': 1 }, name: 'sparse', sparse: true },
    { key: { text: 1 }, name: 'partial', partialFilterExpression: { size: { $gt: 3 } } },
  ])
  await source.createCollection('log', { capped: true, size: 1_000_000, max: 5_000 })
  await source
    .collection('log')
    .insertMany(Array.from({ length: 50 }, (_, number) => ({ _id: number as never, line: `line ${number}` })))
  await source.createCollection('words', { collation: { locale: 'en', strength: 2 } })
  await source.collection<Document>('words').insertMany([
    { _id: 'Abc', n: 1 },
    { _id: 'Def', n: 2 },
  ] as never[])
  await source.createCollection('checked', { validator: { size: { $gte: 0 } }, validationLevel: 'moderate' })
  await source.collection<Document>('checked').insertMany([{ size: 1 }, { size: 2 }])
  await source.createCollection('images', { changeStreamPreAndPostImages: { enabled: true } })
  await source.createCollection('ordered', { clusteredIndex: { key: { _id: 1 }, unique: true } })
  await source.collection<Document>('ordered').insertMany([
    { _id: 1, a: 1 },
    { _id: 2, a: 2 },
  ] as never[])
  await source.createCollection('large', { viewOn: 'things', pipeline: [{ $match: { size: { $gt: 5 } } }] })
}

function thing(number: number): Document {
  return {
    _id: number,
    size: new Int32(number % 20),
    code: `c${number}`,
    text: `text of ${number}`,
    at: new Date(1_700_000_000_000 + number),
    big: Long.fromNumber(number),
    ratio: new Double(number),
    flag: number % 2 === 0,
    inner: { a: number, list: [1, { b: 2 }, 'x'] },
    data: new Binary(Buffer.from(`data ${number}`)),
    stamp: new Timestamp({ t: 1, i: number }),
    nothing: null,
  }
}

const bypass = { mayBypassWriteBlocking: true }
const namespace = (collection: string): string => `${corrupted}.${collection}`
const int = (value: number) => ({ $numberInt: String(value) })

/** The phase `committing` is missing, because a write on the source then fails the sync with another error. */
const lost = { dropsEvents: true, phases: ['copying', 'hashing', 'applying'] } as const
const writtenAgain = 'the event of the later write makes the document equal'
const restoredLater = 'the commit itself replaces this option after this moment'

const update = (collection: string, _id: unknown, change: Document | Document[]) => (db: Db) =>
  db.command({ update: collection, updates: [{ q: { _id }, u: change }], bypassDocumentValidation: true, ...bypass })
const content = (name: string, field: string, change: Document | Document[], _id = 7): Corruption => ({
  name,
  apply: update('things', _id, change),
  expected: { namespace: namespace('things'), kind: 'content', id: int(_id), field },
})
const collMod = (
  name: string,
  collection: string,
  change: Document,
  expected: Omit<Expected, 'namespace'>,
  gone: Corruption['gone'] = {},
): Corruption => ({
  name,
  apply: (db) => db.command({ collMod: collection, ...change, ...bypass }),
  expected: { namespace: namespace(collection), ...expected },
  gone,
})

export const corruptions: Corruption[] = [
  content('a changed string', 'text', { $set: { text: 'text of 8' } }),
  content('a changed byte in binary data', 'data', { $set: { data: new Binary(Buffer.from('dat@ 7')) } }),
  content('int32 for int64', 'big', { $set: { big: new Int32(7) } }),
  content('double for int32', 'size', { $set: { size: new Double(7) } }),
  content('int64 for double', 'ratio', { $set: { ratio: Long.fromNumber(7) } }),
  content('true for false', 'flag', { $set: { flag: true } }),
  content('another millisecond', 'at', { $set: { at: new Date(1_700_000_000_008) } }),
  content('another ordinal of a timestamp', 'stamp', { $set: { stamp: new Timestamp({ t: 1, i: 8 }) } }),
  content('null for a value', 'text', { $set: { text: null } }),
  content('a missing null', 'nothing', { $unset: { nothing: 1 } }),
  content('an additional field', 'more', { $set: { more: 1 } }),
  content('a renamed field', 'text', [{ $set: { renamed: '$text' } }, { $unset: 'text' }]),
  content('fields in another order', 'size', [
    { $replaceWith: { $mergeObjects: [{ _id: '$_id', code: '$code' }, '$$ROOT'] } },
  ]),
  content('a nested value', 'inner.a', { $set: { 'inner.a': 8 } }),
  content('an element of an array', 'inner.list.0', { $set: { 'inner.list.0': 9 } }),
  content('a document in an array', 'inner.list.1.b', { $set: { 'inner.list.1.b': 3 } }),
  content('a longer array', 'inner.list.3', { $push: { 'inner.list': 'y' } }),
  content('a shorter array', 'inner.list.2', { $pop: { 'inner.list': 1 } }),
  content('an emptied string', 'text', { $set: { text: '' } }),
  content('a change of the first document', 'text', { $set: { text: 'x' } }, 0),
  content('a change of the last document', 'text', { $set: { text: 'x' } }, 399),
  {
    name: 'a missing document',
    apply: (db) => db.command({ delete: 'things', deletes: [{ q: { _id: 11 }, limit: 1 }], ...bypass }),
    expected: { namespace: namespace('things'), kind: 'missing', id: int(11) },
  },
  {
    name: 'an extra document',
    apply: (db) => db.command({ insert: 'things', documents: [{ _id: 10_000 }], ...bypass }),
    expected: { namespace: namespace('things'), kind: 'extra', id: int(10_000) },
  },
  {
    name: 'an extra document with an _id of another type',
    apply: (db) => db.command({ insert: 'things', documents: [{ _id: '7' }], ...bypass }),
    expected: { namespace: namespace('things'), kind: 'extra', id: '7' },
  },
  {
    name: '_id spelled as another number type',
    apply: async (db) => {
      await db.command({ delete: 'ordered', deletes: [{ q: { _id: 1 }, limit: 1 }], ...bypass })
      await db.command({ insert: 'ordered', documents: [{ _id: Long.fromNumber(1), a: 1 }], ...bypass })
    },
    expected: { namespace: namespace('ordered'), kind: 'content', id: int(1), field: '_id' },
  },
  {
    name: 'another content in a clustered collection',
    apply: update('ordered', 2, { $set: { a: 3 } }),
    expected: { namespace: namespace('ordered'), kind: 'content', id: int(2), field: 'a' },
  },
  {
    name: 'another content in a collated collection',
    apply: update('words', 'Abc', { $set: { n: 3 } }),
    expected: { namespace: namespace('words'), kind: 'content', id: 'Abc', field: 'n' },
  },
  {
    name: 'a missing document in a collated collection',
    apply: (db) => db.command({ delete: 'words', deletes: [{ q: { _id: 'Def' }, limit: 1 }], ...bypass }),
    expected: { namespace: namespace('words'), kind: 'missing', id: 'Def' },
  },
  {
    name: 'another content in a capped collection',
    apply: update('log', 20, { $set: { line: 'line 21' } }),
    expected: { namespace: namespace('log'), kind: 'content', id: int(20), field: 'line' },
  },
  {
    name: 'another content in a validated collection',
    apply: (db) =>
      db.command({
        update: 'checked',
        updates: [{ q: { size: 1 }, u: { $set: { size: -1 } } }],
        bypassDocumentValidation: true,
        ...bypass,
      }),
    expected: { namespace: namespace('checked'), kind: 'content', field: 'size' },
  },
  collMod(
    'another TTL',
    'things',
    { index: { name: 'expiry', expireAfterSeconds: 86_400 * 365 * 40 } },
    { kind: 'index', field: 'expiry' },
  ),
  collMod('a hidden index', 'things', { index: { name: 'bySize', hidden: true } }, { kind: 'index', field: 'bySize' }),
  collMod(
    'prepareUnique on an index',
    'things',
    { index: { name: 'code', prepareUnique: true } },
    { kind: 'index', field: 'code' },
    { committing: restoredLater },
  ),
  {
    name: 'another key of an index',
    apply: async (db) => {
      await db.command({ dropIndexes: 'things', index: 'bySize', ...bypass })
      await db.command({ createIndexes: 'things', indexes: [{ key: { size: -1 }, name: 'bySize' }], ...bypass })
    },
    expected: { namespace: namespace('things'), kind: 'index', field: 'bySize' },
  },
  {
    name: 'an index that is not sparse',
    apply: async (db) => {
      await db.command({ dropIndexes: 'things', index: 'sparse', ...bypass })
      await db.command({ createIndexes: 'things', indexes: [{ key: { 'inner.a': 1 }, name: 'sparse' }], ...bypass })
    },
    expected: { namespace: namespace('things'), kind: 'index', field: 'sparse' },
  },
  {
    name: 'an extra index',
    apply: (db) => db.command({ createIndexes: 'things', indexes: [{ key: { flag: 1 }, name: 'more' }], ...bypass }),
    expected: { namespace: namespace('things'), kind: 'index', field: 'more' },
  },
  collMod(
    'another validator',
    'checked',
    { validator: { size: { $gte: -5 } } },
    { kind: 'option', field: 'validator' },
  ),
  collMod(
    'another validation level',
    'checked',
    { validationLevel: 'strict' },
    { kind: 'option', field: 'validationLevel' },
  ),
  collMod(
    'pre-images switched off',
    'images',
    { changeStreamPreAndPostImages: { enabled: false } },
    { kind: 'option', field: 'changeStreamPreAndPostImages' },
  ),
  collMod(
    'another pipeline of a view',
    'large',
    { viewOn: 'things', pipeline: [] },
    { kind: 'option', field: 'pipeline' },
  ),
  {
    name: 'an extra collection',
    apply: (db) => db.command({ create: 'foreign', ...bypass }),
    expected: { namespace: namespace('foreign'), kind: 'collection' },
    remove: (db) => db.command({ drop: 'foreign', ...bypass }),
  },
  {
    name: 'a lost insert',
    apply: (_, source) => source.collection<Document>('things').insertOne(thing(500) as never),
    expected: { namespace: namespace('things'), kind: 'missing', id: int(500) },
    ...lost,
  },
  {
    name: 'a lost update',
    apply: (_, source) =>
      source.collection<Document>('things').updateOne({ _id: 7 as never }, { $set: { text: 'new' } }),
    expected: { namespace: namespace('things'), kind: 'content', id: int(7), field: 'text' },
    ...lost,
  },
  {
    name: 'a lost delete',
    apply: (_, source) => source.collection<Document>('things').deleteOne({ _id: 7 as never }),
    expected: { namespace: namespace('things'), kind: 'extra', id: int(7) },
    ...lost,
  },
  {
    name: 'a foreign document in the place of one that is copied later',
    apply: (db) => db.command({ insert: 'things', documents: [{ _id: 7, text: 'foreign' }], ...bypass }),
    expected: { namespace: namespace('things'), kind: 'content', id: int(7), field: 'size' },
    phases: ['copying'],
    beforeItsCopy: true,
  },
  {
    name: 'another content that the source then writes again',
    apply: async (db, source) => {
      await update('things', 7, { $set: { text: 'foreign' } })(db)
      await source.collection<Document>('things').updateOne({ _id: 7 as never }, { $set: { text: 'new' } })
    },
    expected: { namespace: namespace('things'), kind: 'content', id: int(7), field: 'text' },
    phases: ['copying', 'hashing', 'applying'],
    gone: { copying: writtenAgain, hashing: writtenAgain, applying: writtenAgain },
  },
]
