import { BSON } from 'mongodb'
import { expect, it, vi } from 'vitest'
import { Catalogue } from '../../src/domain/catalogue.ts'
import { deferred } from '../../src/domain/deferred.ts'
import { StoppedError } from '../../src/domain/errors.ts'
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

/** One that runs over these collections; `hashed` resolves when all of them have been compared once. */
async function verifierOf(names: string[], sharedStream = new SharedStream()) {
  for (const cluster of [two.source, two.destination]) await appendOplogNote(cluster, 'test')
  const catalogue = new Catalogue()
  for (const name of names) catalogue.add(await two.entryOf('app', name))
  const hashed = deferred<void>()
  const store = new VerificationStore(two.destination, two.context)
  const verifier = new Verifier({
    clusters: two,
    store,
    metadata: two.metadata,
    context: two.context,
    selection: new Selection(two.source, { includeNamespaces: null, excludeNamespaces: null }),
    sharedStream,
    throttle: new Throttle(3),
    epoch: 1,
    catalogue: () => catalogue,
    appliedTime: () => two.source.latest,
    onInitiallyVerified: () => hashed.resolve(),
  })
  return { verifier, store, catalogue, hashed: hashed.promise, sharedStream }
}

/** The `_id` element of a document, as rechecks name it. */
function idElementOf(_id: number): Buffer {
  return Buffer.from(BSON.serialize({ _id })).subarray(4, -1)
}

async function bothHave(name: string, documents: Row[]): Promise<void> {
  for (const client of [two.sourceClient, two.destinationClient]) {
    await client.db('app').collection<Row>(name).insertMany(documents)
  }
}

it('proves also what was catalogued only after everything had been compared once', async () => {
  const late = Array.from({ length: 300 }, (_, _id) => ({ _id }))
  for (const name of ['early', 'late']) await bothHave(name, late)
  // Before the verifier's streams begin, so that neither tells of it.
  await two.destinationClient.db('app').collection<Row>('late').deleteOne({ _id: 7 })
  const { verifier, catalogue, hashed } = await verifierOf(['early'])
  const run = verifier.run()
  await hashed
  catalogue.add(await two.entryOf('app', 'late'))
  const { total, explain } = await verifier.settle()
  const { mismatches } = await explain()
  expect({ total, mismatches }).toMatchObject({
    total: 1,
    mismatches: [{ namespace: 'app.late', kind: 'missing', id: { $numberInt: '7' } }],
  })
  verifier.stop()
  await run
})

it('forgets the ranges of a collection that is gone, in the store too, and no others', async () => {
  const names = ['stays', 'goes']
  for (const name of names) await bothHave(name, [{ _id: 1 }, { _id: 2 }])
  const { verifier, store, catalogue, hashed } = await verifierOf(names)
  const run = verifier.run()
  await hashed
  const stored = async () => (await store.loadRanges()).map(({ collection }) => collection).sort()
  const [stays, goes] = names.map((name) => catalogue.entries().find((entry) => entry.name === name)?.uuid as string)
  await vi.waitFor(async () => expect(await stored()).toEqual([stays, goes].sort()), patience)
  expect(verifier.report.source).toMatchObject({ scannedCollectionCount: 2, totalCollectionCount: 2 })
  catalogue.remove(goes as string)
  await vi.waitFor(async () => expect(await stored()).toEqual([stays]), patience)
  expect(verifier.report.source).toMatchObject({ scannedCollectionCount: 1, totalCollectionCount: 1 })
  verifier.stop()
  await run
})

it('compares again what an earlier process stored: what is equal, or gone, does not wait for a verdict', async () => {
  await bothHave('things', [{ _id: 1 }, { _id: 2 }, { _id: 3 }])
  await two.sourceClient.db('app').collection<Row>('things').deleteOne({ _id: 2 })
  const { verifier, store, catalogue, hashed } = await verifierOf(['things'])
  const uuid = catalogue.entries()[0]?.uuid as string
  const nobodys = '0123456789abcdef'
  const marks = { onSource: false, onDestination: true }
  const rechecks = [1, 2, 3].map((id) => ({ uuid, idElement: idElementOf(id), ...marks }))
  await store.saveRechecks([...rechecks, { uuid: nobodys, idElement: idElementOf(1), ...marks }])
  const run = verifier.run()
  await hashed
  const different = rechecks.filter((_, at) => at === 1)
  await vi.waitFor(async () => expect(await store.readRechecks(null, 10)).toEqual(different), patience)
  const { total } = await verifier.settle()
  expect(total).toBe(1)
  expect(await store.readRechecks(null, 10)).toEqual(different)
  verifier.stop()
  await run
})

it('concludes over what an earlier process left in the store by the thousand, and removes nothing that is not there', async () => {
  const documents = Array.from({ length: 3_000 }, (_, _id) => ({ _id }))
  await bothHave('things', documents)
  const { verifier, store, catalogue, hashed } = await verifierOf(['things'])
  const uuid = catalogue.entries()[0]?.uuid as string
  const marks = { onSource: true, onDestination: false }
  await store.saveRechecks(documents.map(({ _id }) => ({ uuid, idElement: idElementOf(_id), ...marks })))
  // Statements, whether they find something or not.
  const deletes = async (): Promise<number> =>
    Number((await two.destinationClient.db('admin').command({ serverStatus: 1 })).opcounters.delete)
  const before = await deletes()
  const run = verifier.run()
  await hashed
  expect((await verifier.settle()).total).toBe(0)
  for (const client of [two.sourceClient, two.destinationClient]) {
    await client
      .db('app')
      .collection<Row>('things')
      .updateMany({ _id: { $lt: 500 } }, { $set: { changed: true } })
  }
  expect((await verifier.settle()).total).toBe(0)
  await vi.waitFor(async () => expect(await store.readRechecks(null, 1)).toEqual([]), patience)
  verifier.stop()
  await run
  expect((await deletes()) - before).toBe(documents.length)
})

/** The change streams that are open on the source for the verifier alone: event application is not limited to identities. */
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

/** What event application does with its stream, as far as the verifier is concerned. */
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

it('uses what event application reads, and sees every change while that begins, ends and begins elsewhere', async () => {
  await bothHave('things', [{ _id: -1 }])
  const before = two.source.latest
  const { verifier, hashed, sharedStream } = await verifierOf(['things'])
  let next = 0
  // On the source alone, so that each one missed is a difference that the verdict does not name.
  const insert = async (count: number): Promise<void> => {
    const rows = Array.from({ length: count }, (_, at) => ({ _id: next + at }))
    next += count
    await two.sourceClient.db('app').collection<Row>('things').insertMany(rows)
  }
  const run = verifier.run()
  await hashed
  await vi.waitFor(async () => expect(await ownStreams()).toBe(1), patience)
  await insert(10)
  // Begins earlier than the verifier, and repeats what the verifier has already read.
  const first = publishFrom(before, sharedStream)
  await vi.waitFor(async () => expect(await ownStreams()).toBe(0), patience)
  await insert(20)
  await vi.waitFor(() => expect(first.events.count).toBeGreaterThanOrEqual(20), patience)
  await first.end()
  await insert(30)
  await vi.waitFor(async () => expect(await ownStreams()).toBe(1), patience)
  // Begins later than the verifier's position may be, so that it has to catch up first.
  await insert(40)
  await appendOplogNote(two.source, 'test')
  const second = publishFrom(two.source.latest, sharedStream)
  await insert(50)
  await vi.waitFor(async () => expect(await ownStreams()).toBe(0), patience)
  await insert(60)
  const { total } = await verifier.settle()
  expect(total).toBe(next)
  await second.end()
  verifier.stop()
  await run
  // Nothing was resolved, so another process finds all of it after the stored position, or in the store.
  const successor = await verifierOf(['things'])
  const again = successor.verifier.run()
  expect((await successor.verifier.settle()).total).toBe(next)
  successor.verifier.stop()
  await again
})

it('begins without a stream of its own where application is behind, and goes on with one for a verdict', async () => {
  await bothHave('things', [{ _id: 1 }, { _id: 2 }])
  const sharedStream = new SharedStream()
  await appendOplogNote(two.source, 'test')
  const application = publishFrom(two.source.latest, sharedStream)
  const { verifier, hashed } = await verifierOf(['things'], sharedStream)
  const run = verifier.run()
  await hashed
  await vi.waitFor(() => expect(verifier.continues).toBe(true), patience)
  expect(await ownStreams()).toBe(0)
  await two.sourceClient.db('app').collection<Row>('things').deleteOne({ _id: 2 })
  await application.end()
  expect((await verifier.settle()).total).toBe(1)
  expect(await ownStreams()).toBe(1)
  verifier.stop()
  await run
})
