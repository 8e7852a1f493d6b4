import type { Document, MongoClient } from 'mongodb'
import { expect, it, vi } from 'vitest'
import { metadataDatabase } from '../../src/domain/namespace.ts'
import { corrupted, seedForCorruptions } from '../faults/corruptions.ts'
import { accepted, canCommit, committed, failed } from '../support/commits.ts'
import { compareClusters } from '../support/compare.ts'
import { type FailPoint, holdTandem } from '../support/fail-point.ts'
import { pairedSets } from '../support/paired-sets.ts'
import { startSync, type Tandem } from '../support/tandem-process.ts'

/** Tests the embedded verifier during pauses, restarts and commits. See test/contract.md. */

const expiring = { extraArgs: ['--setParameter', 'ttlMonitorSleepSecs=1'] }
const pair = pairedSets({ source: expiring, destination: expiring })
const patience = { timeout: 30_000, interval: 50 }
const verified = { verification: { enabled: true } }

interface Row extends Document {
  _id: number | string
}
const app = (client: MongoClient, name: string) => client.db(corrupted).collection<Row>(name)

const scanned = (tandem: Tandem, documents: number) =>
  tandem.waitFor(
    ({ verification }) =>
      verification?.source.phase === 'stream hashing' && verification.source.hashedDocumentCount === documents,
    { timeoutSeconds: 30, what: 'scanned and counted' },
  )
const expectEqualClusters = async () =>
  expect((await compareClusters(pair.source.uri, pair.destination.uri)).differences).toEqual([])

/** Commits, and runs the action while the commit is held where it restores deferred options of this collection. */
async function whileCommitting(tandem: Tandem, collection: string, action: () => Promise<unknown>): Promise<void> {
  await canCommit(tandem)
  await using held = await holdTandem(pair.destinationClient, 'collMod', `${corrupted}.${collection}`)
  expect(await tandem.post('commit')).toEqual(accepted)
  await held.reached()
  await action()
}

async function rangeReads(): Promise<number[]> {
  const ranges = await pair.destinationClient.db(metadataDatabase).collection('verifiedRanges').find().toArray()
  return ranges.map(({ reads }) => reads as number)
}

it('2.5: phase and counts continue after pause and resume, and after a restart, and no range is read again', async () => {
  await seedForCorruptions(pair.sourceClient.db(corrupted))
  await using predecessor = await pair.startInstance()
  await startSync(predecessor, verified)
  const before = (await scanned(predecessor, 456)).verification
  expect(await predecessor.post('pause')).toEqual(accepted)
  expect((await predecessor.progress()).verification?.source).toMatchObject({
    phase: 'stream hashing',
    hashedDocumentCount: 456,
  })
  await vi.waitFor(async () => expect(await rangeReads()).toHaveLength(6), patience)
  expect(await predecessor.post('resume')).toEqual(accepted)
  const resumed = (await scanned(predecessor, 456)).verification
  await app(pair.sourceClient, 'words').insertOne({ _id: 'more' })
  await predecessor.kill9()

  await using tandem = await pair.startInstance()
  const after = (await scanned(tandem, 457)).verification
  for (const now of [resumed, after]) {
    for (const side of ['source', 'destination'] as const) {
      const { phase, scannedCollectionCount, totalCollectionCount } = before?.[side] ?? {}
      expect(now?.[side]).toMatchObject({ phase, scannedCollectionCount, totalCollectionCount })
    }
  }
  expect(await rangeReads()).toEqual([1, 1, 1, 1, 1, 1])
  expect(await tandem.post('commit')).toEqual(accepted)
  await committed(tandem)
  await expectEqualClusters()
})

it('README: FAILED keeps its verdict over a restart, and repair is accepted only with such a verdict', async () => {
  await seedForCorruptions(pair.sourceClient.db(corrupted))
  const refused = { status: 409, body: { error: 'WrongState' } }
  await using predecessor = await pair.startInstance()
  expect(await predecessor.post('repair')).toMatchObject(refused)
  await startSync(predecessor, verified)
  await scanned(predecessor, 456)
  expect(await predecessor.post('repair')).toMatchObject(refused)
  await pair.destinationClient.db(corrupted).command({
    update: 'things',
    updates: [{ q: { _id: 7 }, u: { $set: { text: 'canary-23' } } }],
    mayBypassWriteBlocking: true,
  })
  expect(await predecessor.post('commit')).toEqual(accepted)
  await failed(predecessor)
  const answer = await (await fetch(`${predecessor.url}/api/v1/verification/mismatches`)).json()
  // The answer contains names, and no value other than _id.
  expect(answer).toEqual({
    success: true,
    mismatches: [
      { namespace: 'app.things', kind: 'content', id: { $numberInt: '7' }, field: 'text', by: 'foreignWrite' },
    ],
    total: 1,
    truncated: false,
  })
  const output = JSON.stringify(await predecessor.progress()) + predecessor.output()
  expect(output).not.toContain('canary-23')
  expect(output).not.toContain('text of 7')
  await predecessor.kill9()

  await using tandem = await pair.startInstance()
  expect((await tandem.progress()).failure?.error).toBe('VerificationFailed')
  expect(await (await fetch(`${tandem.url}/api/v1/verification/mismatches`)).json()).toEqual(answer)
  expect((await tandem.post('repair')).body).toMatchObject({ success: true, repairedDocuments: 1 })
  expect(await tandem.post('resume')).toEqual(accepted)
  await committed(tandem)
  expect(await tandem.post('repair')).toMatchObject(refused)
  await expectEqualClusters()
})

it('README: a write on the source after the commit timestamp fails the commit with SourceWritten, and resume commits with that write', async () => {
  await seedForCorruptions(pair.sourceClient.db(corrupted))
  await using tandem = await pair.startInstance()
  await startSync(tandem, verified)
  await whileCommitting(tandem, 'things', () => app(pair.sourceClient, 'words').insertOne({ _id: 'too late' }))
  const { failure } = await failed(tandem)
  expect(failure).toMatchObject({
    error: 'SourceWritten',
    errorDescription: expect.stringMatching(/insert on app\.words, _id "too late"/),
  })
  expect(await tandem.post('repair')).toMatchObject({ status: 409, body: { error: 'WrongState' } })
  expect(await tandem.post('resume')).toEqual(accepted)
  await committed(tandem)
  expect(await app(pair.destinationClient, 'words').findOne({ _id: 'too late' })).not.toBeNull()
  await expectEqualClusters()
})

const ttl = (client: MongoClient, parameters: Document) =>
  client.db('admin').command({ setParameter: 1, ...parameters })

/** Inserts documents that have already expired, and disables the TTL monitors that would delete them. */
async function seedExpired(): Promise<void> {
  for (const client of [pair.sourceClient, pair.destinationClient]) {
    await ttl(client, { ttlMonitorEnabled: false })
  }
  const sessions = app(pair.sourceClient, 'sessions')
  await sessions.createIndexes([
    { key: { at: 1 }, name: 'expiry', expireAfterSeconds: 0 },
    { key: { u: 1 }, name: 'u', unique: true },
  ])
  await sessions.insertMany(Array.from({ length: 20 }, (_, _id) => ({ _id, u: _id, at: new Date(1_000) })))
}

async function enableMonitors(): Promise<void> {
  for (const client of [pair.sourceClient, pair.destinationClient]) {
    await ttl(client, { ttlMonitorEnabled: true })
  }
}

it('README: deletes by TTL on the source during the commit do not count as late writes, and are applied', async () => {
  await seedExpired()
  try {
    await using tandem = await pair.startInstance()
    await startSync(tandem, verified)
    await whileCommitting(tandem, 'sessions', async () => {
      await ttl(pair.sourceClient, { ttlMonitorEnabled: true })
      await vi.waitFor(async () => expect(await app(pair.sourceClient, 'sessions').countDocuments()).toBe(0), patience)
      expect(await app(pair.destinationClient, 'sessions').countDocuments()).toBe(20)
    })
    await committed(tandem)
    await expectEqualClusters()
    expect(await app(pair.destinationClient, 'sessions').countDocuments()).toBe(0)
  } finally {
    await enableMonitors()
  }
})

it('README: with the source blocked, expired documents stay on both clusters until canWrite', async () => {
  await seedExpired()
  try {
    await using tandem = await pair.startInstance()
    await startSync(tandem, { ...verified, enableUserWriteBlocking: 'sourceAndDestination' })
    await whileCommitting(tandem, 'sessions', async () => {
      await ttl(pair.sourceClient, { ttlMonitorEnabled: true })
      await someTtlPasses(pair.sourceClient)
    })
    await committed(tandem)
    await expectEqualClusters()
    expect(await app(pair.destinationClient, 'sessions').countDocuments()).toBe(20)
  } finally {
    await enableMonitors()
  }
})

async function someTtlPasses(client: MongoClient): Promise<void> {
  const count = async (): Promise<number> =>
    Number((await client.db('admin').command({ serverStatus: 1 })).metrics.ttl.passes)
  const before = await count()
  await vi.waitFor(async () => expect(await count()).toBeGreaterThan(before + 2), patience)
}

const modes = ['destinationOnly', 'none'] as const
it.each(modes)(
  'README: with write blocking %s, nothing expires on the destination before the verdict',
  async (mode) => {
    await seedExpired()
    try {
      await using tandem = await pair.startInstance()
      await startSync(tandem, { ...verified, enableUserWriteBlocking: mode })
      let verdict: FailPoint | null = null
      await whileCommitting(tandem, 'sessions', async () => {
        // The verdict begins with a no-op in the source's oplog.
        verdict = await holdTandem(pair.sourceClient, 'appendOplogNote')
      })
      await using held = verdict as unknown as FailPoint
      await held.reached()
      await ttl(pair.destinationClient, { ttlMonitorEnabled: true })
      await someTtlPasses(pair.destinationClient)
      expect(await app(pair.destinationClient, 'sessions').countDocuments()).toBe(20)
      await held.release()
      await committed(tandem)
      // From now on the TTL monitors of both clusters delete the expired documents.
      await ttl(pair.sourceClient, { ttlMonitorEnabled: true })
      for (const client of [pair.sourceClient, pair.destinationClient]) {
        await vi.waitFor(async () => expect(await app(client, 'sessions').countDocuments()).toBe(0), patience)
      }
      await expectEqualClusters()
    } finally {
      await enableMonitors()
    }
  },
)

it('2.1: with buildIndexes never and the verifier, a TTL index is refused at start, and fails the sync with VerificationNotSupported later', async () => {
  await app(pair.sourceClient, 'things').createIndex({ at: 1 }, { expireAfterSeconds: 86_400 })
  await using tandem = await pair.startInstance()
  const start = { source: 'cluster0', destination: 'cluster1', buildIndexes: 'never', ...verified }
  const answer = await tandem.post('start', start)
  expect(answer).toMatchObject({ status: 422, body: { error: 'VerificationNotSupported' } })
  expect(answer.body.errorDescription).toMatch(/app\.things/)
  await app(pair.sourceClient, 'things').dropIndex('at_1')
  expect(await tandem.post('start', start)).toMatchObject(accepted)
  await canCommit(tandem)
  await app(pair.sourceClient, 'things').createIndex({ at: 1 }, { expireAfterSeconds: 86_400 })
  expect((await failed(tandem)).failure).toMatchObject({
    error: 'VerificationNotSupported',
    errorDescription: expect.stringMatching(/app\.things/),
  })
  await app(pair.sourceClient, 'things').dropIndex('at_1')
  expect(await tandem.post('resume')).toEqual(accepted)
  await canCommit(tandem)
  expect(await tandem.post('commit')).toEqual(accepted)
  await committed(tandem)
})

it('2.5: verification is null from start to COMMITTED when it is disabled', async () => {
  await app(pair.sourceClient, 'things').insertOne({ _id: 1 })
  await using tandem = await pair.startInstance()
  await startSync(tandem, { verification: { enabled: false } })
  expect((await canCommit(tandem)).verification).toBeNull()
  expect(await tandem.post('commit')).toEqual(accepted)
  expect((await committed(tandem)).verification).toBeNull()
})

it('the verifier names a collection that another client has dropped and recreated identically on the destination', async () => {
  await pair.sourceClient.db(corrupted).createCollection('quiet', { changeStreamPreAndPostImages: { enabled: true } })
  await using tandem = await pair.startInstance()
  await startSync(tandem, { ...verified, enableUserWriteBlocking: 'none' })
  await canCommit(tandem)
  await pair.destinationClient.db(corrupted).dropCollection('quiet')
  await pair.destinationClient
    .db(corrupted)
    .createCollection('quiet', { changeStreamPreAndPostImages: { enabled: true } })
  expect(await tandem.post('commit')).toEqual(accepted)
  expect((await failed(tandem)).failure?.error).toBe('VerificationFailed')
  const answer = await (await fetch(`${tandem.url}/api/v1/verification/mismatches`)).json()
  expect(answer).toMatchObject({
    total: 1,
    mismatches: [{ namespace: `${corrupted}.quiet`, kind: 'collection', by: 'foreignWrite' }],
  })
  // tandem does not drop a collection that it did not create.
  expect(await tandem.post('repair')).toMatchObject({ status: 409, body: { error: 'WrongState' } })
})

it('when the oplog of the destination has lost the position of the verifier, the verifier compares again, and the sync commits', async () => {
  await seedForCorruptions(pair.sourceClient.db(corrupted))
  await using tandem = await pair.startInstance()
  await startSync(tandem, verified)
  await scanned(tandem, 456)
  const admin = pair.destinationClient.db('admin')
  // The next read of the verifier's stream on the destination returns ChangeStreamHistoryLost.
  await admin.command({
    configureFailPoint: 'failCommand',
    mode: { times: 1 },
    data: { failCommands: ['getMore'], errorCode: 286, namespace: 'admin.$cmd.aggregate' },
  })
  await vi.waitFor(() => expect(tandem.output()).toContain('verification begins again'), patience)
  await canCommit(tandem)
  expect(await tandem.post('commit')).toEqual(accepted)
  await committed(tandem)
  await expectEqualClusters()
})
