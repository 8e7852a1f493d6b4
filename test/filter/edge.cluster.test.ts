import type { Db, Document } from 'mongodb'
import { describe, expect, test, vi } from 'vitest'
import type { Progress } from '../../src/domain/progress.ts'
import type { Selects } from '../support/compare.ts'
import { compareBoth } from '../support/compare-both.ts'
import { fingerprints } from '../support/fingerprints.ts'
import { pairedSets } from '../support/paired-sets.ts'
import { startSync, type Tandem } from '../support/tandem-process.ts'

/** What happens at a filter's edge. `shop` is included as a whole but for `log`, of `zoo` three names are. */

const pair = pairedSets()
const patience = { timeout: 30_000, interval: 20 }

const filter = {
  includeNamespaces: [{ database: 'shop' }, { database: 'zoo', collections: ['cage', 'cage two', 'view'] }],
  excludeNamespaces: [{ database: 'shop', collections: ['log', 'log view'] }],
}
const zooNames = '(cage( two)?|view)$'
/** The same, said in every way that there is. Where a test costs seconds, ways and cases take turns. */
const spellings: [how: string, filter: Document][] = [
  ['names', filter],
  [
    'patterns',
    {
      includeNamespaces: [
        { databaseRegex: { pattern: '^sho?p$' } },
        { databaseRegex: { pattern: '^Z O+$', options: 'ix' }, collectionsRegex: { pattern: `^${zooNames}` } },
      ],
      excludeNamespaces: [{ databaseRegex: { pattern: 'p$' }, collectionsRegex: { pattern: '^LOG', options: 'si' } }],
    },
  ],
  [
    'nothing but what is included',
    {
      includeNamespaces: [
        { database: 'shop', collectionsRegex: { pattern: '^(?!log( view)?$)' } },
        { databaseRegex: { pattern: '^zoo$' }, collections: ['cage', 'cage two', 'view'] },
      ],
    },
  ],
  [
    'nothing but what is excluded',
    {
      excludeNamespaces: [
        { database: 'away' },
        { databaseRegex: { pattern: '^sh' }, collections: ['log', 'log view'] },
        { database: 'zoo', collectionsRegex: { pattern: `^(?!${zooNames})` } },
      ],
    },
  ],
]
const selects: Selects = (database, name) =>
  (database === 'shop' && !['log', 'log view'].includes(name)) ||
  (database === 'zoo' && ['cage', 'cage two', 'view'].includes(name))

const db = (name: string): Db => pair.sourceClient.db(name)
const rename = (from: string, to: string, dropTarget = false): Promise<Document> =>
  db('admin').command({ renameCollection: from, to, dropTarget })
const into = (database: string, collection: string): Promise<Document[]> =>
  db('zoo')
    .collection('free')
    .aggregate([{ $out: { db: database, coll: collection } }])
    .toArray()

async function seed(): Promise<void> {
  const documents = (from: number): Document[] => Array.from({ length: 50 }, (_, at) => ({ n: from + at }))
  for (const [at, name] of ['cage', 'free', 'wild'].entries()) {
    await db('zoo')
      .collection(name)
      .insertMany(documents(at * 100))
  }
  for (const [at, name] of ['orders', 'log'].entries()) {
    await db('shop')
      .collection(name)
      .insertMany(documents(at * 100))
  }
  await db('away').collection('things').insertMany(documents(0))
}

/** Others' on the destination, beside and under names that are left out. */
async function seedOthers(): Promise<Record<string, string>> {
  const others = pair.destinationClient
  await others.db('zoo').collection('free').insertOne({ mine: true })
  await others.db('zoo').createCollection('window', { viewOn: 'free', pipeline: [] })
  await others.db('shop').collection('log').insertOne({ mine: true })
  await others.db('shop').createCollection('log view', { viewOn: 'log', pipeline: [] })
  return await fingerprints(pair.destination.uri, () => true)
}

const running = async (said: Document = filter): Promise<Tandem> => {
  const tandem = await pair.startInstance()
  await startSync(tandem, said)
  await tandem.waitFor((progress) => progress.canCommit, { timeoutSeconds: 30, what: 'ready to commit' })
  return tandem
}

async function commit(tandem: Tandem): Promise<void> {
  expect(await tandem.post('commit')).toEqual({ status: 200, body: { success: true } })
  await tandem.waitFor(({ state }) => state === 'COMMITTED', { timeoutSeconds: 30, what: 'committed' })
}

async function expectSelectedEqual(): Promise<void> {
  const { differences } = await compareBoth(pair.source.uri, pair.destination.uri, { selects })
  expect(differences).toEqual([])
}

describe('4.5: what may happen at the edge', () => {
  test.each(spellings)(
    'said by %s: is followed where it is selected, and leaves everything else as it was',
    async (_how, said) => {
      await seed()
      const before = await seedOthers()
      // A view of what is left out, and of what is not there.
      await db('zoo').createCollection('view', { viewOn: 'free', pipeline: [{ $match: { n: { $gt: 120 } } }] })
      await db('shop').createCollection('view', { viewOn: 'gone', pipeline: [] })
      await db('zoo').createCollection('weather', { timeseries: { timeField: 'at' } })
      await using tandem = await running(said)

      // Names that did not exist yet, and one that comes back.
      await db('zoo').collection('cage two').insertOne({ new: true })
      await db('shop').collection('new').insertOne({ new: true })
      await db('zoo').dropCollection('cage two')
      await db('zoo').collection('cage two').insertOne({ again: true })
      // Within the filter, over a name that stands, and wholly outside.
      await rename('zoo.cage', 'zoo.cage two', true)
      await rename('zoo.cage two', 'zoo.cage')
      await rename('shop.orders', 'shop.bills')
      await rename('zoo.wild', 'zoo.tame')
      // Across databases: into one that is included, and out of it again, which is a drop.
      await rename('away.things', 'shop.entered')
      await rename('shop.new', 'away.left')
      await rename('zoo.cage', 'away.cage')
      await rename('away.cage', 'zoo.outside')
      // $out into an included database, and to what is left out of it and of one that is included by names.
      await into('shop', 'report')
      await into('shop', 'log')
      await into('zoo', 'tame')
      await db('zoo')
        .collection('free')
        .aggregate([{ $merge: { into: 'cage', on: '_id' } }])
        .toArray()
      // Every change of a definition of what is left out.
      await db('shop').collection('log').createIndex({ n: 1 }, { unique: true, expireAfterSeconds: 5 })
      await db('shop').command({ convertToCapped: 'log', size: 100_000 })
      await db('zoo').command({ convertToCapped: 'tame', size: 100_000 })
      await db('shop').createCollection('log view', { viewOn: 'orders', pipeline: [] })
      await db('shop').command({ collMod: 'log view', viewOn: 'bills', pipeline: [] })
      await db('zoo').createCollection('climate', { timeseries: { timeField: 'at' } })
      await db('zoo').collection('climate').insertOne({ at: new Date() })
      await db('away').dropDatabase()
      await db('shop').collection('bills').createIndex({ n: 1 }, { unique: true })
      await db('zoo').command({ collMod: 'view', viewOn: 'tame', pipeline: [] })

      await commit(tandem)
      await expectSelectedEqual()
      const shop = pair.destinationClient.db('shop')
      const names = (await shop.listCollections({}, { nameOnly: true }).toArray()).map(({ name }) => name)
      expect(names).toEqual(expect.arrayContaining(['bills', 'entered', 'report', 'view']))
      expect(await shop.collection('entered').countDocuments()).toBe(50)
      expect(await fingerprints(pair.destination.uri, (...of) => !selects(...of))).toEqual(before)
    },
  )

  test.each(spellings)(
    'said by %s: a database that is dropped loses what is selected of it, and nothing else',
    async (_how, said) => {
      await seed()
      const before = await seedOthers()
      await using tandem = await running(said)
      await db('zoo').dropDatabase()
      await db('shop').dropDatabase()
      await vi.waitFor(async () => expect(await fingerprints(pair.destination.uri, selects)).toEqual({}), patience)
      await db('zoo').collection('cage').insertOne({ after: true })
      await commit(tandem)
      await expectSelectedEqual()
      expect(await fingerprints(pair.destination.uri, (...of) => !selects(...of))).toEqual(before)
    },
  )
})

describe('4.5: starts that are refused', () => {
  const refused: [what: string, body: Document, status: number, error: string, description: RegExp][] = [
    [
      'a pattern that the server does not take',
      { includeNamespaces: [{ database: 'zoo' }, { database: 'zoo', collectionsRegex: { pattern: 'cage(' } }] },
      400,
      'InvalidRequest',
      /^includeNamespaces\[1\]\.collectionsRegex: .*missing/,
    ],
    [
      'blocking of both clusters',
      { ...filter, enableUserWriteBlocking: 'sourceAndDestination' },
      422,
      'WriteBlockingNotSupported',
      /includeNamespaces/,
    ],
    ['a reversible sync', { ...filter, reversible: true }, 422, 'ReversibleNotSupported', /excludeNamespaces/],
    [
      'a selected name on the destination',
      { includeNamespaces: [{ database: 'zoo', collectionsRegex: { pattern: '^FR', options: 'i' } }] },
      422,
      'DestinationNotEmpty',
      /zoo\.free, which is to be synced/,
    ],
    [
      'a view of a selected name there',
      { includeNamespaces: [{ database: 'zoo', collections: ['window'] }] },
      422,
      'DestinationNotEmpty',
      /zoo\.window/,
    ],
    [
      'a time series that is selected',
      { includeNamespaces: [{ database: 'zoo', collections: ['weather'] }] },
      422,
      'UnsupportedCollection',
      /zoo\.weather/,
    ],
  ]

  test('each by its name, nothing is changed, and a filter that leaves the cause out is accepted', async () => {
    await seed()
    await db('zoo').createCollection('weather', { timeseries: { timeField: 'at' } })
    const before = await seedOthers()
    await using tandem = await pair.startInstance()
    for (const [what, body, status, error, description] of refused) {
      const answer = await tandem.post('start', { source: 'cluster0', destination: 'cluster1', ...body })
      expect([what, answer]).toEqual([
        what,
        { status, body: { success: false, error, errorDescription: expect.stringMatching(description) } },
      ])
    }
    expect(await fingerprints(pair.destination.uri, () => true)).toEqual(before)
    await startSync(tandem, { includeNamespaces: [{ database: 'zoo', collections: ['cage'] }] })
  })
})

const failures: [what: string, act: () => Promise<unknown>, description: RegExp][] = [
  ['a rename out', () => rename('zoo.cage', 'zoo.open'), /zoo\.cage was renamed to zoo\.open, which the filter leaves/],
  ['a rename to what is excluded', () => rename('shop.orders', 'shop.log', true), /shop\.orders .* shop\.log/],
  ['a rename in', () => rename('zoo.wild', 'zoo.cage two'), /zoo\.wild, which the filter leaves out.* zoo\.cage two/],
  ['a rename in over a name that stands', () => rename('shop.log', 'shop.orders', true), /shop\.log.* shop\.orders/],
  ['a rename from another database to a name', () => rename('away.things', 'zoo.cage two'), /renamed to zoo\.cage two/],
  ['$out to a name', () => into('zoo', 'cage'), /tmp\.agg_out.* zoo\.cage,.*\$out/],
  [
    'convertToCapped of a name',
    () => db('zoo').command({ convertToCapped: 'cage', size: 9_999 }),
    /convertToCapped of zoo/,
  ],
  [
    'convertToCapped in an included database',
    () => db('shop').command({ convertToCapped: 'orders', size: 9_999 }),
    /convertToCapped of shop\.orders/,
  ],
]

const failed = (tandem: Tandem): Promise<Progress> =>
  tandem.waitFor(({ state }) => state === 'FAILED', { timeoutSeconds: 30, what: 'failed' })

describe('4.5: what cannot be followed at the edge', () => {
  // At any time after start, so also while everything is still being copied.
  test.each(
    failures.map(([what, act, text], at) => {
      const [how, said] = spellings[at % spellings.length] as (typeof spellings)[number]
      return [how, what, said, act, text] as const
    }),
  )('said by %s: %s is UnsupportedChange', async (_how, _what, said, act, description) => {
    await seed()
    const before = await seedOthers()
    await using tandem = await pair.startInstance()
    await startSync(tandem, { ...said, verification: { enabled: false } })
    await act()
    const { failure } = await failed(tandem)
    expect(failure).toEqual({ error: 'UnsupportedChange', errorDescription: expect.stringMatching(description) })
    expect(await fingerprints(pair.destination.uri, (...of) => !selects(...of))).toEqual(before)
  })

  test('it stays so after a resume: nothing goes on from behind the event', async () => {
    await seed()
    await using tandem = await running()
    await rename('zoo.wild', 'zoo.cage two')
    const { failure } = await failed(tandem)
    expect(failure?.error).toBe('UnsupportedChange')
    await db('zoo').collection('cage two').insertOne({ after: true })
    expect(await tandem.post('resume')).toMatchObject({ status: 200 })
    expect((await failed(tandem)).failure).toEqual(failure)
  })
})

describe('4.5: writes during the commit', () => {
  test('to what is left out are no matter (see also the workload), to what is selected are SourceWritten', async () => {
    await seed()
    await using tandem = await running()
    const writing = new AbortController()
    const write = async (database: string, name: string): Promise<void> => {
      while (!writing.signal.aborted) {
        await db(database).collection(name).insertOne({ at: new Date() })
        await db(database).collection(name).deleteOne({})
      }
    }
    const left = Promise.all([write('shop', 'log'), write('zoo', 'free'), write('away', 'things')])
    const bad = write('zoo', 'cage')
    await tandem.post('commit')
    const { failure } = await failed(tandem)
    expect(failure).toEqual({ error: 'SourceWritten', errorDescription: expect.stringContaining('zoo.cage') })
    writing.abort()
    await Promise.all([left, bad])
  })
})
