import { Int32, Long, MaxKey } from 'mongodb'
import { describe, expect, it, onTestFinished, vi } from 'vitest'
import { copySegment } from '../../src/copy/copy-segment.ts'
import { SegmentProgress } from '../../src/copy/segment-progress.ts'
import { idElementOf, idOf } from '../../src/documents/identity.ts'
import type { CatalogEntry, Segment } from '../../src/domain/catalog.ts'
import { appendOplogNote } from '../../src/mongo/oplog-note.ts'
import { rawSequence } from '../../src/mongo/raw-values.ts'
import { Throttle } from '../../src/throttle/throttle.ts'
import { sourceName } from '../apply/two-clusters.ts'
import { clusters, database, destination, source, useTwoClusters } from '../definitions/reconcile-fixture.ts'
import { idOfEveryType, insertRaw, nastyDocument, nested, rawDocument } from '../support/bson-values.ts'
import { failPoint } from '../support/fail-point.ts'
import { Random } from '../support/random.ts'
import { owner, segmentOf } from './segment-fixture.ts'

useTwoClusters()

let claims = 0

/** Called when a batch has been written. */
let onWritten = (): void => {}

async function copy(entry: CatalogEntry, ...segments: Segment[]): Promise<void> {
  await appendOplogNote(clusters.source, 'test')
  await clusters.metadata.segments.plan(segments)
  await clusters.metadata.segments.open(segments.map(({ collection }) => collection))
  const claimed = await clusters.metadata.segments.claim(owner, ++claims, segments.length, () => false)
  expect(claimed).toHaveLength(segments.length)
  for (const segment of segments) segment.claim = claims
  const progress = new SegmentProgress(clusters.metadata.segments, owner)
  const parts = {
    source: clusters.source,
    destination: clusters.destination,
    metadata: clusters.metadata,
    progress,
    throttle: new Throttle(3),
    context: clusters.context,
    startTime: clusters.source.latest,
    nextOrder: clusters.dependencies.nextOrder,
    isKnown: () => {
      onWritten()
      return true
    },
    locate: async () => true,
  }
  const progressed = (bytes: number): void => {
    entry.copiedBytes += bytes
  }
  for (const segment of segments) await copySegment({ ...parts, progressed }, entry, segment)
  await progress.close()
}

/** Creates a collection on both clusters, and documents with `_id`s of every type on the source, in index order. */
async function filled(name: string, options = {}): Promise<{ entry: CatalogEntry; documents: Buffer[] }> {
  const random = new Random(name)
  await Promise.all([source(), destination()].map((db) => db.createCollection(name, options)))
  const ids = [
    ...Array.from({ length: 3 }, () => idOfEveryType.map((make) => make(random))).flat(),
    ...Array.from({ length: 40 }, () => random.pick([random.int(-50, 50), random.word(3), Long.fromInt(3)])),
    nested([['k', 1]]),
  ]
  const documents = ids.map((id) => nastyDocument(random, id))
  await source().command({ insert: name, documents: rawSequence('documents', documents), ordered: false })
  const read = await source().collection(name).find({}, { raw: true }).sort({ _id: 1 }).toArray()
  const stored = read.map((document) => Buffer.from(document as unknown as Uint8Array))
  expect(stored.length).toBeGreaterThan(60)
  return { entry: await clusters.entryOf(database, name, 'copying'), documents: stored }
}

const idAt = (documents: Buffer[], at: number) => idOf(idElementOf(documents[at] as Buffer))

describe('copySegment', () => {
  it.each([
    ['plain', {}],
    ['collated', { collation: { locale: 'en', strength: 2 } }],
    ['clustered', { clusteredIndex: { key: { _id: 1 }, unique: true } }],
  ])('copies a %s collection completely for any split points and any order of segments', async (name, options) => {
    const { entry, documents } = await filled(name, options)
    const random = new Random(`cuts of ${name}`)
    for (let round = 0; round < 4; round++) {
      await destination().collection(name).deleteMany({})
      const places = new Set(Array.from({ length: round * 2 }, () => random.int(1, documents.length - 2)))
      const splits = [...places].sort((one, other) => one - other).map((at) => idAt(documents, at))
      const segments = [null, ...splits].map((from, at) => segmentOf(entry, from, splits[at] ?? null, at))
      await copy(entry, ...random.shuffle(segments))
      await clusters.expectEqual(database)
      expect(segments.map(({ done }) => done)).toEqual(segments.map(() => true))
      expect(segments.reduce((sum, segment) => sum + segment.documents, 0)).toBe(documents.length)
      expect((await clusters.metadata.segments.load([entry.uuid])).get(entry.uuid)).toEqual(
        [...segments].sort((one, other) => one.ordinal - other.ordinal),
      )
      await clusters.metadata.segments.remove([entry.uuid])
    }
  })

  it('reads a small collection in one reply if the size of its documents is known, and in several otherwise', async () => {
    await Promise.all([source(), destination()].map((db) => db.createCollection('c')))
    await source()
      .collection<{ _id: number }>('c')
      .insertMany(Array.from({ length: 1_000 }, (_, _id) => ({ _id })))
    const entry = await clusters.entryOf(database, 'c', 'copying')
    const repliesOfCopy = async (): Promise<number> => {
      const reads = vi.spyOn(clusters.source, 'read')
      await copy(entry, segmentOf(entry, null, null))
      const replies = reads.mock.calls.filter(([, command]) => command['find'] === 'c' || command['getMore']).length
      reads.mockRestore()
      await clusters.expectEqual(database)
      await clusters.metadata.segments.remove([entry.uuid])
      await destination().collection('c').deleteMany({})
      return replies
    }
    expect(await repliesOfCopy()).toBeGreaterThan(1)
    Object.assign(entry, { estimatedDocuments: 1_000, estimatedBytes: 14_000 })
    expect(await repliesOfCopy()).toBe(1)
  })

  it.each([
    ['plain', {}],
    ['clustered', { clusteredIndex: { key: { _id: 1 }, unique: true } }],
  ])('ignores a duplicate key in a %s collection only if the _id exists on the destination', async (_, options) => {
    await Promise.all([source(), destination()].map((db) => db.createCollection('c', options)))
    await destination().collection('c').createIndex({ foreign: 1 }, { unique: true })
    const documents = [1, 2, 3].map((_id) => ({ _id: new Int32(_id), foreign: _id === 3 ? 3 : 1 }))
    await source().collection<{ _id: Int32 }>('c').insertMany(documents)
    await destination()
      .collection<{ _id: Int32 }>('c')
      .insertOne(documents[0] as { _id: Int32 })
    const entry = await clusters.entryOf(database, 'c', 'copying')
    await copy(entry, segmentOf(entry, null, null))
    const recorded = await clusters.metadata.tombstones.read(entry.uuid, null, 10)
    expect(recorded.map(({ idElement }) => idElement.at(-4))).toEqual([2])
    expect(entry.hasTombstones).toBe(true)
  })

  it('reads the destination when a duplicate key error does not name its index, and records a document that is not there', async () => {
    await Promise.all([source(), destination()].map((db) => db.createCollection('c')))
    await destination().collection('c').createIndex({ foreign: 1 }, { unique: true })
    const documents = [1, 2, 3].map((_id) => ({ _id: new Int32(_id), foreign: _id === 3 ? 3 : 1 }))
    await source().collection<{ _id: Int32 }>('c').insertMany(documents)
    await destination()
      .collection<{ _id: Int32 }>('c')
      .insertOne(documents[0] as { _id: Int32 })
    const entry = await clusters.entryOf(database, 'c', 'copying')
    const write = clusters.destination.write.bind(clusters.destination)
    const withoutKeyPattern = vi.spyOn(clusters.destination, 'write').mockImplementation(async (...asked) => {
      const reply = await write(...asked)
      for (const error of reply['writeErrors'] ?? []) delete error.keyPattern
      return reply
    })
    onTestFinished(() => withoutKeyPattern.mockRestore())
    await copy(entry, segmentOf(entry, null, null))
    const recorded = await clusters.metadata.tombstones.read(entry.uuid, null, 10)
    expect(recorded.map(({ idElement }) => idElement.at(-4))).toEqual([2])
  })

  it.each(['inside the range', 'MaxKey'])(
    'from a sharded source to a replica set, records a document whose _id an event has already written (%s)',
    async (where) => {
      // If two shards have the same _id, the document of the event may be another one, so tandem must not treat them as the same document.
      const _id = where === 'MaxKey' ? new MaxKey() : new Int32(2)
      await Promise.all([source(), destination()].map((db) => db.createCollection('c')))
      await source()
        .collection<{ _id: unknown; k: number }>('c')
        .insertMany([
          { _id: new Int32(1), k: 1 },
          { _id, k: 1 },
        ])
      await destination().collection<{ _id: unknown; k: number }>('c').insertOne({ _id, k: 2 })
      const entry = await clusters.entryOf(database, 'c', 'copying')
      clusters.source.idsMayRepeat = true
      onTestFinished(() => {
        clusters.source.idsMayRepeat = false
      })
      await copy(entry, segmentOf(entry, null, null))
      const recorded = await clusters.metadata.tombstones.read(entry.uuid, null, 10)
      expect(recorded.map(({ idElement }) => idElement)).toEqual([idElementOf(rawDocument([['_id', _id]]))])
    },
  )

  it('continues after the last acknowledged _id of any type', async () => {
    const { entry, documents } = await filled('c')
    const last = documents.length - 1
    for (const at of [0, 1, 9, 20, last >> 1, last - 1]) {
      await destination().collection('c').deleteMany({})
      await insertRaw(destination(), 'c', documents.slice(0, at + 1))
      const segment = { ...segmentOf(entry, null, null), last: idAt(documents, at), documents: at + 1 }
      await copy(entry, segment)
      await clusters.expectEqual(database)
      expect([segment.done, segment.documents], `after number ${at}`).toEqual([true, documents.length])
    }
  })

  it('is done when the last acknowledged _id is MaxKey, the greatest one', async () => {
    const { entry, documents } = await filled('c')
    await insertRaw(destination(), 'c', documents)
    const last = idAt(documents, documents.length - 1)
    expect(last).toEqual(Buffer.from([0x7f]))
    const segment = { ...segmentOf(entry, null, null), last, documents: documents.length }
    await copy(entry, segment)
    await clusters.expectEqual(database)
    expect([segment.done, segment.documents]).toEqual([true, documents.length])
  })

  it('does not overwrite a document that an event has written', async () => {
    await Promise.all([source(), destination()].map((db) => db.createCollection('c')))
    const [older, newer] = ['older', 'newer'].map((v) =>
      rawDocument([
        ['_id', 1],
        ['v', v],
      ]),
    ) as [Buffer, Buffer]
    await insertRaw(source(), 'c', [older])
    await insertRaw(destination(), 'c', [newer])
    const entry = await clusters.entryOf(database, 'c', 'copying')
    await copy(entry, segmentOf(entry, null, null))
    expect(await destination().collection('c').findOne()).toEqual({ _id: 1, v: 'newer' })
    // The document does not count as refused, so it is not reconciled at the end of the copy.
    expect(entry.hasTombstones).toBe(false)
  })

  it('keeps the order of a capped collection, also when the copy starts again', async () => {
    await Promise.all([source(), destination()].map((db) => db.createCollection('c', { capped: true, size: 100_000 })))
    const documents = [5, 3, 9, 1, 7].map((id) => rawDocument([['_id', id]]))
    await insertRaw(source(), 'c', documents)
    await insertRaw(destination(), 'c', documents.slice(0, 2))
    const entry = await clusters.entryOf(database, 'c', 'copying')
    const segment = segmentOf(entry, null, null)
    await copy(entry, segment)
    await clusters.expectEqual(database)
    expect(segment).toMatchObject({ done: true, documents: 5, last: null })
  })

  it.each([{}, { capped: true, size: 100_000_000 }])(
    'the copy is not shown as retrying after a batch has been read: %o',
    async (options) => {
      await Promise.all([source(), destination()].map((db) => db.createCollection('c', options)))
      const megabytes = 'x'.repeat(2_000_000)
      await source()
        .collection<{ _id: number; x: string }>('c')
        .insertMany(Array.from({ length: 12 }, (_, _id) => ({ _id, x: megabytes })))
      const entry = await clusters.entryOf(database, 'c', 'copying')
      const shown: (string | undefined)[] = []
      onWritten = () => void shown.push(clusters.context.monitor.current?.what)
      onTestFinished(() => {
        onWritten = () => {}
      })
      const fault = { failCommands: ['getMore'], errorCode: 91, appName: sourceName }
      await using _fault = await failPoint(clusters.sourceClient, 'failCommand', fault, { times: 1 })
      const before = clusters.context.retried.length
      await copy(entry, segmentOf(entry, null, null))
      expect(clusters.context.retried.slice(before).map(({ what }) => what)).toEqual([`copying ${database}.c`])
      expect(shown.length).toBeGreaterThan(1)
      expect(shown.filter((what) => what !== undefined)).toEqual([])
      await clusters.expectEqual(database)
    },
  )

  it('reads a collection under its new name after a rename on the source', async () => {
    const { entry } = await filled('c')
    await source().collection('c').rename('d')
    await copy(entry, segmentOf(entry, null, null))
    expect(entry.sourceName).toBe('d')
    await destination().collection('c').rename('d')
    await clusters.expectEqual(database)
  })

  it.each([
    [43, 'CursorNotFound', {}],
    [50, 'MaxTimeMSExpired', {}],
    [175, 'QueryPlanKilled', {}],
    [136, 'CappedPositionLost', { capped: true, size: 10_000_000 }],
  ])('copies a collection completely when its cursor fails with error %i, %s', async (errorCode, _name, options) => {
    await Promise.all([source(), destination()].map((db) => db.createCollection('c', options)))
    const documents = Array.from({ length: 1_000 }, (_, id) => rawDocument([['_id', id]]))
    await insertRaw(source(), 'c', documents)
    const entry = await clusters.entryOf(database, 'c', 'copying')
    const data = { failCommands: ['getMore'], appName: sourceName, errorCode, namespace: `${database}.c` }
    await using _ = await failPoint(clusters.sourceClient, 'failCommand', data, { times: 2 })
    const segment = segmentOf(entry, null, null)
    await copy(entry, segment)
    await clusters.expectEqual(database)
    // The cursor was opened twice more. Documents that were already written were not written or counted again.
    expect(segment).toMatchObject({ done: true, attempts: 3, documents: 1_000 })
    expect(entry.copiedBytes).toBe(segment.bytes)
  })

  it('records documents that an index refuses, so that they are reconciled at the end of the copy', async () => {
    await Promise.all([source(), destination()].map((db) => db.createCollection('c')))
    await destination().collection('c').createIndex({ place: '2dsphere' })
    const documents = ['nowhere', null, 'elsewhere'].map((place, id) =>
      rawDocument([
        ['_id', id],
        ['place', place],
      ]),
    )
    await insertRaw(source(), 'c', documents)
    const entry = await clusters.entryOf(database, 'c', 'copying')
    await copy(entry, segmentOf(entry, null, null))
    expect(await destination().collection('c').countDocuments()).toBe(1)
    expect(entry.hasTombstones).toBe(true)
    const recorded = await clusters.metadata.tombstones.read(entry.uuid, null, 10)
    expect(recorded.map(({ idElement }) => idElement)).toEqual([0, 2].map((at) => idElementOf(documents[at] as Buffer)))
  })
})
