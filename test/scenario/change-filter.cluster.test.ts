import { setTimeout as sleep } from 'node:timers/promises'
import type { Document } from 'mongodb'
import { expect, test, vi } from 'vitest'
import { metadataDatabase } from '../../src/domain/namespace.ts'
import { accepted, canCommit, commit } from '../support/commits.ts'
import type { Selects } from '../support/compare.ts'
import { compareBoth } from '../support/compare-both.ts'
import { fingerprints } from '../support/fingerprints.ts'
import { expectAccepted } from '../support/instances.ts'
import { convergencesOf } from '../support/lost-history.ts'
import { pairedSets } from '../support/paired-sets.ts'
import { rowsOf, seedRows } from '../support/rows.ts'
import { startSync, type Tandem } from '../support/tandem-process.ts'

/** The filter of a running sync is replaced. Newly included collections converge, and newly excluded ones leave the sync. */

const pair = pairedSets()

const named = (...collections: string[]) => ({ includeNamespaces: [{ database: 'app', collections }] })
const selecting =
  (...names: string[]): Selects =>
  (database, name) =>
    database === 'app' && names.includes(name)

const seed = (...names: string[]) => seedRows(pair.sourceClient, names, { at: new Date() })

/** Writes to these collections of the source until it is stopped. */
function writing(...names: string[]): { stop: () => Promise<void> } {
  const stopped = new AbortController()
  const written = (async () => {
    for (let at = 0; !stopped.signal.aborted; at++) {
      for (const name of names) {
        const collection = rowsOf(pair.sourceClient, name)
        await collection.updateOne({ _id: at % 500 }, { $inc: { n: 1 } }, { upsert: true })
        await collection.insertOne({ _id: `new ${at}` })
        await collection.deleteOne({ _id: (at * 7) % 500 })
      }
      await sleep(2)
    }
  })()
  return {
    stop: async () => {
      stopped.abort()
      await written
    },
  }
}

async function expectEqual(selects: Selects): Promise<void> {
  const { differences } = await compareBoth(pair.source.uri, pair.destination.uri, { selects })
  expect(differences).toEqual([])
}

test('README: under writes, included collections converge, and excluded ones stay on the destination with their options', async () => {
  await seed('kept', 'left', 'included', 'outside')
  const [source, destination] = [pair.sourceClient.db('app'), pair.destinationClient.db('app')]
  await source.collection('left').createIndex({ at: 1 }, { name: 'expiring', expireAfterSeconds: 100_000 })
  await source.collection('left').createIndex({ _id: 1, n: 1 }, { name: 'one', unique: true })
  await source.collection('included').createIndex({ _id: 1, n: 1 }, { name: 'one', unique: true })
  await source.createCollection('view', { viewOn: 'kept', pipeline: [] })
  await source.createCollection('left view', { viewOn: 'left', pipeline: [] })
  // The destination already has a collection that the filter includes later, and one that no filter includes.
  await rowsOf(pair.destinationClient, 'included').insertMany([{ _id: 1, n: 'other' }, { _id: 'extra' }])
  await destination.collection('included').createIndex({ other: 1 })
  await destination.createCollection('view', { viewOn: 'outside', pipeline: [] })
  await rowsOf(pair.destinationClient, 'outside').insertOne({ _id: 'mine' })
  const before = await fingerprints(pair.destination.uri, selecting('outside'))
  await using tandem = await pair.startInstance()
  await startSync(tandem, named('kept', 'left', 'left view'))
  await canCommit(tandem)

  const writer = writing('kept', 'left', 'included', 'outside')
  expect(await tandem.post('filter', named('kept', 'included', 'view'))).toEqual(accepted)
  expect(await tandem.progress()).toMatchObject({ state: 'RUNNING', canCommit: false })
  await canCommit(tandem)
  const left = await fingerprints(pair.destination.uri, selecting('left', 'left view'))
  expect(Object.keys(left)).toEqual(['app.left', 'app.left view'])
  expect(await destination.collection('left').listIndexes().toArray()).toMatchObject([
    { name: '_id_' },
    { name: 'expiring', expireAfterSeconds: 100_000 },
    { name: 'one', unique: true },
  ])
  // A request with the same filter changes nothing.
  expect(await tandem.post('filter', named('kept', 'included', 'view'))).toEqual(accepted)
  await writer.stop()
  await source.collection('left').drop()
  await commit(tandem)
  await expectEqual(selecting('kept', 'included', 'view'))
  expect(await fingerprints(pair.destination.uri, selecting('left', 'left view'))).toEqual(left)
  expect(await fingerprints(pair.destination.uri, selecting('outside'))).toEqual(before)
  expect(await convergencesOf(pair.destinationClient)).toBe(1)
})

test('dropExcluded drops newly excluded collections; collections that are included again converge; a filter can include all others', async () => {
  await seed('kept', 'left', 'other')
  await pair.sourceClient.db('app').createCollection('left view', { viewOn: 'left', pipeline: [] })
  await rowsOf(pair.sourceClient, 'things', 'away').insertMany(
    Array.from({ length: 20 }, (_, _id) => ({ _id, n: 0, at: new Date() })),
  )
  await rowsOf(pair.destinationClient, 'mine', 'elsewhere').insertOne({ _id: 1 })
  const elsewhere: Selects = (database) => database === 'elsewhere'
  const before = await fingerprints(pair.destination.uri, elsewhere)
  await using tandem = await pair.startInstance()
  await startSync(tandem, { includeNamespaces: [{ database: 'app' }] })
  await canCommit(tandem)
  const writer = writing('kept', 'left', 'other')
  const withoutLeft = {
    includeNamespaces: [{ database: 'app' }],
    excludeNamespaces: [{ database: 'app', collectionsRegex: { pattern: '^left' } }],
  }
  expect(await tandem.post('filter', { ...withoutLeft, dropExcluded: true })).toEqual(accepted)
  await canCommit(tandem)
  const names = await pair.destinationClient.db('app').listCollections({}, { nameOnly: true }).toArray()
  expect(names.map(({ name }) => name).filter((name) => name.startsWith('left'))).toEqual([])

  // `other` is excluded without being dropped, and included again after the source has changed it.
  expect(await tandem.post('filter', named('kept'))).toEqual(accepted)
  await canCommit(tandem)
  await rowsOf(pair.sourceClient, 'other').updateMany({}, { $inc: { n: 1_000 } })
  await rowsOf(pair.sourceClient, 'kept').updateMany({}, { $inc: { n: 1_000 } })
  expect(await tandem.post('filter', { excludeNamespaces: [{ database: 'elsewhere' }] })).toEqual(accepted)
  await canCommit(tandem)
  await writer.stop()
  await commit(tandem)
  await expectEqual((database) => ['app', 'away'].includes(database))
  expect(await fingerprints(pair.destination.uri, elsewhere)).toEqual(before)
  expect(await convergencesOf(pair.destinationClient)).toBe(3)
})

test('while PAUSED: the last of several filters applies after the resume, and a start is compared with it', async () => {
  await seed('kept', 'left', 'old name', 'draft', 'round', 'gone')
  await using predecessor = await pair.startInstance()
  const begun = named('kept', 'left', 'old name', 'round', 'gone')
  await startSync(predecessor, { ...begun, verification: { enabled: false } })
  await canCommit(predecessor)
  expect(await predecessor.post('pause')).toEqual(accepted)
  // While the sync is paused, the source renames four collections: from the old filter into the new one, from neither filter
  // into the new one, out of both filters and back, and out of both.
  const source = pair.sourceClient.db('app')
  await source.renameCollection('old name', 'new name')
  await rowsOf(pair.sourceClient, 'draft').updateOne({ _id: 1 }, { $inc: { n: 1 } })
  await source.renameCollection('draft', 'final')
  await source.renameCollection('round', 'aside')
  await rowsOf(pair.sourceClient, 'aside').updateOne({ _id: 1 }, { $inc: { n: 1 } })
  await source.renameCollection('aside', 'round')
  await source.renameCollection('gone', 'elsewhere')
  await rowsOf(pair.sourceClient, 'left').deleteMany({ _id: { $lt: 100 } })
  const wanted = named('kept', 'new name', 'final', 'round', 'gone')
  expect(await predecessor.post('filter', named('kept', 'left'))).toEqual(accepted)
  expect(await predecessor.post('filter', wanted)).toEqual(accepted)
  expect(await predecessor.progress()).toMatchObject({ state: 'PAUSED' })
  await rowsOf(pair.sourceClient, 'final').deleteOne({ _id: 2 })

  await predecessor.kill9()
  await using tandem = await pair.startInstance()
  expect(await tandem.progress()).toMatchObject({ state: 'PAUSED' })
  const begin = { source: 'cluster0', destination: 'cluster1', verification: { enabled: false } }
  expect(await tandem.post('start', { ...begin, ...wanted })).toMatchObject(accepted)
  expect(await tandem.post('start', { ...begin, ...begun })).toMatchObject({ status: 409 })
  const joining = await pair.startInstance({ id: 'second' })
  try {
    const refused = await joining.post('start', { ...begin, ...begun })
    expect(refused.body).toMatchObject({ error: 'ConfigurationMismatch' })
    expect(refused.body.errorDescription).toContain('"new name"')
  } finally {
    await joining.stop()
  }
  expect(await tandem.post('resume')).toEqual(accepted)
  await commit(tandem)
  await expectEqual(selecting('kept', 'new name', 'final', 'round', 'gone'))
  // No instance has applied changes to the excluded collection.
  expect(await rowsOf(pair.destinationClient, 'left').countDocuments()).toBe(500)
  const others = await fingerprints(pair.destination.uri, selecting('gone', 'elsewhere', 'aside', 'draft', 'old name'))
  expect(others).toEqual({})
  // Each request causes one convergence, and the renames need no other one.
  expect(await convergencesOf(pair.destinationClient)).toBe(2)
})

test('while PAUSED: a filter that is replaced before it takes effect changes nothing', async () => {
  await seed('kept')
  const foreign = pair.destinationClient.db('foreign')
  await foreign.createCollection('theirs')
  await foreign.createCollection('their view', { viewOn: 'theirs', pipeline: [] })
  await using tandem = await pair.startInstance()
  await startSync(tandem, named('kept'))
  await canCommit(tandem)
  expect(await tandem.post('pause')).toEqual(accepted)
  expect(await tandem.post('filter', { includeNamespaces: [{ database: 'foreign' }] })).toEqual(accepted)
  expect(await tandem.post('filter', { ...named('kept'), dropExcluded: true })).toEqual(accepted)
  expect(await tandem.post('resume')).toEqual(accepted)
  await canCommit(tandem)
  const names = (await foreign.listCollections({}, { nameOnly: true }).toArray()).map(({ name }) => name)
  expect(names).toEqual(expect.arrayContaining(['theirs', 'their view']))
  const entries = await pair.destinationClient.db(metadataDatabase).collection('collections').find().toArray()
  expect(entries.map(({ name, convergedFrom }) => [name, convergedFrom ?? null])).toEqual([['kept', null]])
  await commit(tandem)
  await expectEqual(selecting('kept'))
})

test('while PAUSED: the source reuses names of collections that an earlier filter has left on the destination', async () => {
  await seed('kept', 'first', 'second', 'one', 'two')
  const source = pair.sourceClient.db('app')
  const namesWith = async (name: string) =>
    (await pair.destinationClient.db('app').listCollections({}, { nameOnly: true }).toArray()).filter(
      (one) => one.name === name,
    ).length
  await using tandem = await pair.startInstance()
  await startSync(tandem, named('kept', 'first', 'second', 'one', 'two'))
  await canCommit(tandem)
  const left = selecting('first')
  expect(await tandem.post('filter', named('kept', 'one', 'two'))).toEqual(accepted)
  await canCommit(tandem)
  const before = await fingerprints(pair.destination.uri, left)
  for (const [renamed, target, wanted, dropExcluded] of [
    ['one', 'first', named('kept', 'two'), true],
    ['two', 'first', named('kept'), false],
    ['kept', 'second', named('second'), false],
  ] as const) {
    expect(await tandem.post('pause')).toEqual(accepted)
    await source.renameCollection(renamed, target, { dropTarget: true })
    await rowsOf(pair.sourceClient, target).insertOne({ _id: `was ${renamed}` })
    expect(await tandem.post('filter', { ...wanted, dropExcluded })).toEqual(accepted)
    expect(await tandem.post('resume')).toEqual(accepted)
    await canCommit(tandem)
    expect(await namesWith(renamed)).toBe(0)
  }
  // Collections that an earlier filter has excluded without dropping them stay unchanged.
  expect(await fingerprints(pair.destination.uri, left)).toEqual(before)
  await commit(tandem)
  await expectEqual(selecting('second'))
})

test('a sync that has FAILED because of an unsupported collection continues with a filter that excludes it', async () => {
  await seed('kept')
  await using tandem = await pair.startInstance()
  await startSync(tandem, { includeNamespaces: [{ database: 'app' }] })
  await canCommit(tandem)
  await pair.sourceClient.db('app').createCollection('weather', { timeseries: { timeField: 'at' } })
  await rowsOf(pair.sourceClient, 'later').insertOne({ _id: 1 })
  const isFailed = ({ state }: { state: string }) => state === 'FAILED'
  const { failure } = await tandem.waitFor(isFailed, { timeoutSeconds: 30, what: 'FAILED' })
  expect(failure?.error).toBe('UnsupportedCollection')
  const excludeNamespaces = [{ database: 'app', collections: ['weather'] }]
  expect(await tandem.post('filter', { excludeNamespaces })).toEqual(accepted)
  expect(await tandem.post('resume')).toEqual(accepted)
  await commit(tandem)
  await expectEqual(selecting('kept', 'later'))
})

test('a filter that start would refuse is refused with the name of its field, and nothing changes', async () => {
  await seed('kept')
  await pair.sourceClient.db('app').createCollection('weather', { timeseries: { timeField: 'at' } })
  await using tandem = await pair.startInstance()
  expect(await tandem.post('filter', named('kept'))).toMatchObject({ status: 409, body: { error: 'WrongState' } })
  await startSync(tandem, named('kept'))
  await canCommit(tandem)
  const patterns = { databaseRegex: { pattern: 'app(' } }
  for (const [body, status, error, description] of [
    [
      { includeNamespaces: [{ database: 'app' }, patterns] },
      400,
      'InvalidRequest',
      /^includeNamespaces\[1\]\.databaseReg/,
    ],
    [named('weather'), 422, 'UnsupportedCollection', /app\.weather/],
    [{}, 422, 'UnsupportedCollection', /app\.weather/],
  ] as const) {
    const refused = await tandem.post('filter', body)
    expect(refused).toMatchObject({ status, body: { error, errorDescription: expect.stringMatching(description) } })
  }
  expect(await tandem.progress()).toMatchObject({ state: 'RUNNING', canCommit: true })
  expect(await convergencesOf(pair.destinationClient)).toBe(0)
})

test('two instances under a writer: all/filter is stored once, and both follow the new filter', async () => {
  await seed('kept', 'left', 'included')
  await using several = await pair.startInstances('a', 'b')
  for (const one of several.members.values()) {
    await startSync(one, { ...named('kept', 'left'), enableUserWriteBlocking: 'none' })
  }
  await several.allReach((progress) => progress.canCommit, 'canCommit', 120)
  const writer = writing('kept', 'left', 'included', 'later')
  // The instances start at the same time, so either of them may be the first in this map.
  const [[sender, first]] = [...several.members] as [[string, Tandem]]
  const answer = await first.post('all/filter', { ...named('kept', 'included', 'later'), dropExcluded: true })
  expect(answer).toMatchObject({ status: 200, body: { answers: { a: { success: true }, b: { success: true } } } })
  // Each instance has recorded the command that it executed, and the instance that passed the command on.
  const outcome = 'accepted'
  const passedOn = ['a', 'b'].map((mongosyncID) => ({ mongosyncID, command: 'filter', sender, outcome }))
  await vi.waitFor(
    async () => {
      const { entries } = (await (await fetch(`${first.url}/api/v1/audit`)).json()) as { entries: Document[] }
      const found = entries.filter(({ command }) => command === 'filter')
      expect(found).toHaveLength(2)
      expect(found).toEqual(expect.arrayContaining(passedOn.map((one) => expect.objectContaining(one))))
    },
    { timeout: 30_000, interval: 100 },
  )
  await several.allReach((progress) => progress.canCommit, 'canCommit', 120)
  await writer.stop()
  await several.allReach((progress) => progress.canCommit, 'canCommit', 60)
  expectAccepted(await several.post('commit'))
  await several.allReach(({ state }) => state === 'COMMITTED', 'COMMITTED', 120)
  await expectEqual(selecting('kept', 'included', 'later', 'left view'))
  expect(await rowsOf(pair.destinationClient, 'left').countDocuments()).toBe(0)
  expect(await convergencesOf(pair.destinationClient)).toBe(1)
})
