import { type Document, Double, Int32, Long, type MongoClient } from 'mongodb'
import { afterEach, expect, test } from 'vitest'
import type { Finding } from '../../src/domain/finding.ts'
import { commitEqual } from '../support/commit-equal.ts'
import { seedHostile } from '../support/hostile-seeds.ts'
import { pairedSets } from '../support/paired-sets.ts'
import { Random } from '../support/random.ts'
import { startSync, type Tandem } from '../support/tandem-process.ts'

/** A sync onto a destination with data writes only the differences and makes both clusters equal. */

const pair = pairedSets()
let tandem: Tandem | null = null

afterEach(async () => {
  await tandem?.stop()
  tandem = null
})

const converge = { existingData: 'converge' } as const

type Any = { _id: unknown; [field: string]: unknown }

/** Returns how many documents have been written to a database of the destination since `from`, according to the oplog. */
async function writtenSince(from: Document, database: string): Promise<number> {
  const entries = pair.destinationClient
    .db('local')
    .collection('oplog.rs')
    .find({ ts: { $gt: from['ts'] } })
  let written = 0
  const count = ({ op, ns }: Document): void => {
    if (['i', 'u', 'd'].includes(op) && String(ns).startsWith(`${database}.`)) written += 1
  }
  for await (const entry of entries) {
    count(entry)
    for (const one of (entry['o']?.['applyOps'] ?? []) as Document[]) count(one)
  }
  return written
}

async function newestEntry(): Promise<Document> {
  const oplog = pair.destinationClient.db('local').collection('oplog.rs')
  return (await oplog.find().sort({ $natural: -1 }).limit(1).next()) as Document
}

async function insertBoth(database: string, name: string, documents: Document[]): Promise<void> {
  for (const client of [pair.sourceClient, pair.destinationClient]) {
    for (let from = 0; from < documents.length; from += 10_000) {
      await client
        .db(database)
        .collection(name)
        .insertMany(documents.slice(from, from + 10_000))
    }
  }
}

test('README: a destination with an older copy becomes equal, and only the differences are written', async () => {
  const random = new Random('older copy')
  const documents = Array.from({ length: 50_000 }, (_, _id) => ({ _id, n: 0, text: random.word(200) }))
  await insertBoth('app', 'things', documents as Document[])
  const things = pair.sourceClient.db('app').collection<{ _id: number; n: number; text?: string }>('things')
  const changed = new Set<number>()
  const operations = Array.from({ length: 10_000 }, (_, at) => {
    const kind = random.int(0, 9)
    if (kind === 0) {
      changed.add(100_000 + at)
      return { insertOne: { document: { _id: 100_000 + at, n: 1, text: random.word(200) } } }
    }
    const _id = random.int(0, 49_999)
    changed.add(_id)
    if (kind === 1) return { deleteOne: { filter: { _id } } }
    return { updateOne: { filter: { _id }, update: { $inc: { n: 1 } } } }
  })
  await things.bulkWrite(operations, { ordered: false })

  const began = await newestEntry()
  tandem = await pair.startInstance()
  await startSync(tandem, converge)
  await commitEqual(tandem, pair)
  const written = await writtenSince(began, 'app')
  expect(written).toBeGreaterThan(changed.size / 2)
  expect(written).toBeLessThan(1.5 * changed.size)
})

test('a sync between equal clusters writes nothing', async () => {
  await insertBoth(
    'app',
    'things',
    Array.from({ length: 3_000 }, (_, at) => ({ _id: at as never, at })),
  )
  const began = await newestEntry()
  tandem = await pair.startInstance()
  await startSync(tandem, converge)
  await commitEqual(tandem, pair)
  expect(await writtenSince(began, 'app')).toBe(0)
})

test('all existing data and definitions on the destination become equal to the source', async () => {
  const [source, destination] = [pair.sourceClient.db('app'), pair.destinationClient.db('app')]
  const both = [source, destination]

  // Some documents differ in types, in the order of fields or in the spelling of their _id; some are extra, and some are missing.
  const ids = [new Int32(1), Long.fromInt(2), new Double(3), 'text', null, { k: 1 }, new Date(5)] as never[]
  await source.collection('documents').insertMany(ids.map((_id) => ({ _id, a: 1, b: 'x' })))
  const spellings = [Long.fromInt(1), new Double(2), new Int32(3), 'text', null, { k: 1 }, new Date(5)] as never[]
  await destination.collection('documents').insertMany(spellings.map((_id) => ({ _id, b: 'x', a: 1 })))
  await destination
    .collection('documents')
    .insertMany([{ _id: 'extra' as never }, { _id: { k: Long.fromInt(2) } as never }])
  await source.collection('documents').insertOne({ _id: 'missing' as never })

  // Indexes and collection options differ.
  for (const db of both)
    await db.collection('indexed').insertMany(Array.from({ length: 20 }, (_, at) => ({ at, same: 1 })))
  await destination.collection('indexed').deleteMany({})
  await destination.collection('indexed').insertOne({ same: 1 })
  await destination.collection('indexed').createIndex({ same: 1 }, { unique: true, name: 'extra' })
  await destination.collection('indexed').createIndex({ at: -1 }, { name: 'at' })
  await source.collection('indexed').createIndex({ at: 1 }, { name: 'at', unique: true })
  await source.collection('indexed').createIndex({ same: 1, at: 1 }, { name: 'hidden', hidden: true })
  await destination.collection('indexed').createIndex({ same: 1, at: 1 }, { name: 'hidden' })
  // The TTL index of the destination would delete documents.
  const old = new Date(0)
  await source.collection<Any>('expiring').insertMany([{ _id: 1, at: new Date() }])
  await source.collection('expiring').createIndex({ at: 1 }, { expireAfterSeconds: 3_600 })
  await destination.collection('expiring').insertMany([{ at: new Date() }, { at: old }])
  await destination.collection('expiring').createIndex({ at: 1 }, { expireAfterSeconds: 100_000_000 })
  // The validator of the destination would refuse documents of the source.
  await source.createCollection('validated', { validator: { a: { $type: 'int' } }, validationLevel: 'moderate' })
  await source.collection('validated').insertOne({ a: new Int32(1) })
  await destination.createCollection('validated', { validator: { b: { $exists: true } }, validationAction: 'warn' })
  await destination.collection('validated').insertOne({ b: 1 })

  // No command can change these options.
  await source.createCollection('capped', { capped: true, size: 100_000, max: 10 })
  await destination.createCollection('capped', { capped: true, size: 4_096 })
  await source.createCollection('uncapped')
  await destination.createCollection('uncapped', { capped: true, size: 100_000 })
  await source.createCollection('collated', { collation: { locale: 'en', strength: 2 } })
  await destination.createCollection('collated', { collation: { locale: 'de' } })
  await source.createCollection('clustered', { clusteredIndex: { key: { _id: 1 }, unique: true } })
  await destination.createCollection('clustered')
  for (const name of ['capped', 'uncapped', 'collated', 'clustered']) {
    await source.collection<Any>(name).insertMany([1, 2, 3].map((_id) => ({ _id, on: 'source' })))
    await destination.collection<Any>(name).insertMany([3, 2, 4].map((_id) => ({ _id, on: 'destination' })))
  }
  // The collations are equal, and each cluster spells the same _id differently.
  for (const db of both) await db.createCollection('spelled', { collation: { locale: 'en', strength: 2 } })
  await source.collection<Any>('spelled').insertMany([{ _id: 'abc' }, { _id: 'DEF', same: 1 }, { _id: 'g' }])
  await destination.collection<Any>('spelled').insertMany([{ _id: 'ABC' }, { _id: 'def', same: 1 }, { _id: 'H' }])

  // One cluster has a view under the name of a collection on the other.
  await destination.createCollection('viewed', { viewOn: 'documents', pipeline: [] })
  await source.collection('viewed').insertOne({ a: 1 })
  await source.createCollection('view', { viewOn: 'documents', pipeline: [{ $match: { a: 1 } }] })
  await destination.collection('view').insertOne({ a: 1 })
  await source.createCollection('otherView', { viewOn: 'documents', pipeline: [] })
  await destination.createCollection('otherView', { viewOn: 'indexed', pipeline: [{ $limit: 1 }] })
  await destination.createCollection('extraView', { viewOn: 'indexed', pipeline: [] })
  await source.collection('plain').insertOne({ a: 1 })
  await destination.createCollection('plain', { timeseries: { timeField: 't' } })
  await destination.collection('plain').insertOne({ t: new Date() })

  // The source does not have these namespaces.
  await destination.collection('extra').insertOne({ a: 1 })
  await pair.destinationClient.db('extra').collection('extra').insertOne({ a: 1 })
  await pair.destinationClient.db('extra').createCollection('seen', { viewOn: 'extra', pipeline: [] })
  await seedHostile(pair.sourceClient, pair.destinationClient)

  tandem = await pair.startInstance()
  const { body } = await tandem.post('check', { source: 'cluster0', destination: 'cluster1', ...converge })
  const findings = (body['findings'] as Finding[]).filter(({ name }) => name === 'ExistingData')
  const found = new Map(findings.map((one) => [one.namespace, `${one.severity}: ${one.message}`]))
  expect(found.get('app.documents')).toMatch(/^info: .*\(9 documents, .* on the source 8 documents, .* made equal/)
  expect(found.get('app.capped')).toMatch(/^warning: .* dropped and copied/)
  expect(found.get('app.viewed')).toMatch(/^warning: .*a view; on the source 1 documents.* dropped and copied/)
  expect(found.get('app.plain')).toMatch(/^warning: .*a time-series collection/)
  expect(found.get('extra.extra')).toMatch(/^warning: .*on the source nothing.* is dropped/)
  expect(found.has('app.otherView')).toBe(false)
  expect(await pair.destinationClient.db('extra').collection('extra').countDocuments()).toBe(1)
  await startSync(tandem, converge)
  await commitEqual(tandem, pair)
  expect(await pair.destinationClient.db('extra').collections()).toMatchObject([{ collectionName: 'system.views' }])
  expect(tandem.output()).toContain('existing namespace dropped')
})

test('namespaces outside the filter stay unchanged', async () => {
  const seed = async (client: MongoClient, on: string): Promise<void> => {
    for (const name of ['synced', 'left']) {
      await client
        .db('app')
        .collection<Any>(name)
        .insertMany([{ _id: 1, on }, { _id: on }])
    }
    await client.db(`only-${on}`).collection<Any>('left').insertOne({ _id: 1, on })
  }
  await seed(pair.sourceClient, 'source')
  await seed(pair.destinationClient, 'destination')
  await pair.destinationClient.db('app').createCollection('leftView', { viewOn: 'synced', pipeline: [] })
  await pair.destinationClient.db('app').createCollection('sync2', { viewOn: 'synced', pipeline: [] })
  tandem = await pair.startInstance()
  await startSync(tandem, {
    ...converge,
    includeNamespaces: [{ database: 'app', collectionsRegex: { pattern: '^sync' } }],
  })
  await tandem.waitFor(({ canCommit }) => canCommit, { timeoutSeconds: 60, what: 'canCommit' })
  expect(await tandem.post('commit')).toMatchObject({ status: 200 })
  await tandem.waitFor(({ state }) => state === 'COMMITTED', { timeoutSeconds: 60, what: 'COMMITTED' })
  const app = pair.destinationClient.db('app')
  const contents = (name: string) => app.collection<Any>(name).find().sort({ _id: 1 }).toArray()
  expect(await contents('synced')).toEqual([{ _id: 1, on: 'source' }, { _id: 'source' }])
  expect(await contents('left')).toEqual([{ _id: 1, on: 'destination' }, { _id: 'destination' }])
  const names = (await app.listCollections({}, { nameOnly: true }).toArray()).map(({ name }) => name).sort()
  expect(names).toEqual(['left', 'leftView', 'synced', 'system.views'])
  expect(await pair.destinationClient.db('only-destination').collection('left').countDocuments()).toBe(1)
})

test('without converge a destination with data is refused, and an unknown value of existingData is refused with the name of the field', async () => {
  await insertBoth('app', 'things', [{ _id: 1 as never }])
  tandem = await pair.startInstance()
  const body = { source: 'cluster0', destination: 'cluster1' }
  expect(await tandem.post('start', body)).toMatchObject({ body: { error: 'DestinationNotEmpty' } })
  const refused = await tandem.post('start', { ...body, existingData: 'replace' })
  expect(refused).toMatchObject({ body: { error: 'InvalidRequest' } })
  expect(refused.body.errorDescription).toContain('existingData')
  expect(await tandem.post('start', { ...body, existingData: 'refuse' })).toMatchObject({
    body: { error: 'DestinationNotEmpty' },
  })
  await startSync(tandem, converge)
  // A second instance may join only with the body of the running sync.
  const second = await pair.startInstance({ id: 'second' })
  try {
    expect(await second.post('start', body)).toMatchObject({ body: { error: 'ConfigurationMismatch' } })
    expect(await second.post('start', { ...body, ...converge })).toMatchObject({ status: 200 })
  } finally {
    await second.stop()
  }
  await commitEqual(tandem, pair)
})
