import { type Document, MongoClient } from 'mongodb'
import { expect, it, vi } from 'vitest'
import { metadataDatabase } from '../../src/domain/namespace.ts'
import type { Progress } from '../../src/domain/progress.ts'
import { accepted, commit } from '../support/commits.ts'
import { compareClusters } from '../support/compare.ts'
import { databaseNames, serverDatabases } from '../support/databases.ts'
import { borrowReplicaSet } from '../support/kept-sets.ts'
import { pairedSets } from '../support/paired-sets.ts'
import type { ReplicaSet } from '../support/replica-set.ts'
import { slowness } from '../support/slowness.ts'
import { startSync, startTandem, type Tandem } from '../support/tandem-process.ts'

/** The rules of part II of docs/contract.md about instances that restart. See test/contract.md. */

const pair = pairedSets()

const patience = { timeout: 30_000, interval: 20 }
const continuesWithinMs = 5_000
const start = { source: 'cluster0', destination: 'cluster1' }

type Uris = { cluster0: string; cluster1: string }
const given = (): Uris => ({ cluster0: pair.source.uri, cluster1: pair.destination.uri })

/** Starts an instance. Returns its first answer to a progress request, and the time of that answer in ms. */
async function restart(uris: Uris = given()): Promise<{ tandem: Tandem; first: Progress; connectedAt: number }> {
  const tandem = await startTandem(uris)
  const first = await vi.waitFor(() => tandem.progress(), patience)
  return { tandem, first, connectedAt: performance.now() }
}

async function startedSync(): Promise<Tandem> {
  await things(pair.sourceClient).insertMany([{ _id: 1 }, { _id: 2 }])
  const tandem = await startTandem(given())
  await startSync(tandem)
  await tandem.waitFor(({ canCommit }) => canCommit, { timeoutSeconds: 30, what: 'ready to commit' })
  return tandem
}

async function endBy(end: 'kill9' | 'stop', tandem: Tandem): Promise<void> {
  if (end === 'kill9') await tandem.kill9()
  else expect(await tandem.stop()).toBe(0)
}

interface Row extends Document {
  _id: number | string | null
}

const things = (client: MongoClient) => client.db('app').collection<Row>('things')

const arrives = (_id: Row['_id'], timeout = 30_000) =>
  vi.waitFor(async () => expect(await things(pair.destinationClient).findOne({ _id })).not.toBeNull(), {
    timeout,
    interval: 20,
  })

async function expectEqualClusters(): Promise<void> {
  expect((await compareClusters(pair.source.uri, pair.destination.uri)).differences).toEqual([])
}

it.each(['kill9', 'stop'] as const)(
  'README: a RUNNING instance ended by %s continues within 5 seconds, and an identical start succeeds',
  async (end) => {
    const predecessor = await startedSync()
    await endBy(end, predecessor)
    await things(pair.sourceClient).insertOne({ _id: 'during the downtime' })

    const { tandem, first, connectedAt } = await restart()
    await using _ = tandem
    expect(first.state).toBe('RUNNING')
    await arrives('during the downtime', patience.timeout)
    expect(performance.now() - connectedAt).toBeLessThan(continuesWithinMs * (await slowness()))

    expect(await tandem.post('start', start)).toMatchObject(accepted)
    const spelledOut = { ...start, enableUserWriteBlocking: 'destinationOnly', reversible: false }
    expect(await tandem.post('start', spelledOut)).toMatchObject(accepted)
    const other = { ...start, buildIndexes: 'never' }
    expect(await tandem.post('start', other)).toMatchObject({ status: 409, body: { error: 'WrongState' } })
    const swapped = { ...start, source: 'cluster1', destination: 'cluster0' }
    expect((await tandem.post('start', swapped)).body.success).toBe(false)
    expect(await tandem.progress()).toMatchObject({
      state: 'RUNNING',
      directionMapping: first.directionMapping,
      mongosyncID: 'coordinator',
      coordinatorID: 'coordinator',
    })
    await commit(tandem)
    await expectEqualClusters()
  },
)

it('README: an instance that was killed during the copy continues the copy by itself', async () => {
  await things(pair.sourceClient).insertMany(
    Array.from({ length: 3000 }, (_, at) => ({ _id: at, text: 'x'.repeat(1000) })),
  )
  const admin = pair.destinationClient.db('admin')
  await admin.command({
    configureFailPoint: 'hangDuringBatchInsert',
    mode: 'alwaysOn',
    data: { nss: 'app.things' },
  })
  try {
    await using predecessor = await startTandem(given())
    await startSync(predecessor)
    await predecessor.waitFor(({ collectionCopy }) => (collectionCopy?.estimatedTotalBytes ?? 1) > 1, {
      timeoutSeconds: 20,
      what: 'copying',
    })
    await predecessor.kill9()
  } finally {
    await admin.command({ configureFailPoint: 'hangDuringBatchInsert', mode: 'off' })
  }
  await things(pair.sourceClient).deleteOne({ _id: 1 })
  const { tandem, first } = await restart()
  await using _ = tandem
  expect(first).toMatchObject({ state: 'RUNNING', canCommit: false, info: 'collection copy' })
  await commit(tandem)
  await expectEqualClusters()
  expect(await things(pair.destinationClient).countDocuments()).toBe(2999)
})

it.each(['kill9', 'stop'] as const)(
  'README: a PAUSED sync stays PAUSED after a restart by %s, until it is resumed',
  async (end) => {
    const predecessor = await startedSync()
    expect(await predecessor.post('pause')).toEqual(accepted)
    const before = await predecessor.progress()
    await endBy(end, predecessor)
    await things(pair.sourceClient).insertOne({ _id: 'paused' })

    const { tandem, first } = await restart()
    await using _ = tandem
    expect(first).toMatchObject({
      state: 'PAUSED',
      canCommit: false,
      lagTimeSeconds: null,
      info: before.info,
      directionMapping: before.directionMapping,
      mongosyncID: 'coordinator',
    })
    // The instance shows its stored figures as soon as it has read them.
    await vi.waitFor(
      async () => expect((await tandem.progress()).collectionCopy).toEqual(before.collectionCopy),
      patience,
    )
    // An identical start does not resume the sync.
    expect(await tandem.post('start', start)).toMatchObject(accepted)
    expect((await tandem.progress()).state).toBe('PAUSED')
    expect(await things(pair.destinationClient).findOne({ _id: 'paused' })).toBeNull()

    expect(await tandem.post('resume')).toEqual(accepted)
    await arrives('paused')
    // The instance accepts an identical start only until its state changes.
    expect(await tandem.post('start', start)).toMatchObject({ status: 409, body: { error: 'WrongState' } })
    await commit(tandem)
    await expectEqualClusters()
  },
)

it('2.5: coordinatorID names the only instance, also in PAUSED after a restart', async () => {
  const predecessor = await startedSync()
  await predecessor.post('pause')
  await predecessor.stop()
  const { tandem } = await restart()
  await using _ = tandem
  await tandem.waitFor(({ coordinatorID }) => coordinatorID === 'coordinator', {
    timeoutSeconds: 30,
    what: 'showing its coordinator',
  })
  expect((await tandem.progress()).state).toBe('PAUSED')
})

it.each(['kill9', 'stop'] as const)('README: a COMMITTED sync stays COMMITTED after a restart by %s', async (end) => {
  const predecessor = await startedSync()
  const before = await commit(predecessor)
  await endBy(end, predecessor)
  await things(pair.sourceClient).insertOne({ _id: 'too late' })
  await things(pair.destinationClient).insertOne({ _id: 'after the commit' })

  const { tandem, first } = await restart()
  await using _ = tandem
  expect(first).toMatchObject({
    state: 'COMMITTED',
    canCommit: false,
    canWrite: true,
    info: 'commit completed',
    lagTimeSeconds: 0,
    directionMapping: before.directionMapping,
  })
  await vi.waitFor(
    async () => expect((await tandem.progress()).collectionCopy).toEqual(before.collectionCopy),
    patience,
  )
  for (const command of ['pause', 'resume', 'commit'])
    expect((await tandem.post(command)).body.error).toBe('WrongState')
  // The sync applies no more changes, and writes on the destination stay allowed.
  await things(pair.destinationClient).insertOne({ _id: 'after the restart' })
  const found = await things(pair.destinationClient).find().sort({ _id: 1 }).toArray()
  expect(found.map(({ _id }) => _id)).toEqual([1, 2, 'after the commit', 'after the restart'])
})

it.each(['commitPoint', 'prepareIndexes', 'finishIndexes'])(
  'README: the next process completes a commit that a crash at %s interrupted',
  async (step) => {
    await things(pair.sourceClient).createIndex({ u: 1 }, { unique: true, sparse: true })
    await things(pair.sourceClient).insertMany([{ _id: 1, u: 1 }, { _id: 2 }, { _id: 3 }])
    await using predecessor = await startTandem({ ...given(), faults: { crashAt: step } })
    await startSync(predecessor, { enableUserWriteBlocking: 'sourceAndDestination' })
    await predecessor.waitFor(({ canCommit }) => canCommit, { timeoutSeconds: 30, what: 'ready to commit' })
    await predecessor.post('commit').catch(() => {}) // the process may crash before it answers
    await vi.waitFor(() => expect(predecessor.isRunning()).toBe(false), patience)

    const { tandem, first } = await restart()
    await using _ = tandem
    expect(['COMMITTING', 'COMMITTED']).toContain(first.state)
    await tandem.waitFor(({ state }) => state === 'COMMITTED', { timeoutSeconds: 30, what: 'committed' })
    await expectEqualClusters()
    await things(pair.destinationClient).insertOne({ _id: 4 })
    await expect(things(pair.sourceClient).insertOne({ _id: 4 })).rejects.toMatchObject({ code: 371 })
  },
)

it('README: tandem recognizes a cluster by its identity, so a restart accepts other host names of the same cluster', async () => {
  const predecessor = await startedSync()
  await predecessor.kill9()
  await things(pair.sourceClient).insertOne({ _id: 'by another name' })
  const named = ({ hosts: [host] }: ReplicaSet) =>
    `mongodb://${host?.replace('127.0.0.1', 'localhost')}/?directConnection=true`
  const { tandem, first } = await restart({ cluster0: named(pair.source), cluster1: named(pair.destination) })
  await using _ = tandem
  expect(first.state).toBe('RUNNING')
  await arrives('by another name')
  await commit(tandem)
  await expectEqualClusters()
})

it('README: a restart with other clusters under the same names is refused', async () => {
  await using other = await borrowReplicaSet()
  const predecessor = await startedSync()
  await predecessor.stop()
  await things(pair.sourceClient).insertOne({ _id: 'away' })
  await expectRefusedAtRestart({ cluster0: other.uri, cluster1: pair.destination.uri })
  expect(await contents(other.uri)).toEqual([])

  // A restart with the right clusters continues the sync.
  const { tandem } = await restart()
  await using _ = tandem
  await arrives('away')
  await commit(tandem)
  await expectEqualClusters()
})

it('README: a restart with the clusters swapped is refused', async () => {
  const predecessor = await startedSync()
  await predecessor.stop()
  await things(pair.sourceClient).insertOne({ _id: 'away' })
  await expectRefusedAtRestart({ cluster0: pair.destination.uri, cluster1: pair.source.uri })

  const { tandem } = await restart()
  await using _ = tandem
  await arrives('away')
  await commit(tandem)
  await expectEqualClusters()
})

it('README: a restart is refused while the source holds a foreign sync record, which describes a reversal that never happened', async () => {
  const predecessor = await startedSync()
  await predecessor.stop()
  await things(pair.sourceClient).insertOne({ _id: 'away' })
  const records = (client: MongoClient) => client.db(metadataDatabase).collection<Row>('sync')
  const { configuration, sourceIdentity, destinationIdentity, ...rest } = (await records(
    pair.destinationClient,
  ).findOne()) as Row
  await records(pair.sourceClient).insertOne({
    ...rest,
    configuration: { ...configuration, source: 'cluster1', destination: 'cluster0' },
    sourceIdentity: destinationIdentity,
    destinationIdentity: sourceIdentity,
    generation: 1,
  })
  await expectRefusedAtRestart(given(), 'StoredStateConflict')

  await records(pair.sourceClient).drop()
  const { tandem } = await restart()
  await using _ = tandem
  await arrives('away')
  await commit(tandem)
  await expectEqualClusters()
})

async function expectRefusedAtRestart(uris: Uris, error = 'ClusterIdentityChanged'): Promise<void> {
  const before = [await contents(pair.source.uri), await contents(pair.destination.uri)]
  const { tandem, first } = await restart(uris)
  await using _ = tandem
  expect(first).toMatchObject({
    state: 'FAILED',
    canCommit: false,
    failure: { error, errorDescription: expect.stringMatching(/cluster[01]/) },
  })
  for (const body of [start, { ...start, source: 'cluster1', destination: 'cluster0' }]) {
    const { status, body: answer } = await tandem.post('start', body)
    expect(status).toBeGreaterThanOrEqual(400)
    expect(answer).toMatchObject({ success: false, errorDescription: expect.stringMatching(/\S/) })
  }
  for (const command of ['pause', 'resume', 'commit']) expect((await tandem.post(command)).body.success).toBe(false)
  expect(tandem.isRunning()).toBe(true)
  expect([await contents(pair.source.uri), await contents(pair.destination.uri)]).toEqual(before)
}

/** Returns the name of every collection with its number of documents. */
async function contents(uri: string): Promise<string[]> {
  await using client = new MongoClient(uri)
  const found: string[] = []
  for (const name of await databaseNames(client, serverDatabases)) {
    for (const collection of await client.db(name).collections()) {
      found.push(`${collection.namespace} ${await collection.countDocuments()}`)
    }
  }
  return found.sort()
}
