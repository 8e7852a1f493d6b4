import type { Db, Document } from 'mongodb'
import { expect, vi } from 'vitest'
import { canCommit, commit } from '../support/commits.ts'
import type { Selects } from '../support/compare.ts'
import { compareBoth } from '../support/compare-both.ts'
import { fingerprints } from '../support/fingerprints.ts'
import { convergencesOf } from '../support/lost-history.ts'
import { pairedSets } from '../support/paired-sets.ts'
import { startSync, type Tandem } from '../support/tandem-process.ts'
import { untilApplied } from '../support/until-applied.ts'

/**
 * A filter in several spellings, and changes that move collections into and out of it. It includes the database `shop`
 * except `log` and `log view`, and three names of `zoo`.
 */

export const filter = {
  includeNamespaces: [{ database: 'shop' }, { database: 'zoo', collections: ['cage', 'cage two', 'view'] }],
  excludeNamespaces: [{ database: 'shop', collections: ['log', 'log view'] }],
}
const zooNames = '(cage( two)?|view)$'
/** The same filter in every notation. */
export const spellings: [how: string, filter: Document][] = [
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

interface Crossing {
  what: string
  filter: [how: string, filter: Document]
  act(): Promise<unknown>
  converges: boolean
}

/** Provides two clusters for syncs with the filter. Registers hooks, so call it where vitest allows hooks to be registered. */
export function filteredPair() {
  const pair = pairedSets()
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

  /** Creates foreign collections and views on the destination under names that the filter leaves out. */
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

  const running = async (startFilter: Document = filter): Promise<Tandem> => {
    const tandem = await pair.startInstance()
    await startSync(tandem, startFilter)
    await canCommit(tandem)
    return tandem
  }

  async function expectSelectedEqual(): Promise<void> {
    const { differences } = await compareBoth(pair.source.uri, pair.destination.uri, { selects })
    expect(differences).toEqual([])
  }

  async function expectOthersUnchanged(before: Record<string, string>): Promise<void> {
    expect(await fingerprints(pair.destination.uri, (...of) => !selects(...of))).toEqual(before)
  }

  async function expectChangesFollowed(startFilter: Document): Promise<void> {
    await seed()
    const before = await seedOthers()
    // One view is on a collection that the filter leaves out, and one view is on a collection that does not exist.
    await db('zoo').createCollection('view', { viewOn: 'free', pipeline: [{ $match: { n: { $gt: 120 } } }] })
    await db('shop').createCollection('view', { viewOn: 'gone', pipeline: [] })
    await db('zoo').createCollection('weather', { timeseries: { timeField: 'at' } })
    await using tandem = await running(startFilter)

    // Create collections with new names, and drop one and create it again.
    await db('zoo').collection('cage two').insertOne({ new: true })
    await db('shop').collection('new').insertOne({ new: true })
    await db('zoo').dropCollection('cage two')
    await db('zoo').collection('cage two').insertOne({ again: true })
    // Rename a collection within the filter, within the filter over an existing name, and outside the filter.
    await rename('zoo.cage', 'zoo.cage two', true)
    await rename('zoo.cage two', 'zoo.cage')
    await rename('shop.orders', 'shop.bills')
    await rename('zoo.wild', 'zoo.tame')
    // Rename collections across databases. For the sync, a rename out of the filter is a drop.
    await rename('away.things', 'shop.entered')
    await rename('shop.new', 'away.left')
    await rename('zoo.cage', 'away.cage')
    await rename('away.cage', 'zoo.outside')
    // Write with $out to an included database, to a name that is excluded from it, and to a name that is not included.
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
    await expectOthersUnchanged(before)
  }

  async function expectDropFollowed(startFilter: Document): Promise<void> {
    await seed()
    const before = await seedOthers()
    await using tandem = await running(startFilter)
    await db('zoo').dropDatabase()
    await db('shop').dropDatabase()
    await vi.waitFor(async () => expect(await fingerprints(pair.destination.uri, selects)).toEqual({}), {
      timeout: 30_000,
      interval: 20,
    })
    await db('zoo').collection('cage').insertOne({ after: true })
    await commit(tandem)
    await expectSelectedEqual()
    await expectOthersUnchanged(before)
  }

  /**
   * Each change takes a collection out of the selection, or brings documents into it for which the sync gets no events. Each
   * is tested with one spelling of the filter.
   */
  const crossings = (
    [
      ['a rename out', () => rename('zoo.cage', 'zoo.open'), false],
      ['a rename to an excluded name', () => rename('shop.orders', 'shop.log', true), false],
      ['a rename in', () => rename('zoo.wild', 'zoo.cage two'), true],
      ['a rename in over an existing name', () => rename('shop.log', 'shop.orders', true), true],
      ['a rename from another database to a selected name', () => rename('away.things', 'zoo.cage two'), true],
      ['$out to a selected name', () => into('zoo', 'cage'), true],
      ['convertToCapped of a selected name', () => db('zoo').command({ convertToCapped: 'cage', size: 9_999 }), true],
      ['convertToCapped in an included database', () => toCapped('orders'), true],
    ] as [string, Crossing['act'], boolean][]
  ).map(
    ([what, act, converges], at): Crossing => ({
      what,
      filter: spellings[at % spellings.length] as Crossing['filter'],
      act,
      converges,
    }),
  )

  /** Makes the change right after the start, so that it may also happen during the copy. */
  async function expectCrossingFollowed({ filter: [, startFilter], act, converges }: Crossing): Promise<void> {
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
    await commit(tandem)
    await expectSelectedEqual()
    await expectOthersUnchanged(before)
  }
  return {
    ...{ pair, db, rename, into, toCapped, seed, seedOthers, write, applied, running, crossings },
    ...{
      expectSelectedEqual,
      expectOthersUnchanged,
      expectChangesFollowed,
      expectDropFollowed,
      expectCrossingFollowed,
    },
  }
}
