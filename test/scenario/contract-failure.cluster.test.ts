import { type Document, MongoClient } from 'mongodb'
import { afterAll, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest'
import { metadataDatabase } from '../../src/domain/namespace.ts'
import type { Progress } from '../../src/domain/progress.ts'
import { accepted, canCommit, commit, failed } from '../support/commits.ts'
import { compareClusters } from '../support/compare.ts'
import { convergencesOf } from '../support/lost-history.ts'
import { emptyBoth } from '../support/paired-sets.ts'
import { type ReplicaSet, startReplicaSet } from '../support/replica-set.ts'
import { startSync, startTandem, type Tandem } from '../support/tandem-process.ts'

/** How an instance reports a failure and how it continues afterwards. See test/contract.md. */

/**
 * The server truncates its oplog to one megabyte at every checkpoint, which runs every second. It writes no periodic no-ops.
 * Clients reach it through a proxy.
 */
let source: ReplicaSet
let destination: ReplicaSet
/** The clients of the tests bypass the proxies. */
let sourceClient: MongoClient
let destinationClient: MongoClient

beforeAll(async () => {
  ;[source, destination] = await Promise.all([
    startReplicaSet({
      proxied: true,
      oplogSizeMB: 1,
      extraArgs: ['--syncdelay', '1', '--setParameter', 'writePeriodicNoops=false'],
    }),
    startReplicaSet({ proxied: true }),
  ])
  sourceClient = new MongoClient(source.uris[0] as string)
  destinationClient = new MongoClient(destination.uris[0] as string)
})

afterAll(async () => {
  await Promise.all([sourceClient?.close(), destinationClient?.close()])
  await Promise.all([source?.stop(), destination?.stop()])
})

beforeEach(async () => {
  for (const set of [source, destination]) for (const proxy of set.proxies) await proxy.heal()
  await emptyBoth({ sourceClient, destinationClient })
})

const patience = { timeout: 30_000, interval: 20 }
const start = { source: 'cluster0', destination: 'cluster1', verification: { enabled: false } }

interface Row extends Document {
  _id: number | string | null
}

const things = (client: MongoClient) => client.db('app').collection<Row>('things')

const arrives = (_id: Row['_id']) =>
  vi.waitFor(async () => expect(await things(destinationClient).findOne({ _id })).not.toBeNull(), patience)

async function startInstance(extraArgs: string[] = []): Promise<Tandem> {
  return startTandem({ cluster0: source.uri, cluster1: destination.uri, extraArgs })
}

async function startedSync(overrides: Record<string, unknown> = {}): Promise<Tandem> {
  await things(sourceClient).insertOne({ _id: 1 })
  const tandem = await startInstance()
  await startSync(tandem, overrides)
  await canCommit(tandem)
  return tandem
}

async function commitEqual(tandem: Tandem): Promise<void> {
  await commit(tandem)
  expect((await compareClusters(source.uris[0] as string, destination.uris[0] as string)).differences).toEqual([])
}

/** Makes the source answer like a server whose oplog no longer reaches back to the position of the sync. */
const loseHistory = () =>
  sourceClient.db('admin').command({
    configureFailPoint: 'failCommand',
    mode: 'alwaysOn',
    data: { failCommands: ['getMore'], errorCode: 286 },
  })

const fix = (client: MongoClient) => client.db('admin').command({ configureFailPoint: 'failCommand', mode: 'off' })

describe('FAILED', () => {
  it('README: a FAILED instance keeps answering, and resume continues after the cause is fixed', async () => {
    await using tandem = await startedSync()
    await loseHistory()
    const progress = await failed(tandem)
    expect(progress).toMatchObject({
      canCommit: false,
      canWrite: false,
      lagTimeSeconds: null,
      failure: {
        error: 'OplogWindowLost',
        errorDescription: expect.stringMatching(/oplog/),
        cluster: 'cluster0',
        codeName: 'ChangeStreamHistoryLost',
        lastError: expect.stringContaining('ChangeStreamHistoryLost (286)'),
        lost: 'nothing',
        docs: 'docs/troubleshooting.md#oplogwindowlost',
      },
      directionMapping: { Source: `cluster0: ${source.hosts[0]}`, Destination: `cluster1: ${destination.hosts[0]}` },
    })
    for (const command of ['start', 'pause', 'commit', 'reverse']) {
      const answer = await tandem.post(command, command === 'start' ? start : {})
      expect({ command, ...answer }).toMatchObject({ command, status: 409, body: { error: 'WrongState' } })
    }
    expect(await tandem.progress()).toMatchObject({ state: 'FAILED', failure: progress.failure })
    expect(tandem.isRunning()).toBe(true)
    expect(
      await destinationClient.db(metadataDatabase).collection<{ _id: number }>('positions').countDocuments({ _id: 0 }),
    ).toBe(1)

    await fix(sourceClient)
    await things(sourceClient).insertOne({ _id: 'meanwhile' })
    expect(await tandem.post('resume')).toEqual(accepted)
    await arrives('meanwhile')
    expect(await tandem.progress()).not.toHaveProperty('failure')
    await commitEqual(tandem)
    expect(await convergencesOf(destinationClient)).toBe(0)
  })

  it('README: FAILED stays FAILED after a restart, and resume continues the sync', async () => {
    const predecessor = await startedSync()
    await loseHistory()
    const { error, errorDescription, docs, lost } = (await failed(predecessor)).failure as Record<string, unknown>
    await predecessor.stop()
    await fix(sourceClient)
    await things(sourceClient).insertOne({ _id: 'meanwhile' })

    await using tandem = await startInstance()
    await vi.waitFor(() => tandem.progress(), patience)
    // The details of the server error are not stored.
    const { state, failure } = await tandem.progress()
    expect([state, failure]).toEqual(['FAILED', { error, errorDescription, docs, lost }])
    expect(await tandem.post('resume')).toEqual(accepted)
    await arrives('meanwhile')
    await commitEqual(tandem)
  })

  it('README: after a restart, canCommit stays false until the source has answered; OplogWindowLost fails the sync, and resume then converges', async () => {
    await (await startedSync()).kill9()
    await loseOplogAfter('lost')
    await using tandem = await startInstance()
    const answers: Progress[] = []
    while (answers.at(-1)?.state !== 'FAILED') {
      expect(tandem.isRunning()).toBe(true)
      // The instance refuses the request while it connects.
      const progress = await tandem.progress().catch(() => null)
      if (progress) answers.push(progress)
    }
    expect(answers.at(-1)?.failure?.error).toBe('OplogWindowLost')
    expect(answers.filter(({ canCommit }) => canCommit).length).toBe(0)
    expect((await tandem.post('start', start)).body.error).toBe('WrongState')
    expect(await things(destinationClient).findOne({ _id: 'lost' })).toBeNull()

    expect(await tandem.post('resume')).toEqual(accepted)
    await arrives('lost')
    await commitEqual(tandem)
  })

  it('README: a commit that fails names the documents to fix, never their values, and resume completes it', async () => {
    await things(sourceClient).createIndex({ secret: 1 }, { unique: true })
    await things(sourceClient).insertOne({ _id: 'first', secret: 'canary-17' })
    // With verification, the commit would fail earlier, because the verifier would report the foreign document.
    await using tandem = await startedSync({ enableUserWriteBlocking: 'none', verification: { enabled: false } })
    // Write blocking would prevent this insert.
    await things(destinationClient).insertOne({ _id: 'foreign', secret: 'canary-17' })
    expect(await tandem.post('commit')).toEqual(accepted)
    const { failure } = await failed(tandem)
    expect(failure?.error).toBe('DuplicateKey')
    expect(failure?.errorDescription).toMatch(/app\.things.*"foreign"|"foreign".*app\.things/)
    expect(`${JSON.stringify(await tandem.progress())}${tandem.output()}`).not.toContain('canary-17')

    await things(destinationClient).deleteOne({ _id: 'foreign' })
    expect(await tandem.post('resume')).toEqual(accepted)
    await tandem.waitFor(({ state }) => state === 'COMMITTED', { timeoutSeconds: 30, what: 'committed' })
    expect((await compareClusters(source.uris[0] as string, destination.uris[0] as string)).differences).toEqual([])
  })

  it('README: a time-series collection that appears while RUNNING fails the sync with its name', async () => {
    await using tandem = await startedSync()
    await sourceClient.db('app').createCollection('weather', { timeseries: { timeField: 'at' } })
    const { failure } = await failed(tandem)
    expect(failure).toMatchObject({
      error: 'UnsupportedCollection',
      errorDescription: expect.stringMatching(/app\.weather/),
    })
    await sourceClient.db('app').dropCollection('weather')
    expect(await tandem.post('resume')).toEqual(accepted)
    await commitEqual(tandem)
  })

  it('README: a namespace that another client creates on the destination fails the sync with its name, and resume continues once it is dropped', async () => {
    await using tandem = await startedSync({ enableUserWriteBlocking: 'none' })
    await destinationClient.db('app').collection('taken').insertOne({ foreign: true })
    await sourceClient.db('app').collection('taken').insertOne({ foreign: false })
    expect((await failed(tandem)).failure).toMatchObject({
      error: 'DestinationConflict',
      errorDescription: expect.stringMatching(/app\.taken.*drop.*resume/),
    })
    await destinationClient.db('app').dropCollection('taken')
    expect(await tandem.post('resume')).toEqual(accepted)
    await commitEqual(tandem)
  })

  it('README: with exitOnFailure the process ends when the sync fails', async () => {
    await things(sourceClient).insertOne({ _id: 1 })
    await using tandem = await startInstance(['--exitOnFailure'])
    await startSync(tandem)
    await canCommit(tandem)
    await loseHistory()
    await vi.waitFor(() => expect(tandem.isRunning()).toBe(false), patience)
    expect(await tandem.stop()).toBe(1)
    expect(tandem.output()).toMatch(/OplogWindowLost/)

    // The next process reports the stored failure and stays up, so that it can be resumed.
    await fix(sourceClient)
    await using successor = await startInstance(['--exitOnFailure'])
    await vi.waitFor(() => successor.progress(), patience)
    expect((await successor.progress()).failure?.error).toBe('OplogWindowLost')
    expect(await successor.post('resume')).toEqual(accepted)
    await canCommit(successor)
    expect(successor.isRunning()).toBe(true)
  })

  /** Inserts a document on the source, and writes there until the oplog no longer contains the insert. */
  async function loseOplogAfter(_id: string): Promise<void> {
    await things(sourceClient).insertOne({ _id })
    const lost = await newestOplogTime()
    await vi.waitFor(async () => {
      await sourceClient
        .db('filler')
        .collection('filler')
        .insertMany(Array.from({ length: 20 }, () => ({ text: 'x'.repeat(100_000) })))
      const [oldest] = await oplog().find().sort({ $natural: 1 }).limit(1).toArray()
      expect(oldest?.['ts'].greaterThan(lost)).toBe(true)
    }, patience)
    await sourceClient.db('filler').dropDatabase()
  }

  const oplog = () => sourceClient.db('local').collection('oplog.rs')

  async function newestOplogTime(): Promise<Document> {
    const [newest] = await oplog().find().sort({ $natural: -1 }).limit(1).toArray()
    return newest?.['ts'] as Document
  }
})

describe('a cluster that is temporarily unreachable', () => {
  it.each(['source', 'destination'] as const)(
    'README: retrying is shown while the %s is disconnected, then the sync continues',
    async (disconnected) => {
      await using tandem = await startedSync()
      expect(await tandem.progress()).not.toHaveProperty('retrying')
      const [proxy] = { source, destination }[disconnected].proxies
      const from = Date.now()
      await proxy?.cut()
      await things(sourceClient).insertOne({ _id: 'meanwhile' })
      const { retrying, state } = await tandem.waitFor((progress) => progress.retrying !== undefined, {
        timeoutSeconds: 20,
        what: 'retrying',
      })
      expect(state).toBe('RUNNING')
      expect(retrying?.what).toMatch(/\S/)
      const since = Date.parse(retrying?.since ?? '')
      expect(since).toBeGreaterThanOrEqual(from - 1)
      expect(since).toBeLessThanOrEqual(Date.now())
      expect(await things(destinationClient).findOne({ _id: 'meanwhile' })).toBeNull()

      await proxy?.heal()
      await arrives('meanwhile')
      await tandem.waitFor((progress) => progress.retrying === undefined, {
        timeoutSeconds: 30,
        what: 'without retries',
      })
      await commitEqual(tandem)
    },
  )

  it('README: pause is accepted while the destination is disconnected, and the sync is PAUSED after it reconnects', async () => {
    await using tandem = await startedSync()
    await destination.proxies[0]?.cut()
    await tandem.waitFor((progress) => progress.retrying !== undefined, { timeoutSeconds: 20, what: 'retrying' })
    const pausing = tandem.post('pause')
    await destination.proxies[0]?.heal()
    expect(await pausing).toEqual(accepted)
    expect((await tandem.progress()).state).toBe('PAUSED')
    expect(await tandem.post('resume')).toEqual(accepted)
    await commitEqual(tandem)
  })
})

describe('idle', () => {
  it('4.2: no-ops on an idle source keep the position moving', async () => {
    await using tandem = await startedSync()
    const from = new Date()
    const noop = await vi.waitFor(
      async () => {
        const [found] = await sourceClient
          .db('local')
          .collection('oplog.rs')
          .find({ op: 'n', 'o.tandem': 'heartbeat', wall: { $gt: from } })
          .toArray()
        expect(found).toBeDefined()
        return found as Document
      },
      { timeout: 25_000, interval: 200 },
    )
    await vi.waitFor(async () => {
      const position = await destinationClient.db(metadataDatabase).collection('positions').findOne()
      expect(position?.['time'].greaterThanOrEqual(noop['ts'])).toBe(true)
    }, patience)
    expect((await tandem.progress()).lagTimeSeconds).toBeLessThanOrEqual(15)
  })
})
