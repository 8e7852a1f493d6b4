import type { Document, MongoClient, Timestamp } from 'mongodb'
import { expect, it } from 'vitest'
import { metadataDatabase } from '../../src/domain/namespace.ts'
import { canCommit } from '../support/commits.ts'
import { compareBoth } from '../support/compare-both.ts'
import { failPoint, holdCopy } from '../support/fail-point.ts'
import { pairedSets } from '../support/paired-sets.ts'
import { startSync, type Tandem } from '../support/tandem-process.ts'

/** The source has rare contents and operations that a sync easily gets wrong. See test/pitfalls.md. */

const pair = pairedSets()

interface Row extends Document {
  _id: number | string
}

const app = (client: MongoClient, name: string) => client.db('app').collection<Row>(name)
const rows = (from: number, to: number): Row[] => Array.from({ length: to - from }, (_, at) => ({ _id: from + at }))

async function commitsEqual(tandem: Tandem): Promise<void> {
  await canCommit(tandem)
  expect(await tandem.post('commit')).toEqual({ status: 200, body: { success: true } })
  await tandem.waitFor(({ state }) => state === 'COMMITTED', { timeoutSeconds: 60, what: 'committed' })
  expect((await compareBoth(pair.source.uri, pair.destination.uri)).differences).toEqual([])
}

it('a write that has an optime but is not yet in the oplog when the sync starts is not lost', async () => {
  await app(pair.sourceClient, 'things').insertMany(rows(0, 10))
  const name = 'sleepBetweenInsertOpTimeGenerationAndLogOp'
  await using sleeping = await failPoint(pair.sourceClient, name, { waitForMillis: 4_000 }, { times: 1 })
  await using tandem = await pair.startInstance()
  const late = app(pair.sourceClient, 'things').insertOne({ _id: 'late' })
  // The oplog no-op that fixes the start time waits for this write, and so does every read.
  await sleeping.reached()
  await app(pair.sourceClient, 'others').insertOne({ _id: 1 }, { writeConcern: { w: 1 } })
  await startSync(tandem)
  await late
  const noop = await pair.sourceClient
    .db('local')
    .collection('oplog.rs')
    .findOne({ op: 'n', 'o.tandem': 'start' }, { sort: { $natural: -1 } })
  const sync = await pair.destinationClient.db(metadataDatabase).collection('sync').findOne()
  const [noopTime, started] = [noop, sync].map((one) => (one?.['ts'] ?? one?.['startTime']) as Timestamp)
  expect(noopTime).toBeDefined()
  expect(started?.greaterThanOrEqual(noopTime as Timestamp)).toBe(true)
  await commitsEqual(tandem)
})

/** These updates have an ambiguous updateDescription: names contain dots and dollars, and arrays become another type. */
const awkward: (Document | Document[])[] = [
  { $set: { 'list.0.x': 1 } },
  { $set: { 'list.0': null } },
  { $push: { list: { $each: [{ x: 1 }, 2, 3, 4], $slice: 3 } } },
  [{ $set: { list: { $slice: ['$list', 1] } } }],
  { $set: { list: 'text' } },
  { $set: { list: { 3: 'a name' } } },
  { $set: { 'list.3': 'another' } },
  { $set: { list: [1, [2, { deep: [3] }]] } },
  { $set: { 'list.1.1.deep.0': 'deeper' } },
  [{ $replaceWith: { $setField: { field: 'a.b', input: '$$ROOT', value: 7 } } }],
  [{ $replaceWith: { $setField: { field: { $literal: '$price' }, input: '$$ROOT', value: 8 } } }],
  [{ $replaceWith: { $setField: { field: '', input: '$$ROOT', value: 'nameless' } } }],
  { $set: { a: { b: 'no dot' } } },
  [{ $replaceWith: { $unsetField: { field: 'a.b', input: '$$ROOT' } } }],
  { $set: { '0': 'zero', '00': 'zeros' }, $unset: { a: 1 } },
  { $rename: { list: 'renamed' } },
  { $set: { list: [{ x: 0 }, { x: 1 }, { x: 2 }] } },
]

it('updates with an ambiguous updateDescription arrive exactly, during the copy and after it', async () => {
  const things = app(pair.sourceClient, 'things')
  const start = { list: [{ x: 0 }, { x: 1 }] }
  await things.insertMany(rows(0, 60).map((row) => ({ ...row, ...structuredClone(start) })))
  // Each document gets a different subset of the updates.
  const applyUpdates = async (offset: number): Promise<void> => {
    for (const [at, update] of awkward.entries()) {
      const ids = rows(0, 60).flatMap(({ _id }) => ((Number(_id) + at + offset) % 3 === 0 ? [] : [_id]))
      // An update that does not fit the current document fails and changes nothing.
      for (const _id of ids) await things.updateOne({ _id }, update).catch(() => {})
    }
  }
  await using held = await holdCopy(pair.destinationClient, 'app.things')
  await using tandem = await pair.startInstance()
  await startSync(tandem)
  await held.reached()
  await applyUpdates(0)
  await held.release()
  await canCommit(tandem)
  await things.insertMany(rows(60, 80).map((row) => ({ ...row, ...structuredClone(start) })))
  await things.updateMany({ _id: { $gte: 60 } }, { $set: { right: 'after the insert' } })
  await applyUpdates(1)
  await commitsEqual(tandem)
})

it('after a capped collection has rolled over during its copy, its documents have the same order on both clusters', async () => {
  const capped = app(pair.sourceClient, 'capped')
  await pair.sourceClient.db('app').createCollection('capped', { capped: true, size: 1_000_000, max: 2_000 })
  await capped.insertMany(rows(0, 2_000))
  await using held = await holdCopy(pair.destinationClient, 'app.capped')
  await using tandem = await pair.startInstance()
  await startSync(tandem)
  await held.reached()
  for (let from = 2_000; from < 12_000; from += 1_000) await capped.insertMany(rows(from, from + 1_000))
  await held.release()
  await canCommit(tandem)
  for (let from = 12_000; from < 15_000; from += 1_000) await capped.insertMany(rows(from, from + 1_000))
  await commitsEqual(tandem)
  expect(await app(pair.destinationClient, 'capped').findOne()).toEqual({ _id: 13_000 })
})

it('indexes in the form of old releases keep their key values and index versions', async () => {
  const db = pair.sourceClient.db('app')
  await app(pair.sourceClient, 'things').insertMany(rows(0, 10).map((row) => ({ ...row, place: [Number(row._id), 1] })))
  const key = (name: string, value: unknown) => ({ key: { [name]: value }, name, v: 1 })
  const indexes: Document[] = [
    ...[-1e-9, -5].map((value, at) => key(`k${at}`, value)),
    ...[1, 2].map((version) => ({
      key: { [`at${version}`]: '2dsphere' },
      name: `at${version}`,
      '2dsphereIndexVersion': version,
    })),
    { key: { words: 'text' }, name: 'words', textIndexVersion: 2 },
    { key: { u: 1 }, name: 'unique', unique: true, sparse: true },
    { key: { u: 1 }, name: 'conflicting', sparse: true },
  ]
  await db.command({ createIndexes: 'things', indexes })
  await using tandem = await pair.startInstance()
  await startSync(tandem)
  await canCommit(tandem)
  await db.command({ createIndexes: 'later', indexes })
  await commitsEqual(tandem)
})

it('options that collMod changes before, during and after the copy become equal to those of the source', async () => {
  const db = pair.sourceClient.db('app')
  const changes: Document[] = [
    { validator: { n: { $type: 'int' } } },
    { validationLevel: 'moderate' },
    { validationAction: 'warn' },
    { changeStreamPreAndPostImages: { enabled: true } },
    { index: { name: 'n_1', hidden: true } },
    { index: { name: 'seen_1', expireAfterSeconds: 100_000 } },
  ]
  for (const at of changes.keys()) {
    const name = `c${at}`
    await app(pair.sourceClient, name).insertMany(rows(0, 5))
    await app(pair.sourceClient, name).createIndexes([
      { key: { n: 1 } },
      { key: { seen: 1 }, expireAfterSeconds: 90_000 },
    ])
  }
  // Each round makes each change to two collections. After three rounds no change has been made to all collections.
  const round = async (first: number): Promise<void> => {
    for (const [at, change] of changes.entries()) {
      for (const offset of [first, first + 1]) {
        await db.command({ collMod: `c${(at + offset) % changes.length}`, ...change })
      }
    }
  }
  await round(0)
  await using held = await holdCopy(pair.destinationClient, 'app.c0')
  await using tandem = await pair.startInstance()
  await startSync(tandem)
  await held.reached()
  await round(2)
  await db.command({ collMod: 'c0', changeStreamPreAndPostImages: { enabled: false }, validator: {} })
  await held.release()
  await canCommit(tandem)
  await round(3)
  await db.command({ collMod: 'c1', changeStreamPreAndPostImages: { enabled: false }, validator: {} })
  await commitsEqual(tandem)
})
