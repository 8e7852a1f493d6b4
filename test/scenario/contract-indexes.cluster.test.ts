import { type Document, type MongoClient, MongoServerError } from 'mongodb'
import { expect, it, vi } from 'vitest'
import { canCommit, commit } from '../support/commits.ts'
import { compareClusters } from '../support/compare.ts'
import { pairedSets } from '../support/paired-sets.ts'
import { startSync, startTandem, type Tandem } from '../support/tandem-process.ts'

/** Tests how indexes are synced, and which options are deferred until the commit. See test/contract.md. */

const parameter = (assignment: string) => ['--setParameter', assignment]
// Only the destination runs a TTL monitor. It runs every second.
const pair = pairedSets({
  source: { extraArgs: parameter('ttlMonitorEnabled=false') },
  destination: { extraArgs: parameter('ttlMonitorSleepSecs=1') },
})

const patience = { timeout: 30_000, interval: 20 }

interface Row extends Document {
  _id: number | string | null
}

const app = (client: MongoClient, collection: string) => client.db('app').collection<Row>(collection)

async function startedSync(overrides: Record<string, unknown> = {}): Promise<Tandem> {
  const tandem = await startTandem({ cluster0: pair.source.uri, cluster1: pair.destination.uri })
  await startSync(tandem, overrides)
  return tandem
}

/** Index specifications by name, as the destination lists them. */
async function destinationIndexes(collection: string): Promise<Record<string, Document>> {
  const found = await app(pair.destinationClient, collection)
    .indexes()
    .catch((error) => {
      if (error instanceof MongoServerError && error.code === 26) return [] // the collection is not created yet
      throw error
    })
  return Object.fromEntries(found.map((index) => [index.name, index]))
}

const differences = async () => (await compareClusters(pair.source.uri, pair.destination.uri)).differences

it('2.1: existing indexes and ones created while RUNNING are on the destination', async () => {
  await app(pair.sourceClient, 'things').insertMany(Array.from({ length: 50 }, (_, n) => ({ _id: n, n })))
  await app(pair.sourceClient, 'things').createIndexes([
    { key: { n: 1 }, name: 'existing' },
    { key: { n: -1, _id: 1 }, name: 'dropped later', sparse: true },
  ])
  const admin = pair.destinationClient.db('admin')
  const copy = { configureFailPoint: 'hangDuringBatchInsert' }
  await admin.command({ ...copy, mode: 'alwaysOn', data: { nss: 'app.things' } })
  try {
    await using tandem = await startedSync()
    await vi.waitFor(async () => expect(await destinationIndexes('things')).toHaveProperty('existing'), patience)
    await app(pair.sourceClient, 'things').createIndex({ copying: 1 })
    await admin.command({ ...copy, mode: 'off' })
    await canCommit(tandem)
    await app(pair.sourceClient, 'things').createIndex({ applying: 1 }, { partialFilterExpression: { n: { $gt: 5 } } })
    await app(pair.sourceClient, 'things').dropIndex('dropped later')
    await app(pair.sourceClient, 'created').createIndex({ later: 'hashed' })
    // These indexes are built while the migration runs, not at its end.
    await vi.waitFor(async () => {
      expect(Object.keys(await destinationIndexes('things')).sort()).toEqual([
        '_id_',
        'applying_1',
        'copying_1',
        'existing',
      ])
      expect(await destinationIndexes('created')).toHaveProperty('later_hashed')
    }, patience)
    await commit(tandem)
    expect(await differences()).toEqual([])
  } finally {
    await admin.command({ ...copy, mode: 'off' })
  }
})

it('2.1: with buildIndexes never, only necessary indexes are on the destination', async () => {
  await app(pair.sourceClient, 'things').insertMany(Array.from({ length: 50 }, (_, n) => ({ _id: n, n, u: n })))
  await app(pair.sourceClient, 'things').createIndexes([{ key: { n: 1 } }, { key: { u: 1 }, unique: true }])
  await using tandem = await startedSync({ buildIndexes: 'never' })
  await canCommit(tandem)
  await app(pair.sourceClient, 'things').createIndex({ applying: 1 })
  await app(pair.sourceClient, 'things').insertOne({ _id: 'after the index' })
  await vi.waitFor(
    async () => expect(await app(pair.destinationClient, 'things').findOne({ _id: 'after the index' })).not.toBeNull(),
    patience,
  )
  expect(Object.keys(await destinationIndexes('things'))).toEqual(['_id_'])
  await commit(tandem)
  expect(Object.keys(await destinationIndexes('things'))).toEqual(['_id_'])
  const different = await differences()
  expect(different).toHaveLength(3)
  for (const difference of different) expect(difference).toMatch(/index missing on destination/)
})

it('2.1: a TTL collection is synced with buildIndexes never if the verifier is disabled', async () => {
  await app(pair.sourceClient, 'sessions').createIndex({ seen: 1 }, { expireAfterSeconds: 60 })
  await app(pair.sourceClient, 'sessions').insertOne({ _id: 1, seen: new Date() })
  await using tandem = await startedSync({ buildIndexes: 'never', verification: { enabled: false } })
  await canCommit(tandem)
  await app(pair.sourceClient, 'later').createIndex({ seen: 1 }, { expireAfterSeconds: 60 })
  await app(pair.sourceClient, 'later').insertOne({ _id: 1, seen: new Date() })
  await commit(tandem)
  for (const collection of ['sessions', 'later']) {
    expect(await app(pair.destinationClient, collection).countDocuments()).toBe(1)
    expect(Object.keys(await destinationIndexes(collection))).toEqual(['_id_'])
  }
})

it.each(['beforeDataCopy', 'never'])(
  '1: every copied collection has its _id index, also with buildIndexes %s',
  async (buildIndexes) => {
    const db = pair.sourceClient.db('app')
    await app(pair.sourceClient, 'plain').insertOne({ _id: 1 })
    await db.createCollection('empty')
    await db.createCollection('capped', { capped: true, size: 4096 })
    await db.createCollection('collated', { collation: { locale: 'de', strength: 1 } })
    await using tandem = await startedSync({ buildIndexes })
    await canCommit(tandem)
    await app(pair.sourceClient, 'created').insertOne({ _id: 1 })
    await commit(tandem)
    for (const collection of ['plain', 'empty', 'capped', 'collated', 'created']) {
      expect(await destinationIndexes(collection)).toMatchObject({ _id_: { key: { _id: 1 } } })
    }
    expect((await destinationIndexes('collated'))['_id_']).toMatchObject({ collation: { locale: 'de', strength: 1 } })
    expect(await differences()).toEqual([])
  },
)

it('facts 4.3: unique, TTL, hidden and capped are deferred while RUNNING and as on the source when COMMITTED', async () => {
  const db = pair.sourceClient.db('app')
  const indexes = [
    { key: { u: 1 }, name: 'unique', unique: true },
    { key: { seen: 1 }, name: 'ttl', expireAfterSeconds: 3600 },
    { key: { h: 1 }, name: 'hidden', hidden: true },
    { key: { all: 1 }, name: 'all', unique: true, hidden: true, expireAfterSeconds: 7200, sparse: true },
  ]
  await app(pair.sourceClient, 'things').createIndexes(indexes)
  await app(pair.sourceClient, 'things').insertMany(Array.from({ length: 50 }, (_, n) => ({ _id: n, u: n, h: n })))
  await db.createCollection('capped', { capped: true, size: 8192, max: 20 })
  await app(pair.sourceClient, 'capped').insertMany(Array.from({ length: 30 }, (_, n) => ({ _id: n })))

  await using tandem = await startedSync()
  await canCommit(tandem)
  // Collections that appear while RUNNING defer the same options.
  await app(pair.sourceClient, 'later').createIndexes(indexes)
  await db.createCollection('capped later', { capped: true, size: 4096, max: 7 })
  for (const collection of ['things', 'later']) {
    await vi.waitFor(async () => expect(Object.keys(await destinationIndexes(collection))).toHaveLength(5), patience)
    const found = await destinationIndexes(collection)
    for (const index of Object.values(found)) {
      expect(index).not.toHaveProperty('unique')
      expect(index).not.toHaveProperty('prepareUnique')
      expect(index).not.toHaveProperty('hidden')
    }
    expect(found['ttl']?.['expireAfterSeconds']).toBe(2_147_483_647)
    expect(found['all']).toMatchObject({ expireAfterSeconds: 2_147_483_647, sparse: true })
  }
  for (const name of ['capped', 'capped later']) {
    const options = await vi.waitFor(async () => {
      const [found] = await pair.destinationClient.db('app').listCollections({ name }).toArray()
      expect(found).toBeDefined()
      return (found as { options: Document }).options
    }, patience)
    expect(options).toMatchObject({ capped: true, size: 2 ** 50 })
    expect(options).not.toHaveProperty('max')
  }

  await commit(tandem)
  expect(await differences()).toEqual([])
  expect(await destinationIndexes('things')).toMatchObject({
    unique: { unique: true },
    ttl: { expireAfterSeconds: 3600 },
    hidden: { hidden: true },
    all: { unique: true, hidden: true, expireAfterSeconds: 7200 },
  })
  const [capped] = await pair.destinationClient.db('app').listCollections({ name: 'capped' }).toArray()
  expect(capped).toMatchObject({ options: { capped: true, size: 8192, max: 20 } })
})

it('facts 4.3: options changed on the source while RUNNING are as on the source when COMMITTED', async () => {
  const things = app(pair.sourceClient, 'things')
  await things.createIndexes([
    { key: { seen: 1 }, name: 'ttl', expireAfterSeconds: 3600 },
    { key: { h: 1 }, name: 'to be shown', hidden: true },
    { key: { s: 1 }, name: 'to be hidden' },
    { key: { u: 1 }, name: 'to be unique' },
  ])
  await things.insertMany(Array.from({ length: 10 }, (_, n) => ({ _id: n, u: n })))
  await pair.sourceClient.db('app').createCollection('capped', { capped: true, size: 8192, max: 20 })
  await using tandem = await startedSync()
  await canCommit(tandem)
  const modify = (index: Document) => pair.sourceClient.db('app').command({ collMod: 'things', index })
  await modify({ name: 'ttl', expireAfterSeconds: 60 })
  await modify({ name: 'to be shown', hidden: false })
  await modify({ name: 'to be hidden', hidden: true })
  await modify({ name: 'to be unique', prepareUnique: true })
  await modify({ name: 'to be unique', unique: true })
  await pair.sourceClient.db('app').command({ collMod: 'capped', cappedSize: 16_384, cappedMax: 40 })
  await commit(tandem)
  expect(await differences()).toEqual([])
  expect(await destinationIndexes('things')).toMatchObject({
    ttl: { expireAfterSeconds: 60 },
    'to be hidden': { hidden: true },
    'to be unique': { unique: true },
  })
})

it('facts 4.3: documents expire on the destination only after the commit', async () => {
  await app(pair.sourceClient, 'sessions').createIndex({ seen: 1 }, { expireAfterSeconds: 1 })
  await app(pair.sourceClient, 'sessions').insertOne({ _id: 1, seen: new Date(Date.now() - 3_600_000) })
  // Write blocking would also stop the TTL monitor of the destination.
  await using tandem = await startedSync({ enableUserWriteBlocking: 'none' })
  await canCommit(tandem)
  const passes = async () => {
    const { metrics } = await pair.destinationClient.db('admin').command({ serverStatus: 1 })
    return Number(metrics.ttl.passes)
  }
  const before = await passes()
  await vi.waitFor(async () => expect(await passes()).toBeGreaterThan(before + 1), patience)
  expect(await app(pair.destinationClient, 'sessions').countDocuments()).toBe(1)
  await commit(tandem)
  await vi.waitFor(async () => expect(await app(pair.destinationClient, 'sessions').countDocuments()).toBe(0), patience)
})

it('2.5: unique indexes are unique when COMMITTED, and duplicates are refused from canWrite on', async () => {
  await app(pair.sourceClient, 'things').createIndex({ u: 1 }, { unique: true })
  await app(pair.sourceClient, 'things').insertMany([
    { _id: 1, u: 1 },
    { _id: 2, u: 2 },
  ])
  await using tandem = await startedSync()
  await canCommit(tandem)
  // The first collMod prepares the index. The second collMod, which makes the index unique, fails.
  await pair.destinationClient.db('admin').command({
    configureFailPoint: 'failCommand',
    mode: { skip: 1 },
    data: { failCommands: ['collMod'], namespace: 'app.things', errorCode: 91 },
  })
  expect((await tandem.post('commit')).status).toBe(200)
  const writable = await tandem.waitFor(({ canWrite }) => canWrite === true, {
    timeoutSeconds: 20,
    what: 'writable',
  })
  expect(writable).toMatchObject({ state: 'COMMITTING', info: 'waiting for commit to complete' })
  expect(await destinationIndexes('things')).toMatchObject({ u_1: { prepareUnique: true } })
  expect((await destinationIndexes('things'))['u_1']).not.toHaveProperty('unique')
  const insert = (document: Row) => app(pair.destinationClient, 'things').insertOne(document)
  await expect(insert({ _id: 3, u: 1 })).rejects.toMatchObject({ code: 11000 })
  await insert({ _id: 3, u: 3 })

  await pair.destinationClient.db('admin').command({ configureFailPoint: 'failCommand', mode: 'off' })
  const end = await tandem.waitFor(({ state }) => state === 'COMMITTED', { timeoutSeconds: 20, what: 'committed' })
  expect(end.canWrite).toBe(true)
  expect(await destinationIndexes('things')).toMatchObject({ u_1: { unique: true } })
  expect((await destinationIndexes('things'))['u_1']).not.toHaveProperty('prepareUnique')
  await expect(insert({ _id: 4, u: 3 })).rejects.toMatchObject({ code: 11000 })
})
