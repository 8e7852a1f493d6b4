import type { Timestamp } from 'mongodb'
import { expect, it, onTestFinished, vi } from 'vitest'
import { CopyEnds } from '../../src/apply/copy-ends.ts'
import { EventApplication, type EventApplicationParts } from '../../src/apply/event-application.ts'
import { Catalog, type CatalogEntry } from '../../src/domain/catalog.ts'
import type { ClusterTime } from '../../src/domain/cluster-time.ts'
import { deferred } from '../../src/domain/deferred.ts'
import { StoppedError } from '../../src/domain/errors.ts'
import { metadataDatabase } from '../../src/domain/namespace.ts'
import type { StreamPosition } from '../../src/mongo/change-stream.ts'
import { appendOplogNote } from '../../src/mongo/oplog-note.ts'
import { Selection } from '../../src/mongo/selection.ts'
import { SharedStream } from '../../src/mongo/shared-stream.ts'
import {
  clusters,
  createOnBoth,
  database,
  destination,
  idElements,
  numbered,
  source,
  useTwoClusters,
} from '../definitions/reconcile-fixture.ts'
import { failPoint, holdCopy } from '../support/fail-point.ts'
import { destinationName } from './two-clusters.ts'

/** Tests the order of the steps between the change stream and the destination, and when a position is stored. */

useTwoClusters()

interface Row {
  _id: number
}

const rows = (from: number, to: number): Row[] => Array.from({ length: to - from }, (_, at) => ({ _id: from + at }))
const things = () => source().collection<Row>('things')
const hidden = () => source().collection<Row>('hidden')
const applied = () => destination().collection('things').countDocuments()

async function now(): Promise<ClusterTime> {
  await appendOplogNote(clusters.source, 'test')
  return clusters.source.latest
}

/** Creates an event application for all later events of `things` and of the other entries. It calls `follow` for DDL. */
async function applicationOf(
  follow: () => Promise<void> = async () => {},
  options = {},
  others: CatalogEntry[] = [],
  parts: Partial<EventApplicationParts> = {},
): Promise<EventApplication> {
  await createOnBoth('things', options)
  const catalog = parts.catalog ?? new Catalog()
  for (const entry of [await clusters.entryOf(database, 'things'), ...others]) catalog.add(entry)
  const start: StreamPosition = { kind: 'time', time: (await now()) + 1n }
  const { metadata } = clusters
  await metadata.removePositions([0])
  return new EventApplication({
    source: clusters.source,
    metadata,
    catalog,
    documents: clusters.dependencies,
    context: clusters.context,
    partitions: new Map([[0, { epoch: 1, start }]]),
    partitionCount: 1,
    selection: new Selection(clusters.source, { includeNamespaces: null, excludeNamespaces: null }),
    sharedStream: new SharedStream(),
    follow,
    incompleteAfter: async () => [],
    converge: () => Promise.reject(new Error('a convergence is requested')),
    shared: false,
    isOnSource: async () => false,
    ...parts,
  })
}

it('DDL is applied when all earlier events, and no later ones, have been applied', async () => {
  const appliedAtFollow: number[] = []
  const application = await applicationOf(async () => {
    appliedAtFollow.push(await applied())
  })
  await things().insertMany(rows(0, 200))
  await things().createIndex({ n: 1 })
  await things().insertMany(rows(200, 300))
  await using held = await holdCopy(clusters.destinationClient, `${database}.things`)
  const run = application.run()
  await held.reached()
  await held.release()
  await vi.waitFor(async () => expect(await applied()).toBe(300), 20_000)
  application.drain()
  await run
  expect(appliedAtFollow).toEqual([200])
})

it('an event of an unknown kind fails the run with the name of the kind, and no stored position is after that event', async () => {
  const application = await applicationOf()
  const { source: cluster, metadata } = clusters
  await things().insertMany(rows(0, 3))
  await things().replaceOne({ _id: 1 }, { n: 1 })
  const unknown = await now()
  const read = cluster.read.bind(cluster)
  // No current server release sends an unknown kind, so the test gives a replace event another name of equal length.
  const renamed = vi.spyOn(cluster, 'read').mockImplementation(async (...asked) => {
    const reply = await read(...asked)
    const events = (reply['cursor']?.nextBatch ?? reply['cursor']?.firstBatch ?? []) as unknown[]
    for (const event of events) {
      if (!Buffer.isBuffer(event)) continue
      const at = event.indexOf('replace\0')
      if (at >= 0) event.write('mystery', at)
    }
    return reply
  })
  onTestFinished(() => renamed.mockRestore())
  await expect(application.run()).rejects.toMatchObject({
    failure: 'UnsupportedChange',
    message: expect.stringContaining(`"mystery" on ${database}.things`),
  })
  expect((await metadata.loadPosition(0))?.time).toBeLessThan(unknown)
})

it('an event of an unknown collection that exists on the source requests its convergence, and no stored position is after that event', async () => {
  const requested: string[] = []
  const converge = async (collections: ReadonlyMap<string, string>, stopped: AbortSignal): Promise<never> => {
    requested.push(...collections.values())
    await new Promise((resolve) => stopped.addEventListener('abort', resolve, { once: true }))
    throw new StoppedError()
  }
  const application = await applicationOf(undefined, {}, [], { isOnSource: async () => true, converge })
  await things().insertMany(rows(0, 3))
  const before = await now()
  await source().collection('reappeared').insertOne({})
  const run = application.run()
  await vi.waitFor(() => expect(requested).toEqual([`${database}.reappeared`]), 20_000)
  application.drain()
  await run
  expect(requested).toHaveLength(1)
  expect(await applied()).toBe(3)
  expect((await clusters.metadata.loadPosition(0))?.time).toBeLessThanOrEqual(before)
})

it('the stored position covers applied events only, not all events that were read', async () => {
  const application = await applicationOf()
  const { source: cluster, metadata } = clusters
  await things().insertMany(rows(0, 50))
  const written = await now()
  const reads = vi.spyOn(cluster, 'read')
  onTestFinished(() => reads.mockRestore())
  const getMores = () => reads.mock.calls.filter(([, command]) => 'getMore' in command).length
  await using held = await holdCopy(clusters.destinationClient, `${database}.things`)
  const run = application.run()
  await held.reached()
  const before = getMores()
  // On an idle source each getMore takes half a second, so tandem had time to store positions.
  await vi.waitFor(() => expect(getMores()).toBeGreaterThan(before + 4), 20_000)
  expect((await metadata.loadPosition(0))?.time).toBeLessThan(written)
  expect(application.appliedTime).toBeLessThan(written)
  await held.release()
  await vi.waitFor(async () => expect((await metadata.loadPosition(0))?.time).toBeGreaterThanOrEqual(written), 20_000)
  expect(await applied()).toBe(50)
  application.drain()
  await run
})

it('while a position is being stored, later ones do not wait in a queue', async () => {
  const { source: cluster, metadata } = clusters
  const store = metadata.savePositions.bind(metadata)
  const slow = deferred<void>()
  const stored = vi.spyOn(metadata, 'savePositions').mockImplementation(async (...position) => {
    // The first position is that of the start of the run.
    if (stored.mock.calls.length > 1) await slow.promise
    await store(...position)
  })
  const reads = vi.spyOn(cluster, 'read')
  onTestFinished(() => {
    stored.mockRestore()
    reads.mockRestore()
  })
  const application = await applicationOf()
  const run = application.run()
  await now()
  await vi.waitFor(() => expect(stored).toHaveBeenCalledTimes(2), 20_000)
  const getMores = () => reads.mock.calls.filter(([, command]) => 'getMore' in command).length
  const before = getMores()
  // On an idle source each getMore takes half a second, so tandem had time to store several positions.
  await vi.waitFor(async () => {
    await now()
    expect(getMores()).toBeGreaterThan(before + 6)
  }, 20_000)
  expect(stored).toHaveBeenCalledTimes(2)
  slow.resolve()
  application.drain()
  await run
  expect(stored).toHaveBeenCalledTimes(3)
  expect((await metadata.loadPosition(0))?.time).toBe(application.appliedTime)
})

// Changes under the excluded name have no events. The rename back to the selected name has an event, but that event is older
// than the convergence, so it requests no other convergence.
it.each<[string, Row[], () => Promise<unknown>, () => Promise<unknown>]>([
  ['lost', rows(1, 2), () => things().deleteOne({ _id: 1 }), () => hidden().insertOne({ _id: 1 })],
  ['resurrected', rows(2, 3), () => things().insertOne({ _id: 1 }), () => hidden().deleteOne({ _id: 1 })],
  [
    'left old',
    rows(1, 2),
    () => things().replaceOne({ _id: 1 }, { n: 1 }),
    () => hidden().updateOne({ _id: 1 }, { $set: { n: 2 } }),
  ],
])('no document is %s by an event that is older than the last convergence of its collection', async (...tried) => {
  const [, before, selected, excluded] = tried
  const filter = { includeNamespaces: [{ database, collections: ['things'] }], excludeNamespaces: null }
  const catalog = new Catalog()
  const selection = new Selection(clusters.source, filter)
  const application = await applicationOf(undefined, {}, [], { catalog, selection })
  const [entry] = catalog.entries() as [CatalogEntry]
  await things().insertMany(before)
  await selected()
  await things().rename('hidden')
  await excluded()
  await hidden().rename('things')
  entry.convergedFrom = await now()
  await destination()
    .collection<Row>('things')
    .insertMany(await things().find().toArray())
  const reads = vi.spyOn(clusters.source, 'read')
  onTestFinished(() => reads.mockRestore())
  application.drainTo(await now())
  const run = application.run()
  await now()
  await run
  const finds = reads.mock.calls.map(([, command]) => command).filter((command) => 'find' in command)
  const asOf = finds.map(({ readConcern }) => (readConcern.afterClusterTime as Timestamp).toBigInt())
  await clusters.expectEqual(database)
  expect(new Set(asOf)).toEqual(new Set([entry.convergedFrom]))
})

it('a drain to the time of a transaction of many batches applies the whole transaction', async () => {
  const application = await applicationOf()
  const count = 7_000
  const session = clusters.sourceClient.startSession()
  await session.withTransaction(async () => {
    await things().insertMany(rows(0, count), { session })
  })
  await session.endSession()
  const oplog = clusters.sourceClient.db('local').collection('oplog.rs')
  const committed = await oplog
    .find({ op: 'c', 'o.applyOps.ns': `${database}.things` })
    .sort({ $natural: -1 })
    .toArray()
  const { ts } = committed[0] as unknown as { ts: { toBigInt(): bigint } }
  application.drainTo(ts.toBigInt())
  const run = application.run()
  // Only with a later oplog entry does the position of the stream pass that time.
  await now()
  await run
  expect(await applied()).toBe(count)
})

it('under a collation, a slow delete of one spelling of an _id is not applied after the insert of another spelling', async () => {
  const application = await applicationOf(undefined, { collation: { locale: 'en', strength: 2 } })
  const words = source().collection<{ _id: string }>('things')
  const ids = Array.from({ length: 30 }, (_, at) => `word-${at}`)
  await words.insertMany(ids.map((_id) => ({ _id })))
  const run = application.run()
  await vi.waitFor(async () => expect(await applied()).toBe(30), 20_000)
  const slow = { failCommands: ['delete'], appName: destinationName, blockConnection: true, blockTimeMS: 1_500 }
  await using _ = await failPoint(clusters.destinationClient, 'failCommand', slow, { times: 4 })
  for (const _id of ids) {
    await words.deleteOne({ _id })
    await words.insertOne({ _id: _id.toUpperCase() })
  }
  application.drainTo(await now())
  await now()
  await run
  await clusters.expectEqual(database)
})

it('tombstones of a collection are reconciled in turns, and events are applied in between', async () => {
  const { source: cluster, metadata } = clusters
  const [count, ofFirstTurn] = [11_000, 10_000]
  await createOnBoth('many')
  await source().collection<Row>('many').insertMany(rows(0, count))
  const entry = { ...(await clusters.entryOf(database, 'many', 'copying')), totalCopied: null, hasTombstones: true }
  await metadata.createIndexes()
  await metadata.collections.save([entry])
  const tombstones = idElements(numbered(0, count)).map((idElement, order) => ({ idElement, order, reorder: false }))
  await metadata.tombstones.add(entry.uuid, tombstones)
  const application = await applicationOf(undefined, {}, [entry])

  const received = deferred<void>()
  const readCluster = cluster.read.bind(cluster)
  const reads = vi.spyOn(cluster, 'read').mockImplementation(async (...asked) => {
    const reply = await readCluster(...asked)
    // If the stream is opened late, the reply that opens it already has the event.
    const isOfStream = asked[1]['aggregate'] === 1 || String(asked[1]['collection']).startsWith('$cmd.aggregate')
    const { nextBatch, firstBatch = nextBatch } = reply['cursor'] ?? {}
    if (isOfStream && firstBatch?.length > 0) received.resolve()
    return reply
  })
  onTestFinished(() => reads.mockRestore())
  const atSecondTurn: unknown[] = []
  const readTombstones = metadata.tombstones.read.bind(metadata.tombstones)
  const pages = vi.spyOn(metadata.tombstones, 'read').mockImplementation(async (uuid, after, ...rest) => {
    if (after === null) {
      await things().insertOne({ _id: 1 })
      await received.promise
    }
    if (after?.order === ofFirstTurn - 1) atSecondTurn.push(await applied(), entry.state)
    return await readTombstones(uuid, after, ...rest)
  })
  onTestFinished(() => pages.mockRestore())
  const run = application.run()
  await vi.waitFor(() => expect(reads).toHaveBeenCalled())
  await application.copyEnded(entry)
  expect(atSecondTurn).toEqual([1, 'copying'])
  expect([entry.state, await destination().collection('many').countDocuments()]).toEqual(['copied', count])
  application.drain()
  await run
})

it('events are applied while the tombstones of an ended copy are removed, and the next run continues the removal', async () => {
  const { metadata } = clusters
  await createOnBoth('many')
  const entry = { ...(await clusters.entryOf(database, 'many', 'copying')), totalCopied: null, hasTombstones: true }
  await metadata.createIndexes()
  await metadata.collections.save([entry])
  const tombstones = idElements(numbered(0, 1_200)).map((idElement, order) => ({ idElement, order, reorder: false }))
  await metadata.tombstones.add(entry.uuid, tombstones)
  const left = () => clusters.destinationClient.db(metadataDatabase).collection('tombstones').countDocuments()
  const [reached, removing] = [deferred<void>(), deferred<void>()]
  const write = clusters.destination.write.bind(clusters.destination)
  const writes = vi.spyOn(clusters.destination, 'write').mockImplementation(async (...asked) => {
    if (asked[1]['delete'] === 'tombstones') {
      reached.resolve()
      await removing.promise
    }
    return await write(...asked)
  })
  const close = vi.spyOn(CopyEnds.prototype, 'close')
  onTestFinished(() => {
    writes.mockRestore()
    close.mockRestore()
  })
  const application = await applicationOf(undefined, {}, [entry])
  const run = application.run()
  const ended = application.copyEnded(entry).catch((error: unknown) => error)
  await reached.promise
  expect(entry.state).toBe('copied')
  await things().insertMany(rows(0, 10))
  await vi.waitFor(async () => expect(await applied()).toBe(10), 20_000)
  application.drain()
  // The end of the run stops the removal, but waits until this page is removed. The other pages remain.
  await vi.waitFor(() => expect(close).toHaveBeenCalled(), 20_000)
  removing.resolve()
  await run
  expect(await ended).toBeInstanceOf(StoppedError)
  expect(await left()).toBe(700)
  writes.mockRestore()
  for (const client of [source(), destination()]) await client.dropCollection('things')
  const next = await applicationOf(undefined, {}, [entry])
  const nextRun = next.run()
  await next.copyEnded(entry)
  expect([await left(), entry.hasTombstones]).toEqual([0, false])
  next.drain()
  await nextRun
})
