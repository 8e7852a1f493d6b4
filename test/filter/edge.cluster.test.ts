import type { Document } from 'mongodb'
import { describe, expect, test, vi } from 'vitest'
import { canCommit, commit, failed } from '../support/commits.ts'
import { failPoint } from '../support/fail-point.ts'
import { fingerprints } from '../support/fingerprints.ts'
import { expectAccepted, startInstances } from '../support/instances.ts'
import { convergencesOf } from '../support/lost-history.ts'
import { startSync } from '../support/tandem-process.ts'
import { filter, filteredPair, spellings } from './edge.ts'

/** Changes at a filter's edge. edge-spellings.long.test.ts tests more of them, with every spelling of the filter. */

const edge = filteredPair()
const { pair, db, rename, into, toCapped, seed, seedOthers, write, applied, running } = edge
const { expectSelectedEqual, expectOthersUnchanged } = edge
const patience = { timeout: 30_000, interval: 20 }

describe('4.5: changes at the edge that can be followed', () => {
  test.each(spellings.slice(0, 2))(
    'filter written as %s: changes of selected names are applied, and all other names stay unchanged',
    (_how, startFilter) => edge.expectChangesFollowed(startFilter),
  )

  test('when a database is dropped, the destination drops its selected collections, and no others', () =>
    edge.expectDropFollowed(filter))
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
      /zoo\.free, whose name is selected for the sync/,
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

describe('4.5: changes at the edge that bring documents without events', () => {
  const tested = ['a rename out', 'a rename in', '$out to a selected name', 'convertToCapped in an included database']
  test.each(edge.crossings.filter(({ what }) => tested.includes(what)))(
    'filter written as $filter.0: $what is applied while a client writes',
    (crossing) => edge.expectCrossingFollowed(crossing),
  )

  test('during the sync a collection may leave the selection, come back, and be replaced by another collection', async () => {
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
    await canCommit(tandem)
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
    await commit(tandem)
    await expectSelectedEqual()
    await expectOthersUnchanged(before)
  })

  test('of two instances, only one requests the convergence of a collection that is renamed into the selection', async () => {
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

  test('a commit that meets a rename into the selection is aborted with the reason, and succeeds after the convergence', async () => {
    await seed()
    await using tandem = await running()
    // While this fail point is on, tandem cannot take the commit timestamp.
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
    // Until tandem reads the event again, canCommit may be true, and another commit would be aborted like the first one.
    const created = () => pair.destinationClient.db('zoo').listCollections({ name: 'cage two' }).toArray()
    await vi.waitFor(async () => expect(await created()).toHaveLength(1), patience)
    await commit(tandem)
    await expectSelectedEqual()
  })
})

describe('4.5: writes during the commit', () => {
  test('writes to collections that are left out are ignored, and writes to selected ones fail the commit with SourceWritten', async () => {
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
