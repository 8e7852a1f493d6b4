import { type Document, Int32 } from 'mongodb'
import { beforeEach, describe, expect, it } from 'vitest'
import { completed, freshContext } from '../../machines/instance-context.ts'
import { parseStartBody } from '../../src/api/start-body.ts'
import { buildIndexesModes } from '../../src/domain/build-indexes.ts'
import { type CatalogEntry, newEntry, type Segment } from '../../src/domain/catalog.ts'
import { clusterTime } from '../../src/domain/cluster-time.ts'
import { metadataDatabase } from '../../src/domain/namespace.ts'
import { readFields } from '../../src/domain/raw-bson.ts'
import type { StartConfiguration, TimeSeries } from '../../src/domain/start-request.ts'
import type { CollectionStore } from '../../src/mongo/collection-store.ts'
import { Metadata, type SyncRecord } from '../../src/mongo/metadata.ts'
import { sameConfiguration } from '../../src/session/begin-sync.ts'
import { rawDocument } from '../support/bson-values.ts'
import { testContext } from './clusters.ts'
import { oneSet } from './one-set.ts'

/** A restarted process loads every field that an earlier process stored. */

const one = oneSet()
const metadata = () => new Metadata(one.cluster, testContext())

it('a collection is loaded with all of its stored fields', async () => {
  const entry: CatalogEntry = {
    uuid: Buffer.alloc(16, 0xf1).toString('latin1'),
    database: 'shöp',
    name: 'orders.2024',
    sourceName: 'orders.2024',
    destinationUUID: Buffer.alloc(16, 0xe2).toString('latin1'),
    state: 'copying',
    wanted: {
      options: readFields(
        rawDocument([
          ['capped', true],
          ['size', new Int32(4_096)],
        ]),
      ),
      indexes: [
        readFields(
          rawDocument([
            ['v', new Int32(2)],
            ['name', 'n_1'],
            ['unique', true],
          ]),
        ),
      ],
    },
    shardKey: [
      { path: 'a.b', hashed: false },
      { path: 'c', hashed: true },
    ],
    estimatedBytes: 12_345,
    estimatedDocuments: 678,
    refusedIndexes: ['n_1'],
    awaitsIndexes: true,
    copiedBytes: 0,
    totalCopied: null,
    endedPartitions: new Set(),
    planned: true,
    hasTombstones: false,
    converging: true,
    convergedFrom: 5n,
  }
  await metadata().collections.save([entry])
  expect(await metadata().collections.load()).toEqual([entry])
  // The instance that ends the copy stores its progress.
  expect(
    await metadata().collections.endCopy(
      entry.uuid,
      new Map([
        [0, 1],
        [2, 1],
      ]),
      3,
    ),
  ).toBeNull()
  expect(await metadata().collections.load()).toEqual([{ ...entry, endedPartitions: new Set([0, 2]) }])
  expect(await metadata().collections.endCopy(entry.uuid, new Map([[1, 1]]), 3)).toBe(0)
  const copied = { state: 'copied', totalCopied: 0, endedPartitions: new Set([0, 1, 2]) }
  expect(await metadata().collections.load()).toEqual([{ ...entry, ...copied }])
  expect(await metadata().collections.copying(3)).toEqual([])
})

it('collections of earlier versions are loaded, and any write stores version 3', async () => {
  const uuid = Buffer.alloc(16, 0xd3).toString('latin1')
  const entry = newEntry('app', { uuid, name: 'old' }, { options: [], indexes: [] }, 'copying')
  await metadata().collections.save([{ ...entry, converging: true }])
  const stored = one.client.db(metadataDatabase).collection('collections')
  const ofEntry = { database: 'app', name: 'old' }
  expect(await stored.findOne(ofEntry)).toMatchObject({ schemaVersion: 3, converging: true })
  // This is the stored form of version 1. It has no field `converging`, because version 1 created all collections empty.
  const former = { $set: { schemaVersion: 1 }, $rename: { term: 'tenure' }, $unset: { converging: '' } }
  await stored.updateOne(ofEntry, former)
  const load = async () => (await metadata().collections.load()).find((found) => found.uuid === uuid)
  expect(await load()).toMatchObject({ converging: false, state: 'copying' })
  // This write changes the schema version, but does not rename `tenure` to `term`.
  await metadata().collections.claimCopies(new Map([[0, 1]]))
  expect(await stored.findOne(ofEntry)).toMatchObject({ schemaVersion: 3, tenure: 0 })
  expect(await load()).toMatchObject({ converging: false })
})

describe('an entry of the catalog that an earlier release stored (version 2)', () => {
  const uuid = Buffer.alloc(16, 0xd4).toString('latin1')
  const entry = newEntry('app', { uuid, name: 'fenced' }, { options: [], indexes: [] }, 'copying')
  const stored = () => one.client.db(metadataDatabase).collection('collections')
  const ofTerm = (term: number) => new Metadata(one.cluster, testContext(), { term }).collections
  const found = () => stored().findOne({ name: 'fenced' })

  beforeEach(async () => {
    await stored().deleteMany({})
    await ofTerm(3).save([entry])
    await stored().updateOne({ name: 'fenced' }, { $set: { schemaVersion: 2 }, $rename: { term: 'tenure' } })
    expect(await found()).toMatchObject({ schemaVersion: 2, tenure: 3 })
  })

  it('is not changed or removed by a coordinator of an earlier term', async () => {
    const before = await found()
    await expect(ofTerm(2).save([{ ...entry, name: 'other' }])).rejects.toMatchObject({ failure: 'LeaseLost' })
    await ofTerm(2).converge([entry], new Map([[0, 9]]))
    await ofTerm(2).saveConvergedFrom([uuid], 7n)
    expect(await ofTerm(2).savePlanned([entry])).toEqual([])
    await ofTerm(2).remove(uuid)
    expect(await found()).toEqual(before)
  })

  it.each<[string, (store: CollectionStore) => Promise<unknown>]>([
    ['save', (store) => store.save([entry])],
    ['converge', (store) => store.converge([entry], new Map([[0, 1]]))],
    ['saveConvergedFrom', (store) => store.saveConvergedFrom([uuid], 7n)],
    ['savePlanned', (store) => store.savePlanned([entry])],
  ])('has the current form after %s in the same or a later term', async (_, write) => {
    for (const term of [3, 4]) {
      await write(ofTerm(term))
      expect(await found()).toMatchObject({ schemaVersion: 3, term })
      expect(await found()).not.toHaveProperty('tenure')
    }
    const before = await found()
    // A delayed write of an earlier release matches no entry of the current form, whatever the term of its sender.
    const delayed = { _id: (before as Document)['_id'], tenure: { $lte: 9 } }
    expect(await stored().countDocuments(delayed)).toBe(0)
    await expect(stored().updateOne(delayed, { $set: { tenure: 9 } }, { upsert: true })).rejects.toThrow(/E11000/)
    await ofTerm(3).remove(uuid)
    expect(await found()).toEqual(before)
  })

  it('is removed by a coordinator of its term', async () => {
    await ofTerm(3).remove(uuid)
    expect(await found()).toBeNull()
  })
})

it('segments that an earlier release planned (version 1) are claimed, completed and counted', async () => {
  const { segments } = metadata()
  const collection = Buffer.alloc(16, 0xd5).toString('latin1')
  const plan = Array.from(
    { length: 3 },
    (_, ordinal): Segment => ({
      ...{ collection, ordinal, priority: ordinal, from: null, to: null, last: null, natural: null, done: false },
      ...{ documents: 0, bytes: 0, attempts: 0, wasOwn: false, claim: 0 },
    }),
  )
  await segments.plan(plan)
  await segments.open([collection])
  const stored = one.client.db(metadataDatabase).collection('segments')
  await stored.updateMany({}, { $set: { schemaVersion: 1 }, $rename: { priority: 'rank' } })
  const claimed = await segments.claim('a#1', 2, 8, () => false)
  expect(claimed.map(({ priority }) => priority).sort()).toEqual([0, 1, 2])
  await segments.saveProgress([{ ...(claimed[0] as Segment), done: true, documents: 5 }], 'a#1')
  await segments.release('a#1', 2)
  expect((await segments.claim('b#1', 2, 8, () => false)).map(({ ordinal }) => ordinal)).toHaveLength(2)
  expect(await segments.counts()).toEqual({ written: 1, total: 3 })
})

it('the context of an instance is stored in version 2, and a context of version 1 can be loaded', async () => {
  const stored = one.client.db(metadataDatabase).collection<{ _id: string }>('instances')
  await stored.insertOne({ _id: 'old', schemaVersion: 1, snapshot: '{"hashed":true}' } as never)
  await metadata().saveInstance('new', freshContext)
  expect(await stored.findOne({ _id: 'new' })).toMatchObject({ schemaVersion: 2 })
  const loaded = await metadata().loadInstances()
  expect(completed(loaded.get('old') ?? {})).toMatchObject({ initiallyVerified: true, commitTimestamp: null })
})

it('the record of the sync is loaded with all of its stored fields', async () => {
  const record: SyncRecord = {
    configuration: {
      source: 'cluster1',
      destination: 'cluster0',
      reversible: true,
      verification: { enabled: true, initialCompareMethod: 'toHashedIndexKey' },
      existingData: 'converge',
      timeseries: 'skip',
      copyInNaturalOrder: [{ database: 'shop', collections: ['orders'] }],
      detectRandomId: false,
      namespaceRemap: [{ from: { database: 'shop' }, to: { database: 'store' } }],
      includeNamespaces: [{ databaseRegex: { pattern: '^a', options: 'i' } }],
    } as unknown as StartConfiguration,
    sourceIdentity: 'one',
    destinationIdentity: 'other',
    startTime: clusterTime(4_000_000_000, 4_000_000_001),
    partitions: 17,
    redis: true,
    generation: 3,
  }
  await metadata().saveSync(record)
  expect(await metadata().loadSync()).toEqual(record)
})

it('a sync record of an earlier release, without timeseries, is loaded with "refuse" and matches its start request', async () => {
  const body = { source: 'cluster0', destination: 'cluster1', existingData: 'converge' }
  const record = (configuration: StartConfiguration): SyncRecord => ({
    configuration,
    ...{ sourceIdentity: 'one', destinationIdentity: 'other', startTime: clusterTime(4_000, 1) },
    ...{ partitions: 17, redis: false, generation: 0 },
  })
  const stored = one.client.db(metadataDatabase).collection('sync')
  await stored.deleteMany({})
  await metadata().createSync(record(parseStartBody(body)))
  // The default is not stored, so an earlier release that continues the sync finds its own configuration.
  expect((await stored.findOne())?.['configuration']).not.toHaveProperty('timeseries')
  const loaded = await metadata().loadSync()
  expect(loaded?.configuration.timeseries).toBe('refuse')
  const matches = (more: object) =>
    sameConfiguration(loaded?.configuration as StartConfiguration, parseStartBody({ ...body, ...more }))
  expect([matches({}), matches({ timeseries: 'refuse' }), matches({ timeseries: 'skip' })]).toEqual([true, true, false])

  await metadata().saveSync(record(parseStartBody({ ...body, timeseries: 'skip' })))
  expect(await stored.findOne()).toMatchObject({ schemaVersion: 3, configuration: { timeseries: 'skip' } })
  const skipping = (await metadata().loadSync())?.configuration as StartConfiguration
  expect(sameConfiguration(skipping, parseStartBody({ ...body, timeseries: 'skip' }))).toBe(true)
})

it('a sync record of an earlier release, without initialCompareMethod, is loaded with "binary" and matches its start request', async () => {
  const body = { source: 'cluster0', destination: 'cluster1' }
  const byHashes = { verification: { initialCompareMethod: 'toHashedIndexKey' } }
  const record = (more: object): SyncRecord => ({
    configuration: parseStartBody({ ...body, ...more }),
    ...{ sourceIdentity: 'one', destinationIdentity: 'other', startTime: clusterTime(4_000, 1) },
    ...{ partitions: 17, redis: false, generation: 0 },
  })
  const matches = async (more: object): Promise<boolean> => {
    const { configuration } = (await metadata().loadSync()) as SyncRecord
    return sameConfiguration(configuration, parseStartBody({ ...body, ...more }))
  }
  const stored = one.client.db(metadataDatabase).collection('sync')
  await stored.deleteMany({})
  await metadata().createSync(record({}))
  // The default is not stored, so an earlier release that continues the sync finds its own configuration.
  expect((await stored.findOne())?.['configuration'].verification).toEqual({ enabled: true })
  expect((await metadata().loadSync())?.configuration.verification.initialCompareMethod).toBe('binary')
  expect([await matches({}), await matches(byHashes)]).toEqual([true, false])

  // An earlier release ignores the method, and compares bytes.
  await metadata().saveSync(record(byHashes))
  expect(await stored.findOne()).toMatchObject({ schemaVersion: 1, configuration: { verification: { enabled: true } } })
  expect([await matches({}), await matches(byHashes)]).toEqual([false, true])
})

it('earlier releases refuse a sync record whose sharding entries have options, and the same start request matches it', async () => {
  const body = (options: object) => ({
    source: 'cluster0',
    destination: 'cluster1',
    sharding: {
      shardingEntries: [{ database: 'app', collection: 'c', shardCollection: { key: [{ k: 1 }], ...options } }],
    },
  })
  const record = (configuration: StartConfiguration): SyncRecord => ({
    configuration,
    ...{ sourceIdentity: 'one', destinationIdentity: 'other', startTime: clusterTime(4_000, 1) },
    ...{ partitions: 17, redis: false, generation: 0 },
  })
  const stored = one.client.db(metadataDatabase).collection('sync')
  for (const [options, schemaVersion] of [
    [{}, 1],
    [{ unique: true }, 4],
    [{ numInitialChunks: 4 }, 4],
    [{ presplitHashedZones: true }, 4],
  ] as const) {
    await stored.deleteMany({})
    await metadata().saveSync(record(parseStartBody(body(options))))
    expect(await stored.findOne()).toMatchObject({ schemaVersion })
    const loaded = (await metadata().loadSync())?.configuration as StartConfiguration
    const matches = (other: object) => sameConfiguration(loaded, parseStartBody(body(other)))
    expect([matches(options), matches({ unique: true, numInitialChunks: 4 })]).toEqual([true, false])
  }
})

it('default values of copyInNaturalOrder and detectRandomId are not stored, and other values match the same start request', async () => {
  const stored = one.client.db(metadataDatabase).collection('sync')
  const body = { source: 'cluster0', destination: 'cluster1' }
  for (const more of [{}, { copyInNaturalOrder: true }, { detectRandomId: false }]) {
    await stored.deleteMany({})
    const configuration = parseStartBody({ ...body, ...more })
    await metadata().createSync({
      configuration,
      ...{ sourceIdentity: 'one', destinationIdentity: 'other', startTime: clusterTime(4_000, 1) },
      ...{ partitions: 17, redis: false, generation: 0 },
    })
    const fields = Object.keys((await stored.findOne())?.['configuration'])
    expect(fields.filter((name) => /Natural|Random/.test(name))).toEqual(Object.keys(more))
    const loaded = (await metadata().loadSync())?.configuration as StartConfiguration
    expect(loaded).toEqual(configuration)
    for (const other of [{}, { copyInNaturalOrder: true }, { detectRandomId: false }]) {
      const same = JSON.stringify(other) === JSON.stringify(more)
      expect(sameConfiguration(loaded, parseStartBody({ ...body, ...other }))).toBe(same)
    }
  }
})

it('earlier releases refuse a sync record with namespaceRemap, and the same start request matches it', async () => {
  const stored = one.client.db(metadataDatabase)
  const body = { source: 'cluster0', destination: 'cluster1' }
  const remap = { namespaceRemap: [{ from: { database: 'shop' }, to: { database: 'store' } }] }
  const record = (more: object): SyncRecord => ({
    configuration: parseStartBody({ ...body, ...more }),
    ...{ sourceIdentity: 'one', destinationIdentity: 'other', startTime: clusterTime(4_000, 1) },
    ...{ partitions: 17, redis: false, generation: 0 },
  })
  const [from, to] = ['b', 'd'].map((collection) => ({ database: 'shop', collection }))
  const collections = { namespaceRemap: [...remap.namespaceRemap, { from, to }] }
  const all = [{}, remap, { ...remap, timeseries: 'skip' }, collections]
  for (const more of all) {
    await stored.collection('sync').deleteMany({})
    expect(await metadata().createSync(record(more))).toEqual(record(more))
    const found = await stored.collection('sync').findOne()
    const version = more === collections ? 6 : 5
    expect(found).toMatchObject({ schemaVersion: 'namespaceRemap' in more ? version : 1 })
    expect(found?.['configuration'].namespaceRemap !== undefined).toBe('namespaceRemap' in more)
    const loaded = (await metadata().loadSync())?.configuration as StartConfiguration
    for (const other of all) {
      const isSame = JSON.stringify(other) === JSON.stringify(more)
      expect(sameConfiguration(loaded, parseStartBody({ ...body, ...other }))).toBe(isSame)
    }
  }
})

it('an earlier release refuses a sync record by its version only if the record has a value that the release does not know', async () => {
  const stored = one.client.db(metadataDatabase)
  const record = (buildIndexes: StartConfiguration['buildIndexes'], timeseries: TimeSeries = 'refuse'): SyncRecord => ({
    configuration: {
      source: 'cluster0',
      destination: 'cluster1',
      buildIndexes,
      verification: { enabled: true, initialCompareMethod: 'binary' },
      existingData: 'refuse',
      timeseries,
      copyInNaturalOrder: null,
      detectRandomId: true,
      namespaceRemap: null,
    } as StartConfiguration,
    ...{ sourceIdentity: 'one', destinationIdentity: 'other', startTime: clusterTime(4_000, 1) },
    ...{ partitions: 17, redis: false, generation: 0 },
  })
  for (const mode of buildIndexesModes) {
    const schemaVersion = mode === 'beforeDataCopy' || mode === 'never' ? 1 : 2
    await stored.collection('sync').deleteMany({})
    expect(await metadata().createSync(record(mode))).toEqual(record(mode))
    expect(await stored.collection('sync').findOne()).toMatchObject({ schemaVersion })
    // A second instance with another configuration finds the stored one, and does not change it.
    for (const other of ['never', 'excludeHashed'] as const) {
      expect(await metadata().createSync(record(other))).toEqual(record(mode))
      expect(await stored.collection('sync').findOne()).toMatchObject({ schemaVersion })
    }
    await metadata().saveSync(record(mode))
    expect(await stored.collection('sync').findOne()).toMatchObject({ schemaVersion })
    await metadata().announceMove(record(mode))
    expect(await metadata().loadMove()).toEqual(record(mode))
    expect(await stored.collection('moves').findOne()).toMatchObject({ schemaVersion })

    const skipping = record(mode, 'skip')
    await stored.collection('sync').deleteMany({})
    for (const other of [skipping, record(mode)]) expect(await metadata().createSync(other)).toEqual(skipping)
    await metadata().announceMove(skipping)
    for (const name of ['sync', 'moves']) {
      expect(await stored.collection(name).findOne()).toMatchObject({ schemaVersion: 3 })
    }
    expect([await metadata().loadSync(), await metadata().loadMove()]).toEqual([skipping, skipping])
  }
})

it('a position of either kind is loaded exactly as it was stored', async () => {
  const time = clusterTime(4_294_967_295, 4_294_967_295)
  await metadata().savePosition(0, 1, { kind: 'time', time })
  await metadata().savePosition(1, 1, { kind: 'token', token: { _data: '82FFFF' }, time })
  expect(await metadata().loadPartitions()).toEqual(
    new Map([
      [0, { kind: 'time', time }],
      [1, { kind: 'token', token: { _data: '82FFFF' }, time }],
    ]),
  )
})
