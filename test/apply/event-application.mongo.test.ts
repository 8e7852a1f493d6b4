import { expect, it, onTestFinished, vi } from 'vitest'
import { EventApplication } from '../../src/apply/event-application.ts'
import { Catalogue } from '../../src/domain/catalogue.ts'
import type { ClusterTime } from '../../src/domain/cluster-time.ts'
import type { StreamPosition } from '../../src/mongo/change-stream.ts'
import { appendOplogNote } from '../../src/mongo/oplog-note.ts'
import { Selection } from '../../src/mongo/selection.ts'
import { SharedStream } from '../../src/mongo/shared-stream.ts'
import { clusters, createOnBoth, database, destination, source } from '../definitions/reconcile-fixture.ts'
import { failPoint, holdCopy } from '../support/fail-point.ts'
import { destinationName } from './two-clusters.ts'

/** Events on their way from the stream to the destination: what waits for what, and what is stored when. */

interface Row {
  _id: number
}

const rows = (from: number, to: number): Row[] => Array.from({ length: to - from }, (_, at) => ({ _id: from + at }))
const things = () => source().collection<Row>('things')
const applied = () => destination().collection('things').countDocuments()

async function now(): Promise<ClusterTime> {
  await appendOplogNote(clusters.source, 'test')
  return clusters.source.latest
}

/** An application of all events of `things` from here on, whose changes of definitions are followed by `follow`. */
async function applicationOf(follow: () => Promise<void> = async () => {}, options = {}): Promise<EventApplication> {
  await createOnBoth('things', options)
  const catalogue = new Catalogue()
  catalogue.add(await clusters.entryOf(database, 'things'))
  const start: StreamPosition = { kind: 'time', time: (await now()) + 1n }
  const { metadata } = clusters
  await metadata.removePositions([0])
  return new EventApplication({
    source: clusters.source,
    metadata,
    catalogue,
    documents: clusters.dependencies,
    context: clusters.context,
    partitions: new Map([[0, { epoch: 1, start }]]),
    partitionCount: 1,
    selection: new Selection(clusters.source, { includeNamespaces: null, excludeNamespaces: null }),
    sharedStream: new SharedStream(),
    follow,
    refuse: async () => {},
    shared: false,
    isOnSource: async () => false,
  })
}

it('a change of definitions is followed when all before it is applied, and nothing of what comes after it', async () => {
  const seen: number[] = []
  const application = await applicationOf(async () => {
    seen.push(await applied())
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
  expect(seen).toEqual([200])
})

it('an event of an unknown kind ends in a failure with its name, and no position passes it', async () => {
  const application = await applicationOf()
  const { source: cluster, metadata } = clusters
  await things().insertMany(rows(0, 3))
  await things().replaceOne({ _id: 1 }, { n: 1 })
  const unknown = await now()
  const read = cluster.read.bind(cluster)
  // No release of today sends one, so a replacement is given another name of the same length.
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

it('a position is stored of what is applied, not of what is read', async () => {
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
  // Each waits for half a second on a quiet source, so positions could have been stored meanwhile.
  await vi.waitFor(() => expect(getMores()).toBeGreaterThan(before + 4), 20_000)
  expect((await metadata.loadPosition(0))?.time).toBeLessThan(written)
  expect(application.appliedTime).toBeLessThan(written)
  await held.release()
  await vi.waitFor(async () => expect((await metadata.loadPosition(0))?.time).toBeGreaterThanOrEqual(written), 20_000)
  expect(await applied()).toBe(50)
  application.drain()
  await run
})

it('drained to a time that a transaction of many batches has, all of it is applied', async () => {
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
  // Beyond it comes something, so that the stream can pass it.
  await now()
  await run
  expect(await applied()).toBe(count)
})

it('under a collation a delete of one spelling does not come after the insert of another, however slow it is', async () => {
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
