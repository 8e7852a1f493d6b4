import { Int32, Long } from 'mongodb'
import { afterAll, beforeAll, beforeEach, describe, expect, it, onTestFinished, vi } from 'vitest'
import { copySegment } from '../../src/copy/copy-segment.ts'
import { SegmentProgress } from '../../src/copy/segment-progress.ts'
import { idElementOf, idOf } from '../../src/documents/identity.ts'
import type { CatalogueEntry, Segment } from '../../src/domain/catalogue.ts'
import type { TypedValue } from '../../src/domain/raw-bson.ts'
import { appendOplogNote } from '../../src/mongo/oplog-note.ts'
import { rawSequence } from '../../src/mongo/raw-values.ts'
import { Throttle } from '../../src/throttle/throttle.ts'
import { sourceName, TwoClusters } from '../apply/two-clusters.ts'
import { idOfEveryType, insertRaw, nastyDocument, nested, rawDocument } from '../support/bson-values.ts'
import { failPoint } from '../support/fail-point.ts'
import { Random } from '../support/random.ts'

let clusters: TwoClusters
let database: string
let count = 0

beforeAll(async () => {
  clusters = await TwoClusters.start()
})

beforeEach(() => {
  database = `app${count++}`
})

afterAll(async () => {
  await clusters.stop()
})

const source = () => clusters.sourceClient.db(database)
const destination = () => clusters.destinationClient.db(database)

const segmentOf = (entry: CatalogueEntry, from: TypedValue | null, to: TypedValue | null, ordinal = 0): Segment => ({
  collection: entry.uuid,
  ordinal,
  rank: 0,
  from,
  to,
  last: null,
  done: false,
  documents: 0,
  bytes: 0,
  wasOwn: false,
  claim: 0,
  attempts: 0,
})

const owner = 'copier#1'
let claims = 0

/** Called when a batch has been written. */
let onWritten = (): void => {}

async function copy(entry: CatalogueEntry, ...segments: Segment[]): Promise<void> {
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
    reload: async () => {},
  }
  const progressed = (bytes: number): void => {
    entry.copiedBytes += bytes
  }
  for (const segment of segments) await copySegment({ ...parts, progressed }, entry, segment)
  await progress.close()
}

/** A collection on both, with documents under `_id`s of every type on the source, which are returned in index order. */
async function filled(name: string, options = {}): Promise<{ entry: CatalogueEntry; documents: Buffer[] }> {
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

describe('a copy', () => {
  it.each([
    ['plain', {}],
    ['collated', { collation: { locale: 'en', strength: 2 } }],
    ['clustered', { clusteredIndex: { key: { _id: 1 }, unique: true } }],
  ])('of a %s collection is whole, wherever it is cut and in whatever order', async (name, options) => {
    const { entry, documents } = await filled(name, options)
    const random = new Random(`cuts of ${name}`)
    for (let round = 0; round < 4; round++) {
      await destination().collection(name).deleteMany({})
      const places = new Set(Array.from({ length: round * 2 }, () => random.int(1, documents.length - 2)))
      const cuts = [...places].sort((one, other) => one - other).map((at) => idAt(documents, at))
      const segments = [null, ...cuts].map((from, at) => segmentOf(entry, from, cuts[at] ?? null, at))
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

  it.each([
    ['plain', {}],
    ['clustered', { clusteredIndex: { key: { _id: 1 }, unique: true } }],
  ])('of a %s collection takes a document for copied only where its _id stands', async (_, options) => {
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

  it('asks where a duplicate key does not say of which index, and skips nothing that stands nowhere', async () => {
    await Promise.all([source(), destination()].map((db) => db.createCollection('c')))
    await destination().collection('c').createIndex({ foreign: 1 }, { unique: true })
    const documents = [1, 2, 3].map((_id) => ({ _id: new Int32(_id), foreign: _id === 3 ? 3 : 1 }))
    await source().collection<{ _id: Int32 }>('c').insertMany(documents)
    await destination()
      .collection<{ _id: Int32 }>('c')
      .insertOne(documents[0] as { _id: Int32 })
    const entry = await clusters.entryOf(database, 'c', 'copying')
    const write = clusters.destination.write.bind(clusters.destination)
    const silent = vi.spyOn(clusters.destination, 'write').mockImplementation(async (...asked) => {
      const reply = await write(...asked)
      for (const error of reply['writeErrors'] ?? []) delete error.keyPattern
      return reply
    })
    onTestFinished(() => silent.mockRestore())
    await copy(entry, segmentOf(entry, null, null))
    const recorded = await clusters.metadata.tombstones.read(entry.uuid, null, 10)
    expect(recorded.map(({ idElement }) => idElement.at(-4))).toEqual([2])
  })

  it('goes on after the last _id that was acknowledged, whichever it is', async () => {
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

  it('is done when it was left at the greatest _id there is', async () => {
    const { entry, documents } = await filled('c')
    await insertRaw(destination(), 'c', documents)
    const last = idAt(documents, documents.length - 1)
    expect(last).toEqual(Buffer.from([0x7f]))
    const segment = { ...segmentOf(entry, null, null), last, documents: documents.length }
    await copy(entry, segment)
    await clusters.expectEqual(database)
    expect([segment.done, segment.documents]).toEqual([true, documents.length])
  })

  it('leaves alone what an event has written before it', async () => {
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
    // Nor is it a document that is refused, which would be looked at again.
    expect(entry.hasTombstones).toBe(false)
  })

  it('keeps the order of a capped collection, also when it is begun again', async () => {
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
    'is no longer retrying once a batch has come through: %o',
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

  it('of a collection renamed on the source is read where it is now', async () => {
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
  ])('whose cursor dies of error %i, %s, reads on and is whole', async (errorCode, _name, options) => {
    await Promise.all([source(), destination()].map((db) => db.createCollection('c', options)))
    const documents = Array.from({ length: 1_000 }, (_, id) => rawDocument([['_id', id]]))
    await insertRaw(source(), 'c', documents)
    const entry = await clusters.entryOf(database, 'c', 'copying')
    const data = { failCommands: ['getMore'], appName: sourceName, errorCode, namespace: `${database}.c` }
    await using _ = await failPoint(clusters.sourceClient, 'failCommand', data, { times: 2 })
    const segment = segmentOf(entry, null, null)
    await copy(entry, segment)
    await clusters.expectEqual(database)
    // Opened anew twice; what had been written before was neither written nor counted again.
    expect(segment).toMatchObject({ done: true, attempts: 3, documents: 1_000 })
    expect(entry.copiedBytes).toBe(segment.bytes)
  })

  it('records what an index refuses, to look at it again at the end', async () => {
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
