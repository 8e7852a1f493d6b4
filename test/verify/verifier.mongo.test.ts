import { BSON, type MongoClient } from 'mongodb'
import { expect, it, vi } from 'vitest'
import { Catalog } from '../../src/domain/catalog.ts'
import type { ClusterTime } from '../../src/domain/cluster-time.ts'
import { deferred } from '../../src/domain/deferred.ts'
import { StoppedError } from '../../src/domain/errors.ts'
import type { RecheckResult } from '../../src/domain/mismatch.ts'
import { readChangeStream } from '../../src/mongo/change-stream.ts'
import { appendOplogNote } from '../../src/mongo/oplog-note.ts'
import { Selection } from '../../src/mongo/selection.ts'
import { SharedStream } from '../../src/mongo/shared-stream.ts'
import { VerificationStore } from '../../src/mongo/verification-store.ts'
import { Throttle } from '../../src/throttle/throttle.ts'
import { Verifier } from '../../src/verify/verifier.ts'
import { emptiedClusters, sourceName, type TwoClusters } from '../apply/two-clusters.ts'

interface Row {
  _id: number
}

const patience = { timeout: 20_000, interval: 50 }

let two: TwoClusters
emptiedClusters((clusters) => {
  two = clusters
})

/** Creates a verifier of these collections. `scanned` resolves when all of them have been compared once. */
async function verifierOf(
  names: string[],
  sharedStream = new SharedStream(),
  appliedTime: () => ClusterTime = () => two.source.latest,
) {
  for (const cluster of [two.source, two.destination]) await appendOplogNote(cluster, 'test')
  const catalog = new Catalog()
  for (const name of names) catalog.add(await two.entryOf('app', name))
  const scanned = deferred<void>()
  const store = new VerificationStore(two.destination, two.context)
  const verifier = new Verifier({
    clusters: two,
    store,
    metadata: two.metadata,
    context: two.context,
    selection: new Selection(two.source, { includeNamespaces: null, excludeNamespaces: null }),
    sharedStream,
    throttle: new Throttle(3),
    roundTripMS: () => 1,
    compareMethod: 'binary',
    epoch: 1,
    catalog: () => catalog,
    appliedTime,
    helpers: null,
    onInitiallyVerified: () => scanned.resolve(),
  })
  return { verifier, store, catalog, scanned: scanned.promise, sharedStream }
}

/** Returns the `_id` element of a document, as rechecks contain it. */
function idElementOf(_id: number): Buffer {
  return Buffer.from(BSON.serialize({ _id })).subarray(4, -1)
}

async function verdictOf(verifier: Verifier): Promise<RecheckResult> {
  const result = await verifier.issueVerdict()
  if (!result) throw new Error('too many rechecks are open')
  return result
}

async function bothHave(name: string, documents: Row[]): Promise<void> {
  for (const client of [two.sourceClient, two.destinationClient]) {
    await client.db('app').collection<Row>(name).insertMany(documents)
  }
}

it('verifies a collection that is cataloged after the first complete scan', async () => {
  const documents = Array.from({ length: 300 }, (_, _id) => ({ _id }))
  for (const name of ['early', 'late']) await bothHave(name, documents)
  // The verifier's streams begin later, so neither contains this delete.
  await two.destinationClient.db('app').collection<Row>('late').deleteOne({ _id: 7 })
  const { verifier, catalog, scanned } = await verifierOf(['early'])
  const run = verifier.run()
  await scanned
  catalog.add(await two.entryOf('app', 'late'))
  const { total, explain } = await verdictOf(verifier)
  const { mismatches } = await explain()
  expect({ total, mismatches }).toMatchObject({
    total: 1,
    mismatches: [{ namespace: 'app.late', kind: 'missing', id: { $numberInt: '7' } }],
  })
  verifier.stop()
  await run
})

it('reports the end of the first complete scan only after all scanned ranges are stored', async () => {
  const names = Array.from({ length: 30 }, (_, number) => `c${number}`)
  for (const name of names) await bothHave(name, [{ _id: 1 }, { _id: 2 }])
  const { verifier, store, catalog, scanned } = await verifierOf(names)
  const run = verifier.run()
  await scanned
  const stored = new Set((await store.loadRanges()).map(({ collection }) => collection))
  expect(catalog.entries().filter(({ uuid }) => !stored.has(uuid))).toEqual([])
  verifier.stop()
  await run
})

it('removes the ranges of a dropped collection from memory and from the store, and no other ranges', async () => {
  const names = ['stays', 'goes']
  for (const name of names) await bothHave(name, [{ _id: 1 }, { _id: 2 }])
  const { verifier, store, catalog, scanned } = await verifierOf(names)
  const run = verifier.run()
  await scanned
  const stored = async () => (await store.loadRanges()).map(({ collection }) => collection).sort()
  const [stays, goes] = names.map((name) => catalog.entries().find((entry) => entry.name === name)?.uuid as string)
  await vi.waitFor(async () => expect(await stored()).toEqual([stays, goes].sort()), patience)
  expect(verifier.report.source).toMatchObject({ scannedCollectionCount: 2, totalCollectionCount: 2 })
  catalog.remove(goes as string)
  await vi.waitFor(async () => expect(await stored()).toEqual([stays]), patience)
  expect(verifier.report.source).toMatchObject({ scannedCollectionCount: 1, totalCollectionCount: 1 })
  verifier.stop()
  await run
})

it('resolves stored rechecks of an earlier process without waiting for a verdict, if the documents are equal or their collection was dropped', async () => {
  await bothHave('things', [{ _id: 1 }, { _id: 2 }, { _id: 3 }])
  await two.sourceClient.db('app').collection<Row>('things').deleteOne({ _id: 2 })
  const { verifier, store, catalog, scanned } = await verifierOf(['things'])
  const uuid = catalog.entries()[0]?.uuid as string
  const unknownUuid = '0123456789abcdef'
  const marks = { onSource: false, onDestination: true, token: 'of an earlier process' }
  const rechecks = [1, 2, 3].map((id) => ({ uuid, idElement: idElementOf(id), ...marks }))
  await store.saveRechecks([...rechecks, { uuid: unknownUuid, idElement: idElementOf(1), ...marks }])
  const run = verifier.run()
  await scanned
  // The scan also finds the difference of document 2, and stores its recheck again with another token.
  const different = rechecks.filter((_, at) => at === 1).map((one) => ({ ...one, token: expect.any(String) }))
  await vi.waitFor(async () => expect(await store.readRechecks(null, 10)).toEqual(different), patience)
  const { total } = await verdictOf(verifier)
  expect(total).toBe(1)
  expect(await store.readRechecks(null, 10)).toEqual(different)
  verifier.stop()
  await run
})

it('issues a verdict with thousands of stored rechecks of an earlier process, and sends one delete for each of them and no others', async () => {
  const documents = Array.from({ length: 3_000 }, (_, _id) => ({ _id }))
  await bothHave('things', documents)
  const { verifier, store, catalog, scanned } = await verifierOf(['things'])
  const uuid = catalog.entries()[0]?.uuid as string
  const marks = { onSource: true, onDestination: false, token: null }
  await store.saveRechecks(documents.map(({ _id }) => ({ uuid, idElement: idElementOf(_id), ...marks })))
  // Counts delete statements, including those that match nothing.
  const deletes = async (): Promise<number> =>
    Number((await two.destinationClient.db('admin').command({ serverStatus: 1 })).opcounters.delete)
  const before = await deletes()
  const run = verifier.run()
  await scanned
  expect((await verdictOf(verifier)).total).toBe(0)
  for (const client of [two.sourceClient, two.destinationClient]) {
    await client
      .db('app')
      .collection<Row>('things')
      .updateMany({ _id: { $lt: 500 } }, { $set: { changed: true } })
  }
  expect((await verdictOf(verifier)).total).toBe(0)
  await vi.waitFor(async () => expect(await store.readRechecks(null, 1)).toEqual([]), patience)
  verifier.stop()
  await run
  expect((await deletes()) - before).toBe(documents.length)
})

/** Counts the verifier's own change streams on the source. Only they project identities without `fullDocument`. */
async function ownStreams(): Promise<number> {
  const operations = await two.sourceClient
    .db('admin')
    .aggregate([{ $currentOp: { idleCursors: true, allUsers: true } }, { $match: { appName: sourceName } }])
    .toArray()
  const pipelines = operations
    .map(({ command, cursor }) => (cursor?.originatingCommand ?? command)?.pipeline)
    .filter((pipeline) => pipeline?.[0]?.$changeStream)
  return pipelines.filter((pipeline) => !pipeline.at(-1).$project.fullDocument).length
}

/** Reads and publishes a stream as event application does. */
function publishFrom(time: bigint, sharedStream: SharedStream) {
  const stopped = new AbortController()
  const events = { count: 0 }
  const run = (async () => {
    const start = { kind: 'time' as const, time }
    const publication = sharedStream.publish(start, null)
    try {
      for await (const batch of readChangeStream(two.source, start, { ...two.context, signal: stopped.signal })) {
        events.count += batch.events.length
        publication.publish(batch)
      }
    } catch (error) {
      if (!(error instanceof StoppedError)) throw error
    } finally {
      publication.end()
    }
  })()
  const end = async (): Promise<void> => {
    stopped.abort()
    await run
  }
  return { events, end }
}

it('uses the stream of event application, and records every change while that stream begins, ends, and begins again at another position', async () => {
  await bothHave('things', [{ _id: -1 }])
  const before = two.source.latest
  const { verifier, scanned, sharedStream } = await verifierOf(['things'])
  let next = 0
  // The rows are only on the source, so the verdict lacks a difference for each change that the verifier misses.
  const insert = async (count: number): Promise<void> => {
    const rows = Array.from({ length: count }, (_, at) => ({ _id: next + at }))
    next += count
    await two.sourceClient.db('app').collection<Row>('things').insertMany(rows)
  }
  const run = verifier.run()
  await scanned
  await vi.waitFor(async () => expect(await ownStreams()).toBe(1), patience)
  await insert(10)
  // This stream begins before the verifier's position and repeats events that the verifier has already read.
  const first = publishFrom(before, sharedStream)
  await vi.waitFor(async () => expect(await ownStreams()).toBe(0), patience)
  await insert(20)
  await vi.waitFor(() => expect(first.events.count).toBeGreaterThanOrEqual(20), patience)
  await first.end()
  await insert(30)
  await vi.waitFor(async () => expect(await ownStreams()).toBe(1), patience)
  // This stream may begin after the verifier's position, so the verifier must catch up first.
  await insert(40)
  await appendOplogNote(two.source, 'test')
  const second = publishFrom(two.source.latest, sharedStream)
  await insert(50)
  await vi.waitFor(async () => expect(await ownStreams()).toBe(0), patience)
  await insert(60)
  const { total } = await verdictOf(verifier)
  expect(total).toBe(next)
  await second.end()
  verifier.stop()
  await run
  // No recheck was resolved. Another process finds each of them in the stream after the stored position or in the store.
  const successor = await verifierOf(['things'])
  const again = successor.verifier.run()
  expect((await verdictOf(successor.verifier)).total).toBe(next)
  successor.verifier.stop()
  await again
})

it('starts without its own stream when event application reads from an earlier position, and opens one for a verdict', async () => {
  await bothHave('things', [{ _id: 1 }, { _id: 2 }])
  const sharedStream = new SharedStream()
  await appendOplogNote(two.source, 'test')
  const application = publishFrom(two.source.latest, sharedStream)
  const { verifier, scanned } = await verifierOf(['things'], sharedStream)
  const run = verifier.run()
  await scanned
  await vi.waitFor(() => expect(verifier.continues).toBe(true), patience)
  expect(await ownStreams()).toBe(0)
  await two.sourceClient.db('app').collection<Row>('things').deleteOne({ _id: 2 })
  await application.end()
  expect((await verdictOf(verifier)).total).toBe(1)
  // `$currentOp` shows a cursor neither as running nor as idle for a moment when a getMore begins or ends.
  await vi.waitFor(async () => expect(await ownStreams()).toBe(1), patience)
  verifier.stop()
  await run
})

it('gives no verdict, and does not wait, when deletes on the source need more rechecks than may be open', async () => {
  const documents = Array.from({ length: 70_000 }, (_, _id) => ({ _id }))
  await bothHave('things', documents)
  let applied: ClusterTime | null = null
  const { verifier, scanned } = await verifierOf(['things'], new SharedStream(), () => applied ?? two.source.latest)
  const run = verifier.run()
  await scanned
  applied = two.source.latest
  const on = (client: MongoClient) => client.db('app').collection<Row>('things')
  await on(two.sourceClient).deleteMany({})
  expect(await verifier.issueVerdict()).toBeNull()
  await on(two.destinationClient).deleteMany({})
  applied = two.source.latest
  expect(await vi.waitFor(async () => (await verifier.issueVerdict())?.total ?? Promise.reject(), patience)).toBe(0)
  verifier.stop()
  await run
}, 240_000)
