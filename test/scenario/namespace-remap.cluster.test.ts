import { afterEach, expect, test } from 'vitest'
import { changeEachKind, seedEachKind } from '../support/changes-of-each-kind.ts'
import { accepted, canCommit, commit, committed, failed } from '../support/commits.ts'
import type { Selects } from '../support/compare.ts'
import { compareBoth } from '../support/compare-both.ts'
import { fingerprints } from '../support/fingerprints.ts'
import { pairedSets } from '../support/paired-sets.ts'
import { seedData } from '../support/seed-data.ts'
import type { Tandem } from '../support/tandem-process.ts'
import { until } from '../support/until.ts'
import { createWorkload } from '../support/workload.ts'

/** Databases that get other names on the destination: `namespaceRemap`. */

interface Row {
  _id: number
}

const pair = pairedSets()
let tandem: Tandem | undefined
afterEach(() => tandem?.stop())

const rename = (from: string, to: string) => ({ from: { database: from }, to: { database: to } })
const rows = (count: number): Row[] => Array.from({ length: count }, (_, _id) => ({ _id }))
const answerOf = async ({ url }: Tandem, path: string): Promise<unknown> =>
  await (await fetch(`${url}/api/v1/${path}`)).json()
const start = async (body: object): Promise<Tandem> => {
  tandem = await pair.startInstance()
  expect(await tandem.post('start', { source: 'cluster0', destination: 'cluster1', ...body })).toMatchObject(accepted)
  return tandem
}

/** `app` takes a new name, and `emptied` takes that of `app`. So nobody may use the source's `Store`. */
const chain = {
  namespaceRemap: [rename('app', 'Store'), rename('emptied', 'app')],
  excludeNamespaces: [{ database: 'Store' }],
}
const renamed = { app: 'Store', emptied: 'app' }
const selects: Selects = (database) => database !== 'Store'

test('changes of every kind arrive under the other names, and nothing else changes on the destination', async () => {
  const { sourceClient, destinationClient } = pair
  await seedEachKind(sourceClient)
  await sourceClient.db('Store').collection<Row>('things').insertMany(rows(3))
  // No database of the source is called `emptied` on the destination, so this database stays unchanged there.
  await destinationClient.db('emptied').collection<Row>('things').insertMany(rows(7))
  await destinationClient.db('emptied').createCollection('view', { viewOn: 'things', pipeline: [] })
  // `Store.dropped` converges, and `Store.stale` does not exist on the source.
  await destinationClient.db('Store').collection<Row>('dropped').insertMany(rows(9))
  await destinationClient.db('Store').collection<Row>('stale').insertMany(rows(9))
  const foreign = () => fingerprints(pair.destination.uri, (database) => database === 'emptied')
  const before = await foreign()

  const running = await start({ ...chain, existingData: 'converge' })
  await canCommit(running)
  await changeEachKind(sourceClient)
  await sourceClient.db('Store').collection<Row>('things').insertOne({ _id: 9 })
  await sourceClient.db('emptied').collection<Row>('again').insertMany(rows(5))
  // This rename moves a collection into another renamed database.
  await sourceClient.db('admin').command({ renameCollection: 'emptied.again', to: 'app.moved' })
  await sourceClient.db('emptied').collection<Row>('last').insertMany(rows(2))
  await commit(running)

  expect((await compareBoth(pair.source.uri, pair.destination.uri, { renamed, selects })).differences).toEqual([])
  expect(await destinationClient.db('Store').collection('moved').countDocuments()).toBe(5)
  expect(await destinationClient.db('app').collection('last').countDocuments()).toBe(2)
  expect(await foreign()).toEqual(before)
  expect(await answerOf(running, 'collections')).toMatchObject({
    collections: expect.arrayContaining([
      expect.objectContaining({ namespace: 'app.moved', destinationNamespace: 'Store.moved' }),
      expect.not.objectContaining({ destinationNamespace: expect.anything() }),
    ]),
  })
})

test('two databases exchange their names under a random workload, also across a kill', async () => {
  const exchanged = { harbour: 'ledger', ledger: 'harbour', people: 'Människor' }
  const body = { namespaceRemap: Object.entries(exchanged).map(([from, to]) => rename(from, to)) }
  const excluded = { excludeNamespaces: [{ database: 'Människor' }] }
  await seedData(pair.source.uri, 7, 0.2)
  const workload = createWorkload({ uri: pair.source.uri, seed: 7, ddl: true, ddlShare: 0.15, transactions: true })
  await workload.runSteps(30)
  const first = await start({ ...body, ...excluded })
  await workload.runSteps(60)
  await first.kill9()
  await workload.runSteps(30)
  tandem = await pair.startInstance()
  expect(await tandem.post('start', { source: 'cluster0', destination: 'cluster1', ...body, ...excluded })).toEqual(
    accepted,
  )
  await canCommit(tandem)
  await workload.runSteps(120)
  await commit(tandem)
  const compared = await compareBoth(pair.source.uri, pair.destination.uri, { renamed: exchanged })
  expect(compared.differences).toEqual([])
  expect(compared.documents).toBeGreaterThan(1_000)
})

test('a difference on the destination is found and repaired, and both names are in the answer', async () => {
  const { sourceClient, destinationClient } = pair
  await sourceClient.db('shop').collection<Row>('orders').insertMany(rows(20))
  const running = await start({
    namespaceRemap: [rename('shop', 'store')],
    includeNamespaces: [{ database: 'shop' }],
    enableUserWriteBlocking: 'none',
  })
  await canCommit(running)
  await destinationClient
    .db('store')
    .collection<Row>('orders')
    .updateOne({ _id: 3 }, { $set: { wrong: true } })
  expect(await running.post('commit')).toEqual(accepted)
  await failed(running)
  const body = await answerOf(running, 'verification/mismatches')
  expect(body).toMatchObject({
    mismatches: [
      { namespace: 'shop.orders', destinationNamespace: 'store.orders', kind: 'content', by: 'foreignWrite' },
    ],
  })
  expect((await running.post('repair')).body).toMatchObject({ success: true, repairedDocuments: 1 })
  expect(await running.post('resume')).toEqual(accepted)
  await committed(running)
  expect(
    (await compareBoth(pair.source.uri, pair.destination.uri, { renamed: { shop: 'store' } })).differences,
  ).toEqual([])
})

test('starts and filters that would bring two databases together are refused, and nothing is changed', async () => {
  const { sourceClient, destinationClient } = pair
  for (const database of ['shop', 'store', 'zoo'])
    await sourceClient.db(database).collection<Row>('things').insertMany(rows(2))
  await destinationClient.db('Other').collection<Row>('things').insertMany(rows(2))
  const before = await fingerprints(pair.destination.uri, () => true)
  tandem = await pair.startInstance()
  const only = (...databases: string[]) => ({ includeNamespaces: databases.map((database) => ({ database })) })
  const remap = (...all: [string, string][]) => ({ namespaceRemap: all.map(([from, to]) => rename(from, to)) })
  const refused: [body: object, status: number, error: string, description: RegExp][] = [
    [
      remap(['shop', 'store']),
      400,
      'InvalidRequest',
      /^namespaceRemap\[0\]\.to\.database: .* database store .* exclude it/,
    ],
    [
      { ...remap(['shop', 'store']), includeNamespaces: [{ databaseRegex: { pattern: '^s' }, collections: ['x'] }] },
      400,
      'InvalidRequest',
      /^namespaceRemap\[0\]\.to\.database/,
    ],
    [{ ...remap(['shop', 'a'], ['zoo', 'a']) }, 400, 'InvalidRequest', /^namespaceRemap\[1\]\.to\.database/],
    [{ ...remap(['shop', 'admin']) }, 400, 'InvalidRequest', /^namespaceRemap\[0\]\.to\.database: admin is internal/],
    [
      { ...remap(['shap', 'a']), ...only('shop') },
      400,
      'InvalidRequest',
      /^namespaceRemap\[0\]\.from\.database: .* do not select shap/,
    ],
    [
      { ...remap(['Shop', 'a']), ...only('Shop') },
      400,
      'InvalidRequest',
      /^namespaceRemap\[0\]\.from\.database: the source has no database Shop, but shop/,
    ],
    [
      { ...remap(['shop', 'ZOO']), ...only('shop', 'zoo') },
      400,
      'InvalidRequest',
      /shop and zoo of the source would be ZOO and zoo on the destination/,
    ],
    [
      { namespaceRemap: [{ from: { database: 'shop', collection: 'x' }, to: { database: 'a' } }] },
      400,
      'InvalidRequest',
      /namespaceRemap\[0\]\.to\.collection/,
    ],
    [{ ...remap(['shop', 'a']), ...only('shop'), reversible: true }, 422, 'ReversibleNotSupported', /namespaceRemap/],
    [
      { ...remap(['shop', 'Other']), ...only('shop', 'zoo') },
      422,
      'DestinationNotEmpty',
      /Other\.things \(on the source: shop\.things\), whose name is selected for the sync/,
    ],
  ]
  for (const [body, status, error, description] of refused) {
    const answer = await tandem.post('start', { source: 'cluster0', destination: 'cluster1', ...body })
    expect([body, answer]).toMatchObject([
      body,
      { status, body: { success: false, error, errorDescription: expect.stringMatching(description) } },
    ])
  }
  expect(await fingerprints(pair.destination.uri, () => true)).toEqual(before)

  const body = { source: 'cluster0', destination: 'cluster1', ...remap(['shop', 'store']), ...only('shop') }
  expect(await tandem.post('start', body)).toMatchObject(accepted)
  await canCommit(tandem)
  expect(await tandem.post('filter', only('shop', 'store'))).toMatchObject({
    status: 400,
    body: { errorDescription: expect.stringMatching(/^namespaceRemap\[0\]\.to\.database/) },
  })
  expect(await tandem.post('filter', only('shop', 'zoo'))).toEqual(accepted)
  // A check beside the running sync uses the names of its own request.
  const check = await tandem.post('check', { source: 'cluster0', destination: 'cluster1', ...only('store') })
  expect(check.body).toMatchObject({
    findings: expect.arrayContaining([
      expect.objectContaining({ name: 'DestinationNotEmpty', message: expect.stringContaining('store.things, whose') }),
    ]),
  })
  await canCommit(tandem)
  await until('the newly included database', async () => {
    expect(await destinationClient.db('zoo').collection('things').countDocuments()).toBe(2)
  })
  await commit(tandem)
  const compared = await compareBoth(pair.source.uri, pair.destination.uri, {
    renamed: { shop: 'store' },
    selects: (database) => database === 'shop' || database === 'zoo',
  })
  expect(compared.differences).toEqual([])
})

test('a collection whose name would be too long on the destination ends the sync by name, and resume continues without it', async () => {
  const { sourceClient } = pair
  await sourceClient.db('shop').collection<Row>('orders').insertMany(rows(3))
  const namespaceRemap = [rename('shop', 'department_store')]
  const running = await start({ namespaceRemap, includeNamespaces: [{ database: 'shop' }] })
  await canCommit(running)
  const long = 'x'.repeat(245)
  await sourceClient.db('shop').collection<Row>(long).insertMany(rows(2))
  const { failure } = await failed(running)
  expect(failure).toMatchObject({
    error: 'UnsupportedCollection',
    errorDescription: expect.stringMatching(/would be department_store\.x+ on the destination, which has 262 bytes/),
  })
  await sourceClient.db('shop').collection(long).rename('short')
  expect(await running.post('resume')).toEqual(accepted)
  await canCommit(running)
  await commit(running)
  const renames = { renamed: { shop: 'department_store' } }
  expect((await compareBoth(pair.source.uri, pair.destination.uri, renames)).differences).toEqual([])
})

test('a database whose new name differs only in case from another one of the sync ends the sync, and the sync continues without that database', async () => {
  const { sourceClient } = pair
  const [shop, store] = [sourceClient.db('shop'), sourceClient.db('store')]
  await store.collection<Row>('things').insertMany(rows(3))
  const namespaceRemap = [rename('shop', 'Store')]
  const running = await start({ namespaceRemap, includeNamespaces: [{ database: 'shop' }, { database: 'store' }] })
  await canCommit(running)
  const conflict = async (): Promise<void> => {
    await shop.collection<Row>('orders').insertMany(rows(2))
    expect((await failed(running)).failure).toMatchObject({
      error: 'DestinationConflict',
      errorDescription: expect.stringMatching(
        /the database store of the source, which this sync copied.*Drop or rename shop on the source/,
      ),
    })
  }
  await conflict()
  await shop.dropDatabase()
  expect(await running.post('resume')).toEqual(accepted)
  await canCommit(running)
  await conflict()
  expect(await running.post('filter', { includeNamespaces: [{ database: 'store' }] })).toEqual(accepted)
  expect(await running.post('resume')).toEqual(accepted)
  await canCommit(running)
  await commit(running)
  const compared = await compareBoth(pair.source.uri, pair.destination.uri, {
    renamed: { shop: 'Store' },
    selects: (database) => database === 'store',
  })
  expect(compared).toMatchObject({ differences: [], documents: 3 })
})
