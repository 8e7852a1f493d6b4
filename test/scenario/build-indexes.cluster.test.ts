import type { Document, IndexDescription, MongoClient } from 'mongodb'
import { describe, expect, it, vi } from 'vitest'
import type { Progress } from '../../src/domain/progress.ts'
import { canCommit, commit, committed } from '../support/commits.ts'
import { compareClusters } from '../support/compare.ts'
import { failPoint, holdCopy } from '../support/fail-point.ts'
import { pairedSets } from '../support/paired-sets.ts'
import { startSync, type Tandem } from '../support/tandem-process.ts'

/** The values of `buildIndexes` other than `beforeDataCopy` and `never`. */

const pair = pairedSets()
const patience = { timeout: 30_000, interval: 20 }

interface Row extends Document {
  _id: number | string
}

const app = (client: MongoClient, collection = 'things') => client.db('app').collection<Row>(collection)
const numbered = (count: number): Row[] =>
  Array.from({ length: count }, (_, n) => ({ _id: n, n, u: n, h: `${n}`, words: `word ${n}`, at: new Date() }))
const fiveIndexes: IndexDescription[] = [
  { key: { n: 1 }, name: 'plain' },
  { key: { u: 1 }, name: 'unique', unique: true },
  { key: { at: 1 }, name: 'ttl', expireAfterSeconds: 3_600 },
  { key: { words: 'text' }, name: 'text' },
  { key: { n: -1, h: 1 }, name: 'hidden', hidden: true },
]

async function seed(indexes = fiveIndexes): Promise<void> {
  await app(pair.sourceClient).insertMany(numbered(100))
  await app(pair.sourceClient).createIndexes(indexes)
}

async function namesOn(client: MongoClient, collection = 'things'): Promise<string[]> {
  const found = await app(client, collection).indexes()
  return found.map(({ name }) => name as string).sort()
}

/** Returns the names of finished indexes. The driver's `indexes` also returns indexes that are being built. */
const builtNames = async (): Promise<string[]> => {
  const { cursor } = await pair.destinationClient.db('app').command({ listIndexes: 'things', includeBuildUUIDs: true })
  return (cursor.firstBatch as Document[]).filter((one) => !one['buildUUID']).map((one) => one['name'] as string)
}

const differences = async () => (await compareClusters(pair.source.uri, pair.destination.uri)).differences
/** Until the returned fail point is released, no index build on a collection with documents ends on the destination. */
const holdBuilds = () => failPoint(pair.destinationClient, 'hangAfterStartingIndexBuild', {})
const until = (tandem: Tandem, condition: (progress: Progress) => boolean, what: string) =>
  tandem.waitFor(condition, { timeoutSeconds: 60, what })
const isCopied = ({ info }: Progress): boolean => info === 'change event application'

/** Writes a document with this `_id` on the source, and waits until it has arrived on the destination. */
async function expectFollowed(_id: string, collection = 'things'): Promise<void> {
  await app(pair.sourceClient, collection).insertOne({ _id, u: _id, at: new Date() })
  const arrived = async () => expect(await app(pair.destinationClient, collection).findOne({ _id })).not.toBeNull()
  await vi.waitFor(arrived, patience)
}

describe('afterDataCopy', () => {
  it('builds the indexes once the collection is copied, and a commit waits for them', async () => {
    await seed()
    await app(pair.sourceClient).createIndex({ dropped: 1 })
    await using copy = await holdCopy(pair.destinationClient, 'app.things')
    await using builds = await holdBuilds()
    await using tandem = await pair.startInstance()
    await startSync(tandem, { buildIndexes: 'afterDataCopy' })
    await copy.reached()
    expect(await builtNames()).toEqual(['_id_'])
    // tandem builds these indexes at the end of the copy, too.
    await app(pair.sourceClient).createIndex({ copying: 1 })
    await app(pair.sourceClient).createIndex({ later: 1 }, { sparse: true })
    await app(pair.sourceClient).dropIndex('dropped_1')
    const { indexBuilding } = await until(
      tandem,
      (progress) => progress.indexBuilding?.totalIndexesToBuild === 7,
      '7 indexes to build',
    )
    expect(indexBuilding).toMatchObject({ indexesBuilt: 0, collectionsFinished: 0, collectionsTotal: 1 })
    expect(await builtNames()).toEqual(['_id_'])

    await copy.release()
    await builds.reached()
    const building = await until(tandem, isCopied, 'the end of the copy')
    expect(building).toMatchObject({ state: 'RUNNING', canCommit: false, indexBuilding: { indexesBuilt: 0 } })
    await until(tandem, (progress) => progress.commit !== undefined, 'an estimate')
    expect((await tandem.progress()).commit?.waitingFor.map(({ what }) => what)).toContain('indexes to be built')
    const refused = await tandem.post('commit')
    expect(refused.body).toMatchObject({ error: 'CannotCommit' })
    expect(refused.body.errorDescription).toMatch(/the indexes of app\.things are not built yet/)
    // Changes are applied meanwhile.
    await expectFollowed('during the build')

    await builds.release()
    await canCommit(tandem)
    expect((await tandem.progress()).indexBuilding).toMatchObject({ indexesBuilt: 7, totalIndexesToBuild: 7 })
    // From now on indexes are built at once.
    await app(pair.sourceClient).createIndex({ applying: 1 })
    await app(pair.sourceClient, 'created').createIndex({ first: 1 })
    await commit(tandem)
    expect(await differences()).toEqual([])
    expect(await namesOn(pair.destinationClient)).toEqual(await namesOn(pair.sourceClient))
  })

  it('applies index changes and a rename that the source makes during the builds', async () => {
    await seed()
    await using builds = await holdBuilds()
    await using tandem = await pair.startInstance()
    await startSync(tandem, { buildIndexes: 'afterDataCopy' })
    await builds.reached()
    await app(pair.sourceClient).dropIndex('plain')
    await app(pair.sourceClient).createIndex({ plain: 1 }, { name: 'plain' })
    await app(pair.sourceClient).rename('renamed')
    await app(pair.sourceClient, 'renamed').insertOne({ _id: 'after the rename' })
    await until(tandem, isCopied, 'the end of the copy')
    await builds.release()
    await commit(tandem)
    expect(await differences()).toEqual([])
  })

  it('pauses during the copy; after the resume it also builds an index that the source has created meanwhile', async () => {
    await seed()
    await using copy = await holdCopy(pair.destinationClient, 'app.things')
    await using tandem = await pair.startInstance()
    await startSync(tandem, { buildIndexes: 'afterDataCopy' })
    await copy.reached()
    const paused = tandem.post('pause')
    await copy.release()
    expect((await paused).body).toEqual({ success: true })
    await until(tandem, ({ state }) => state === 'PAUSED', 'PAUSED')
    await app(pair.sourceClient).createIndex({ paused: 1 })
    expect((await tandem.post('resume')).body).toEqual({ success: true })
    await commit(tandem)
    expect(await differences()).toEqual([])
  })

  it('makes the indexes of a destination with data equal to those of the source', async () => {
    await seed()
    await app(pair.destinationClient).insertMany(numbered(50))
    await app(pair.destinationClient).createIndexes([
      { key: { n: 1 }, name: 'plain' },
      { key: { u: 1 }, name: 'unique', unique: true },
      { key: { n: 1, other: 1 }, name: 'hidden' },
      { key: { foreign: 1 } },
    ])
    await using tandem = await pair.startInstance()
    await startSync(tandem, { buildIndexes: 'afterDataCopy', existingData: 'converge' })
    await commit(tandem)
    expect(await differences()).toEqual([])
  })

  it('canCommit is false on every instance until the coordinator has built the indexes', async () => {
    await seed()
    await using builds = await holdBuilds()
    await using first = await pair.startInstance({ id: 'first' })
    await startSync(first, { buildIndexes: 'afterDataCopy' })
    await using second = await pair.startInstance({ id: 'second' })
    await startSync(second, { buildIndexes: 'afterDataCopy' })
    await builds.reached()
    for (const one of [first, second]) {
      expect(await until(one, isCopied, 'the end of the copy')).toMatchObject({ canCommit: false })
      expect((await one.post('commit')).body).toMatchObject({ error: 'CannotCommit' })
    }
    await builds.release()
    for (const one of [first, second]) await canCommit(one)
    for (const one of [first, second]) expect((await one.post('commit')).body).toEqual({ success: true })
    for (const one of [first, second]) await committed(one)
    expect(await differences()).toEqual([])
  })
})

describe.each(['excludeHashed', 'excludeHashedAfterCopy'])('%s', (buildIndexes) => {
  const hashed = { key: { h: 'hashed' }, name: 'hashed' } as const
  const missing = ['app.things: index missing on destination', 'app.later: index missing on destination']

  it('leaves out hashed indexes, also those that the source creates later', async () => {
    await seed([...fiveIndexes, hashed, { key: { n: 1, h: 'hashed' }, name: 'compound' }])
    await using tandem = await pair.startInstance()
    await startSync(tandem, { buildIndexes })
    const ready = await canCommit(tandem)
    expect(ready.indexBuilding).toMatchObject({ indexesBuilt: 5, totalIndexesToBuild: 5 })
    await app(pair.sourceClient).dropIndex('compound')
    await app(pair.sourceClient).createIndexes([{ key: { n: 'hashed' } }, { key: { applying: 1 } }])
    await app(pair.sourceClient, 'later').createIndexes([{ key: { _id: 'hashed' } }, { key: { n: 1 } }])
    // A hashed index refuses arrays. The destination has no hashed index, so it accepts this array.
    await app(pair.sourceClient).dropIndex('hashed')
    await app(pair.sourceClient).updateOne({ _id: 1 }, { $set: { h: [1, 2] } })
    await commit(tandem)
    expect(await namesOn(pair.destinationClient)).toEqual(
      ['_id_', 'applying_1', ...fiveIndexes.map(({ name }) => name as string)].sort(),
    )
    expect(await namesOn(pair.destinationClient, 'later')).toEqual(['_id_', 'n_1'])
    const found = await differences()
    expect(found).toHaveLength(missing.length)
    for (const difference of found) expect(difference).toMatch(/index missing on destination/)
  })
})

it('after a reversal, excludeHashed does not change the hashed indexes of the former source', async () => {
  await seed([...fiveIndexes, { key: { h: 'hashed' }, name: 'hashed' }])
  await using tandem = await pair.startInstance()
  const both = 'sourceAndDestination'
  await startSync(tandem, { buildIndexes: 'excludeHashed', reversible: true, enableUserWriteBlocking: both })
  await commit(tandem)
  expect((await tandem.post('reverse')).body).toEqual({ success: true })
  await canCommit(tandem)
  await app(pair.destinationClient).insertOne({ _id: 'reversed', u: 'reversed', h: 'reversed' })
  await app(pair.destinationClient).createIndex({ reversed: 1 })
  await commit(tandem)
  expect(await namesOn(pair.sourceClient)).toEqual([...(await namesOn(pair.destinationClient)), 'hashed'].sort())
})

it('excludeHashed drops a hashed index of the destination that has the name of another index of the source', async () => {
  await seed([{ key: { h: 1 }, name: 'taken' }])
  await app(pair.destinationClient).insertMany(numbered(50))
  await app(pair.destinationClient).createIndexes([
    { key: { h: 'hashed' }, name: 'taken' },
    { key: { n: 'hashed' }, name: 'left alone' },
  ])
  await using tandem = await pair.startInstance()
  await startSync(tandem, { buildIndexes: 'excludeHashed', existingData: 'converge' })
  await commit(tandem)
  expect(await differences()).toEqual([expect.stringMatching(/left alone/)])
  expect(await app(pair.destinationClient).indexes()).toContainEqual(
    expect.objectContaining({ key: { h: 1 }, name: 'taken' }),
  )
})
