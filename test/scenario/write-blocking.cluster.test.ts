import { type Document, MongoClient } from 'mongodb'
import { afterAll, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest'
import { accepted, canCommit } from '../support/commits.ts'
import { compareClusters } from '../support/compare.ts'
import { emptyCluster } from '../support/empty-cluster.ts'
import { borrowReplicaSet } from '../support/kept-sets.ts'
import type { ReplicaSet } from '../support/replica-set.ts'
import { startSync, startTandem } from '../support/tandem-process.ts'

/**
 * `enableUserWriteBlocking` on clusters without access control, where tandem's commands set `mayBypassWriteBlocking`, and on
 * clusters with access control, where its user needs the privilege `bypassWriteBlockingMode`. See test/contract.md.
 */

const userWritesBlocked = { code: 371 }
const patience = { timeout: 30_000, interval: 20 }

interface Side {
  set: ReplicaSet
  /** The database for test writes. It differs per side, so that only tandem writes to synced namespaces. */
  database: string
  /** A client that may do everything. With access control it also bypasses write blocking. */
  administrator: MongoClient
  /** The client of an application. */
  user: MongoClient
}

interface Row extends Document {
  _id: number | string | null
}

const things = (client: MongoClient) => client.db('app').collection<Row>('things')

async function startSide(database: string, auth: boolean): Promise<Side> {
  const set = await borrowReplicaSet(auth ? { auth } : {})
  const uri = await set.createUser('application', 'secret', ['readWriteAnyDatabase'])
  return { set, database, administrator: new MongoClient(set.uri), user: new MongoClient(auth ? uri : set.uri) }
}

async function stopSide(side: Side | undefined): Promise<void> {
  await Promise.all([side?.administrator.close(), side?.user.close()])
  await side?.set.stop()
}

async function emptySide({ administrator }: Side): Promise<void> {
  await administrator.db('admin').command({ configureFailPoint: 'failCommand', mode: 'off' })
  await emptyCluster(administrator)
}

/** Sends a write that fails only because of write blocking. Comparisons ignore its collection. */
const write = ({ user, database }: Side) => user.db(database).collection('writes').insertOne({})

async function expectBlocked(side: Side, blocked: boolean): Promise<void> {
  if (blocked) await expect(write(side)).rejects.toMatchObject(userWritesBlocked)
  else await write(side)
}

/** Reads the mode from the server. A test write that succeeds after the commit timestamp would make the commit fail. */
async function expectMode({ administrator }: Side, blocked: boolean): Promise<void> {
  const { repl } = await administrator.db('admin').command({ serverStatus: 1 })
  expect(repl.userWriteBlockMode).toBe(blocked ? 2 : 1)
}

interface Expected {
  destination: boolean
  source: boolean
}

/** Runs a sync from start to COMMITTED and checks in every phase which cluster accepts writes. */
async function watchSync(
  source: Side,
  destination: Side,
  uris: { cluster0: string; cluster1: string },
  mode: unknown,
  expected: Expected,
): Promise<void> {
  await things(source.user).insertMany([
    { _id: 1, u: 1 },
    { _id: 2, u: 2 },
  ])
  await things(source.user).createIndex({ u: 1 }, { unique: true })
  await using tandem = await startTandem(uris)
  await expectBlocked(destination, false)
  await destination.administrator.db(destination.database).dropDatabase()
  // Without write blocking, the test writes to the destination, and the verifier would report these writes as differences.
  const verification = { enabled: expected.destination }
  await startSync(tandem, { verification, ...(mode === undefined ? {} : { enableUserWriteBlocking: mode }) })

  expect(await canCommit(tandem)).toMatchObject({ canWrite: false })
  await expectBlocked(destination, expected.destination)
  await expectBlocked(source, false)
  // The sync itself still writes documents and definitions.
  await things(source.user).insertOne({ _id: 3, u: 3 })
  await source.user.db('app').collection('created').createIndex({ later: 1 })
  await vi.waitFor(async () => {
    expect(await things(destination.user).findOne({ _id: 3 })).not.toBeNull()
    expect(await destination.user.db('app').collection('created').indexExists('later_1')).toBe(true)
  }, patience)

  expect(await tandem.post('pause')).toEqual(accepted)
  await expectBlocked(destination, expected.destination)
  expect(await tandem.post('resume')).toEqual(accepted)
  await canCommit(tandem)
  await expectBlocked(source, false)

  // The commit cannot enable writes yet, because each attempt to prepare a unique index fails.
  const failPoint = { configureFailPoint: 'failCommand' }
  await destination.administrator.db('admin').command({
    ...failPoint,
    mode: 'alwaysOn',
    data: { failCommands: ['collMod'], namespace: 'app.things', errorCode: 91 },
  })
  expect(await tandem.post('commit')).toEqual(accepted)
  const held = await tandem.waitFor((progress) => progress.retrying !== undefined, {
    timeoutSeconds: 20,
    what: 'held before canWrite',
  })
  expect(held).toMatchObject({ state: 'COMMITTING', canWrite: false })
  await expectBlocked(destination, expected.destination)
  await expectMode(source, expected.source)
  await destination.administrator.db('admin').command({ ...failPoint, mode: 'off' })

  // Writes must succeed from the first progress that shows canWrite.
  await tandem.waitFor((progress) => progress.canWrite === true, { timeoutSeconds: 20, what: 'writable' })
  await expectBlocked(destination, false)
  await tandem.waitFor(({ state }) => state === 'COMMITTED', { timeoutSeconds: 20, what: 'committed' })
  await expectBlocked(destination, false)
  await expectBlocked(source, expected.source)
  expect(await tandem.stop()).toBe(0)
  await expectBlocked(source, expected.source)

  const ignoreDatabases = [source.database, destination.database]
  const { differences } = await compareClusters(source.set.uri, destination.set.uri, { ignoreDatabases })
  expect(differences).toEqual([])
}

const modes: [title: string, mode: unknown, expected: Expected][] = [
  ['the default blocks as destinationOnly', undefined, { destination: true, source: false }],
  [
    'destinationOnly blocks the destination until canWrite and never the source',
    'destinationOnly',
    { destination: true, source: false },
  ],
  [
    'sourceAndDestination blocks the destination until canWrite and the source from the commit on',
    'sourceAndDestination',
    { destination: true, source: true },
  ],
  ['true blocks as sourceAndDestination', true, { destination: true, source: true }],
  ['none blocks neither cluster', 'none', { destination: false, source: false }],
  ['false blocks as none', false, { destination: false, source: false }],
]

describe('without access control', () => {
  let source: Side
  let destination: Side

  beforeAll(async () => {
    ;[source, destination] = await Promise.all([
      startSide('sourceWrites', false),
      startSide('destinationWrites', false),
    ])
  })
  afterAll(() => Promise.all([stopSide(source), stopSide(destination)]))
  beforeEach(() => Promise.all([emptySide(source), emptySide(destination)]))

  const uris = () => ({ cluster0: source.set.uri, cluster1: destination.set.uri })

  it.each(modes)('2.1: %s', async (_title, mode, expected) => {
    await watchSync(source, destination, uris(), mode, expected)
  })

  it('2.1: after commit setUserWriteBlockMode global false lets the source accept writes', async () => {
    await using tandem = await startTandem(uris())
    await startSync(tandem, { enableUserWriteBlocking: 'sourceAndDestination' })
    await canCommit(tandem)
    await tandem.post('commit')
    await tandem.waitFor(({ state }) => state === 'COMMITTED', { timeoutSeconds: 20, what: 'committed' })
    await expectBlocked(source, true)
    await source.user.db('admin').command({ setUserWriteBlockMode: 1, global: false })
    await expectBlocked(source, false)
    expect((await tandem.progress()).state).toBe('COMMITTED')
    await expectBlocked(source, false)
  })

  it('2.5: a write to the destination succeeds as soon as canWrite is true and not before', async () => {
    await things(source.user).createIndex({ u: 1 }, { unique: true })
    await using tandem = await startTandem(uris())
    await startSync(tandem)
    await canCommit(tandem)
    const writes: boolean[] = []
    const stop = new AbortController()
    const writer = (async () => {
      while (!stop.signal.aborted) {
        writes.push(
          await write(destination).then(
            () => true,
            () => false,
          ),
        )
      }
    })()
    try {
      await vi.waitFor(() => expect(writes.length).toBeGreaterThan(5), patience)
      expect(writes).not.toContain(true)
      await tandem.post('commit')
      await tandem.waitFor(({ canWrite }) => canWrite === true, { timeoutSeconds: 20, what: 'writable' })
      await write(destination)
    } finally {
      stop.abort()
      await writer
    }
    // After the first accepted write, no write is refused.
    expect(writes.slice(writes.indexOf(true))).not.toContain(false)
    const end = await tandem.waitFor(({ state }) => state === 'COMMITTED', { timeoutSeconds: 20, what: 'committed' })
    expect(end.canWrite).toBe(true)
  })
})

describe('with access control', () => {
  let source: Side
  let destination: Side

  beforeAll(async () => {
    ;[source, destination] = await Promise.all([startSide('sourceWrites', true), startSide('destinationWrites', true)])
  })
  afterAll(() => Promise.all([stopSide(source), stopSide(destination)]))
  beforeEach(() => Promise.all([emptySide(source), emptySide(destination)]))

  it.each(modes.filter(([, mode]) => typeof mode === 'string'))(
    '2.1: with an administrator, %s',
    async (_title, mode, expected) => {
      await watchSync(source, destination, { cluster0: source.set.uri, cluster1: destination.set.uri }, mode, expected)
    },
  )

  // mongosync's documentation requires these roles. Users of mongosync need no others for tandem.
  const destinationRoles = ['clusterManager', 'clusterMonitor', 'readWriteAnyDatabase', 'restore']

  it('5.4: the documented roles are enough for destinationOnly', async () => {
    const uris = {
      cluster0: await source.set.createUser('tandem', 'secret', ['backup', 'clusterMonitor', 'readAnyDatabase']),
      cluster1: await destination.set.createUser('tandem', 'secret', destinationRoles),
    }
    await watchSync(source, destination, uris, 'destinationOnly', { destination: true, source: false })
  })

  it('5.4: the documented roles are enough for sourceAndDestination', async () => {
    const sourceRoles = ['backup', 'clusterManager', 'clusterMonitor', 'readWriteAnyDatabase', 'restore']
    const uris = {
      cluster0: await source.set.createUser('tandem both', 'secret', sourceRoles),
      cluster1: await destination.set.createUser('tandem both', 'secret', destinationRoles),
    }
    await watchSync(source, destination, uris, 'sourceAndDestination', { destination: true, source: true })
  })
})
