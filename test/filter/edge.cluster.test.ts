import type { Db, Document } from 'mongodb'
import { describe, expect, test, vi } from 'vitest'
import type { Progress } from '../../src/domain/progress.ts'
import type { Selects } from '../support/compare.ts'
import { compareBoth } from '../support/compare-both.ts'
import { failPoint } from '../support/fail-point.ts'
import { fingerprints } from '../support/fingerprints.ts'
import { expectAccepted, startInstances } from '../support/instances.ts'
import { convergencesOf } from '../support/lost-history.ts'
import { pairedSets } from '../support/paired-sets.ts'
import { startSync, type Tandem } from '../support/tandem-process.ts'
import { untilApplied } from '../support/until-applied.ts'

/** Changes at a filter's edge. The filter includes the database `shop` except `log` and `log view`, and three names of `zoo`. */

const pair = pairedSets()
const patience = { timeout: 30_000, interval: 20 }

const filter = {
  includeNamespaces: [{ database: 'shop' }, { database: 'zoo', collections: ['cage', 'cage two', 'view'] }],
  excludeNamespaces: [{ database: 'shop', collections: ['log', 'log view'] }],
}
const zooNames = '(cage( two)?|view)$'
/** The same filter, written in every way. Tests that take seconds use each case with only one of them. */
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
    'includes only',
    {
      includeNamespaces: [
        { database: 'shop', collectionsRegex: { pattern: '^(?!log( view)?$)' } },
        { databaseRegex: { pattern: '^zoo$' }, collections: ['cage', 'cage two', 'view'] },
      ],
    },
  ],
  [
    'excludes only',
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

/** Creates foreign collections on the destination, some of them under names that the filter leaves out. */
async function seedOthers(): Promise<Record<string, string>> {
  const others = pair.destinationClient
  await others.db('zoo').collection('free').insertOne({ mine: true })
  await others.db('zoo').createCollection('window', { viewOn: 'free', pipeline: [] })
  await others.db('shop').collection('log').insertOne({ mine: true })
  await others.db('shop').createCollection('log view', { viewOn: 'log', pipeline: [] })
  return await fingerprints(pair.destination.uri, () => true)
}

const toCapped = (name: string): Promise<Document> => db('shop').command({ convertToCapped: name, size: 9_999 })

/** Writes to a selected collection until `ended`. */
async function write(ended: AbortSignal): Promise<void> {
  const written = db('shop').collection('new')
  for (let n = 0; !ended.aborted; n++) {
    await written.insertOne({ n })
    await written.updateOne({ n: n - 5 }, { $set: { changed: true } })
    await written.deleteOne({ n: n - 10 })
  }
}

const applied = (): Promise<void> => untilApplied(pair, [['shop', 'marker']])

const ready = async (tandem: Tandem): Promise<Tandem> => {
  await tandem.waitFor((progress) => progress.canCommit, { timeoutSeconds: 60, what: 'ready to commit' })
  return tandem
}

const running = async (startFilter: Document = filter): Promise<Tandem> => {
  const tandem = await pair.startInstance()
  await startSync(tandem, startFilter)
  return await ready(tandem)
}

async function commit(tandem: Tandem): Promise<void> {
  expect(await tandem.post('commit')).toEqual({ status: 200, body: { success: true } })
  await tandem.waitFor(({ state }) => state === 'COMMITTED', { timeoutSeconds: 30, what: 'committed' })
}

async function expectSelectedEqual(): Promise<void> {
  const { differences } = await compareBoth(pair.source.uri, pair.destination.uri, { selects })
  expect(differences).toEqual([])
}

describe('4.5: changes at the edge that can be followed', () => {
  test.each(spellings)(
    'filter written as %s: changes of selected names are followed, and everything else stays unchanged',
    async (_how, startFilter) => {
      await seed()
      const before = await seedOthers()
      // One view is on a collection that is left out, and one on a collection that does not exist.
      await db('zoo').createCollection('view', { viewOn: 'free', pipeline: [{ $match: { n: { $gt: 120 } } }] })
      await db('shop').createCollection('view', { viewOn: 'gone', pipeline: [] })
      await db('zoo').createCollection('weather', { timeseries: { timeField: 'at' } })
      await using tandem = await running(startFilter)

      // These are new names, and one that is dropped and created again.
      await db('zoo').collection('cage two').insertOne({ new: true })
      await db('shop').collection('new').insertOne({ new: true })
      await db('zoo').dropCollection('cage two')
      await db('zoo').collection('cage two').insertOne({ again: true })
      // These renames are within the filter, within it over an existing name, and entirely outside.
      await rename('zoo.cage', 'zoo.cage two', true)
      await rename('zoo.cage two', 'zoo.cage')
      await rename('shop.orders', 'shop.bills')
      await rename('zoo.wild', 'zoo.tame')
      // These renames are across databases, into an included one and out of one, which is a drop.
      await rename('away.things', 'shop.entered')
      await rename('shop.new', 'away.left')
      await rename('zoo.cage', 'away.cage')
      await rename('away.cage', 'zoo.outside')
      // $out writes into an included database, to a name that is excluded from it, and to one that is not included.
      await into('shop', 'report')
      await into('shop', 'log')
      await into('zoo', 'tame')
      await db('zoo')
        .collection('free')
        .aggregate([{ $merge: { into: 'cage', on: '_id' } }])
        .toArray()
      // Definitions of collections that are left out may change in any way.
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
    'filter written as %s: a dropped database loses its selected collections, and no others',
    async (_how, startFilter) => {
      await seed()
      const before = await seedOthers()
      await using tandem = await running(startFilter)
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
      'a pattern that the server does not accept',
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
      'a view on the destination with a selected name',
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

  test('each fails with a named error and changes nothing, and a filter that leaves the cause out is accepted', async () => {
    await seed()
    await db('zoo').createCollection('weather', { timeseries: { timeField: 'at' } })
    const before = await seedOthers()
    await using tandem = await pair.startInstance()
    for (const [what, body, status, error, description] of refused) {
      const answer = await tandem.post('start', { source: 'cluster0', destination: 'cluster1', ...body })
      expect([what, answer]).toMatchObject([
        what,
        { status, body: { success: false, error, errorDescription: expect.stringMatching(description) } },
      ])
    }
    expect(await fingerprints(pair.destination.uri, () => true)).toEqual(before)
    await startSync(tandem, { includeNamespaces: [{ database: 'zoo', collections: ['cage'] }] })
  })
})

/** Each brings documents without events into the selection, or takes a collection out of it. */
const crossings: [what: string, act: () => Promise<unknown>, converges: boolean][] = [
  ['a rename out', () => rename('zoo.cage', 'zoo.open'), false],
  ['a rename to an excluded name', () => rename('shop.orders', 'shop.log', true), false],
  ['a rename in', () => rename('zoo.wild', 'zoo.cage two'), true],
  ['a rename in over an existing name', () => rename('shop.log', 'shop.orders', true), true],
  ['a rename from another database to a selected name', () => rename('away.things', 'zoo.cage two'), true],
  ['$out to a selected name', () => into('zoo', 'cage'), true],
  ['convertToCapped of a selected name', () => db('zoo').command({ convertToCapped: 'cage', size: 9_999 }), true],
  ['convertToCapped in an included database', () => toCapped('orders'), true],
]

const failed = (tandem: Tandem): Promise<Progress> =>
  tandem.waitFor(({ state }) => state === 'FAILED', { timeoutSeconds: 30, what: 'failed' })

describe('4.5: changes at the edge that bring documents without events', () => {
  // The change happens right after start, so it may also happen during the copy.
  test.each(
    crossings.map(([what, act, converges], at) => {
      const [how, startFilter] = spellings[at % spellings.length] as (typeof spellings)[number]
      return [how, what, startFilter, act, converges] as const
    }),
  )('filter written as %s: %s is followed while a client writes', async (_how, _what, startFilter, act, converges) => {
    await seed()
    const before = await seedOthers()
    await using tandem = await pair.startInstance()
    await startSync(tandem, startFilter)
    const writing = new AbortController()
    const written = write(writing.signal)
    await act()
    await expect.poll(() => convergencesOf(pair.destinationClient), { timeout: 30_000 }).toBe(converges ? 1 : 0)
    writing.abort()
    await written
    await applied()
    await commit(await ready(tandem))
    await expectSelectedEqual()
    expect(await fingerprints(pair.destination.uri, (...of) => !selects(...of))).toEqual(before)
  })

  test('a collection may leave the selection and come back, and be replaced by another one, during the sync', async () => {
    await seed()
    const before = await seedOthers()
    await using tandem = await running()
    const writing = new AbortController()
    const written = write(writing.signal)
    // The changes under the other name have no events.
    await rename('zoo.cage', 'zoo.open')
    await db('zoo')
      .collection('open')
      .updateMany({}, { $set: { changed: true } })
    await db('zoo').collection('open').deleteOne({ n: 7 })
    await rename('zoo.open', 'zoo.cage')
    await applied()
    await ready(tandem)
    const cage = pair.destinationClient.db('zoo').collection('cage')
    expect(await cage.countDocuments({ changed: true })).toBe(49)
    expect(await cage.countDocuments()).toBe(49)

    await rename('shop.orders', 'shop.log', true)
    await rename('zoo.wild', 'zoo.cage', true)
    await db('zoo').collection('cage').createIndex({ n: 1 }, { unique: true })
    await into('zoo', 'cage two')
    await toCapped('new')
    for (let again = 0; again < 2; again++) await into('zoo', 'cage two')
    await db('zoo').collection('cage two').insertOne({ after: true })
    writing.abort()
    await written
    await applied()
    await commit(await ready(tandem))
    await expectSelectedEqual()
    expect(await fingerprints(pair.destination.uri, (...of) => !selects(...of))).toEqual(before)
  })

  test('two instances: one of them requests the convergence of a collection that is renamed into the selection', async () => {
    await seed()
    const instances = await startInstances(['a', 'b'], { cluster0: pair.source.uri, cluster1: pair.destination.uri })
    try {
      for (const one of instances.members.values()) await startSync(one, filter)
      await instances.allReach(({ canCommit }) => canCommit, 'canCommit', 60)
      const writing = new AbortController()
      const written = write(writing.signal)
      await rename('zoo.wild', 'zoo.cage two')
      await rename('zoo.cage', 'zoo.open')
      writing.abort()
      await written
      await applied()
      await instances.allReach(({ canCommit }) => canCommit, 'canCommit', 60)
      expectAccepted(await instances.post('commit'))
      await instances.allReach(({ state }) => state === 'COMMITTED', 'COMMITTED', 60)
      expect(await convergencesOf(pair.destinationClient)).toBe(1)
      await expectSelectedEqual()
    } finally {
      await instances.stop()
    }
  })

  test('a commit that meets such a change is aborted with the reason, and succeeds after the convergence', async () => {
    await seed()
    await using tandem = await running()
    // The commit timestamp cannot be taken as long as this lasts.
    const failing = { failCommands: ['appendOplogNote'], errorCode: 91 }
    const held = await failPoint(pair.sourceClient, 'failCommand', failing)
    expect(await tandem.post('commit')).toMatchObject({ status: 200 })
    await tandem.waitFor(({ state }) => state === 'COMMITTING', { timeoutSeconds: 30, what: 'COMMITTING' })
    await rename('zoo.wild', 'zoo.cage two')
    await held[Symbol.asyncDispose]()
    const { warnings } = await tandem.waitFor(({ state }) => state === 'RUNNING', {
      timeoutSeconds: 30,
      what: 'aborted',
    })
    expect(warnings?.join()).toMatch(/the commit was aborted .*zoo\.cage two/)
    // Until the event is read again, canCommit may be true, and another commit would be aborted like the first.
    const created = () => pair.destinationClient.db('zoo').listCollections({ name: 'cage two' }).toArray()
    await vi.waitFor(async () => expect(await created()).toHaveLength(1), patience)
    await commit(await ready(tandem))
    await expectSelectedEqual()
  })
})

describe('4.5: writes during the commit', () => {
  test('writes to collections that are left out are ignored (see also the workload), and writes to selected ones fail with SourceWritten', async () => {
    await seed()
    await using tandem = await running()
    const writing = new AbortController()
    const write = async (database: string, name: string): Promise<void> => {
      while (!writing.signal.aborted) {
        await db(database).collection(name).insertOne({ at: new Date() })
        await db(database).collection(name).deleteOne({})
      }
    }
    const ignored = Promise.all([write('shop', 'log'), write('zoo', 'free'), write('away', 'things')])
    const bad = write('zoo', 'cage')
    await tandem.post('commit')
    const { failure } = await failed(tandem)
    expect(failure).toMatchObject({ error: 'SourceWritten', errorDescription: expect.stringContaining('zoo.cage') })
    writing.abort()
    await Promise.all([ignored, bad])
  })
})
