import { afterEach, expect, test, vi } from 'vitest'
import type { Finding } from '../../src/domain/finding.ts'
import { accepted, commit } from '../support/commits.ts'
import { compareBoth } from '../support/compare-both.ts'
import { pairedSets } from '../support/paired-sets.ts'
import { startSync, type Tandem } from '../support/tandem-process.ts'

/** With `"timeseries": "skip"`, the sync ignores the time-series collections of both clusters. */

interface Row {
  _id: number
  on?: string
}

const pair = pairedSets()
let tandem: Tandem | undefined
afterEach(() => tandem?.stop())

const skip = { timeseries: 'skip' } as const
const body = { source: 'cluster0', destination: 'cluster1', ...skip }
const series = { timeseries: { timeField: 'at', metaField: 'at_place' } }
const source = () => pair.sourceClient.db('app')
const destination = () => pair.destinationClient.db('app')
const rows = (count: number): Row[] => Array.from({ length: count }, (_, _id) => ({ _id }))
const measured = (on: string) => Array.from({ length: 30 }, (_, at) => ({ at: new Date(at * 9_999), at_place: 1, on }))
const patience = { timeout: 30_000, interval: 50 }

const timeSeries = new Set(['weather', 'later', 'extra', 'was plain', 'climate'])
const selects = (_database: string, name: string): boolean => !timeSeries.has(name.replace(/^system\.buckets\./, ''))

async function expectOthersEqual(): Promise<void> {
  expect((await compareBoth(pair.source.uri, pair.destination.uri, { selects })).differences).toEqual([])
}

async function warningsOf(running: Tandem): Promise<string> {
  return ((await running.progress()).warnings ?? []).join('\n')
}

test('time-series collections are not synced, from the start to the commit, and progress names them', async () => {
  await source().createCollection('weather', series)
  await source().collection('weather').insertMany(measured('source'))
  await source().collection<Row>('things').insertMany(rows(50))
  await source().createCollection('seen', { viewOn: 'weather', pipeline: [{ $match: { on: 'source' } }] })
  await pair.sourceClient.db('only-series').createCollection('climate', series)
  // The destination has time-series collections of its own, for example after a dump and restore.
  for (const name of ['weather', 'extra']) {
    await destination().createCollection(name, series)
    await destination().collection(name).insertMany(measured('destination'))
  }
  tandem = await pair.startInstance()
  await startSync(tandem, body)
  await tandem.waitFor(({ canCommit }) => canCommit, { timeoutSeconds: 60, what: 'canCommit' })
  const named = '2 time-series collections are not synced: app.weather, only-series.climate'
  await vi.waitFor(async () => expect(await warningsOf(tandem as Tandem)).toContain(named), patience)

  // The source creates a time series, writes to time series, changes their definitions, and creates a plain collection.
  await source().createCollection('later', series)
  await source().collection('later').insertMany(measured('source'))
  await source().collection('weather').insertMany(measured('source'))
  await source().collection('weather').createIndex({ on: 1 })
  await source().command({ collMod: 'weather', expireAfterSeconds: 999_999_999 })
  await source().collection<Row>('beside').insertMany(rows(20))
  // One name belongs to a plain collection and then to a time series, and another name the other way round.
  await source().collection<Row>('was plain').insertMany(rows(9))
  await source().dropCollection('was plain')
  await source().createCollection('was plain', series)
  await source().createCollection('was series', series)
  await source().collection('was series').insertMany(measured('source'))
  await source().dropCollection('was series')
  await source().collection<Row>('was series').insertMany(rows(11))
  await source()
    .collection<Row>('things')
    .deleteMany({ _id: { $lt: 10 } })
  await pair.sourceClient.db('only-series').dropDatabase()

  await vi.waitFor(async () => expect(await destination().collection('was series').countDocuments()).toBe(11), patience)
  const listed = await (await fetch(`${tandem.url}/api/v1/collections`)).text()
  expect(listed).toContain('app.was series')
  expect(listed).not.toMatch(/weather|climate|system\.buckets/)
  // The sync continues after the process is restarted, and accepts the same start request again.
  await tandem.stop()
  tandem = await pair.startInstance()
  await tandem.waitFor(({ state }) => state === 'RUNNING', { timeoutSeconds: 30, what: 'RUNNING' })
  expect(await tandem.post('start', body)).toMatchObject(accepted)
  expect(await tandem.post('start', { ...body, timeseries: 'refuse' })).toMatchObject({ body: { success: false } })
  const nowNamed = '3 time-series collections are not synced: app.later, app.was plain, app.weather'
  await vi.waitFor(async () => expect(await warningsOf(tandem as Tandem)).toContain(nowNamed), patience)

  await commit(tandem)
  await expectOthersEqual()
  expect(await destination().collection('weather').countDocuments({ on: 'destination' })).toBe(30)
  expect(await destination().collection('weather').countDocuments()).toBe(30)
  expect(await destination().collection('extra').countDocuments()).toBe(30)
  const names = (await destination().listCollections({}, { nameOnly: true }).toArray()).map(({ name }) => name)
  expect(names.filter((name) => selects('app', name)).sort()).toEqual(
    ['beside', 'seen', 'system.views', 'things', 'was series'].sort(),
  )
  expect(names).not.toContain('later')
})

test('for each time-series collection, check reports a warning with "skip" and an error with "refuse"', async () => {
  await source().createCollection('weather', series)
  await source().createCollection('rain', series)
  await pair.sourceClient.db('other').createCollection('climate', series)
  tandem = await pair.startInstance()
  const findings = async (more: object): Promise<unknown[]> => {
    const { body: answer } = await (tandem as Tandem).post('check', { ...body, ...more })
    return (answer['findings'] as Finding[]).map(({ severity, name, namespace }) => [severity, name, namespace])
  }
  const excludeNamespaces = [{ database: 'app', collections: ['rain'] }]
  expect(await findings({ excludeNamespaces })).toEqual([
    ['warning', 'TimeSeriesSkipped', 'app.weather'],
    ['warning', 'TimeSeriesSkipped', 'other.climate'],
  ])
  expect(await findings({ excludeNamespaces, timeseries: 'refuse' })).toEqual([
    ['error', 'UnsupportedCollection', 'app.weather'],
    ['error', 'UnsupportedCollection', 'other.climate'],
  ])
  const refused = await tandem.post('start', { ...body, timeseries: 'refuse' })
  expect(refused).toMatchObject({ status: 422, body: { error: 'UnsupportedCollection' } })
  expect(refused.body.errorDescription).toContain('"timeseries": "skip"')
})

test('a start is refused if the destination has a time series with the name of a synced collection; "converge" replaces the time series', async () => {
  await source().collection<Row>('weather').insertMany(rows(20))
  await source().createCollection('climate', series)
  for (const name of ['weather', 'climate', 'extra']) {
    await destination().createCollection(name, series)
    await destination().collection(name).insertMany(measured('destination'))
  }
  tandem = await pair.startInstance()
  expect(await tandem.post('start', body)).toMatchObject({
    status: 422,
    body: {
      error: 'DestinationNotEmpty',
      errorDescription: expect.stringMatching(/app\.weather, whose name is selected for the sync/),
    },
  })
  await startSync(tandem, { ...body, existingData: 'converge' })
  await commit(tandem)
  await expectOthersEqual()
  expect(await destination().collection('weather').countDocuments()).toBe(20)
  for (const name of ['climate', 'extra']) expect(await destination().collection(name).countDocuments()).toBe(30)
})

test('a sync that skips time-series collections can be reversed, and each cluster keeps its own time series', async () => {
  await source().createCollection('weather', series)
  await source().collection('weather').insertMany(measured('source'))
  await source().collection<Row>('things').insertMany(rows(20))
  tandem = await pair.startInstance()
  await startSync(tandem, { ...body, reversible: true, enableUserWriteBlocking: 'sourceAndDestination' })
  await commit(tandem)
  await expect(source().collection('weather').insertMany(measured('late'))).rejects.toThrow(/block/i)
  await destination().createCollection('weather', series)
  await destination().collection('weather').insertMany(measured('destination'))
  await destination().collection<Row>('things').insertOne({ _id: 99, on: 'destination' })
  expect(await tandem.post('reverse')).toEqual(accepted)
  await commit(tandem)
  await expectOthersEqual()
  for (const [db, on] of [
    [source(), 'source'],
    [destination(), 'destination'],
  ] as const) {
    expect(await db.collection('weather').countDocuments()).toBe(30)
    expect(await db.collection('weather').countDocuments({ on })).toBe(30)
  }
})
