import { describe, expect, it } from 'vitest'
import { CopyEnds } from '../../src/apply/copy-ends.ts'
import { convergeSegment } from '../../src/copy/converge-segment.ts'
import { SegmentProgress } from '../../src/copy/segment-progress.ts'
import { idElementOf, idOf } from '../../src/documents/identity.ts'
import { Catalog, type CatalogEntry, type Segment } from '../../src/domain/catalog.ts'
import { appendOplogNote } from '../../src/mongo/oplog-note.ts'
import { rawSequence } from '../../src/mongo/raw-values.ts'
import { Throttle } from '../../src/throttle/throttle.ts'
import { clusters, database, destination, source, useTwoClusters } from '../definitions/reconcile-fixture.ts'
import { idOfEveryType, nastyDocument } from '../support/bson-values.ts'
import { Random } from '../support/random.ts'
import { owner, segmentOf } from './segment-fixture.ts'

useTwoClusters()

let claims = 0

/** @param onWritten called after each segment */
async function converge(entry: CatalogEntry, segments: Segment[], onWritten = async () => {}): Promise<void> {
  await appendOplogNote(clusters.source, 'test')
  await appendOplogNote(clusters.destination, 'test')
  await clusters.metadata.segments.plan(segments)
  await clusters.metadata.segments.open([entry.uuid])
  await clusters.metadata.segments.claim(owner, ++claims, segments.length, () => false)
  for (const segment of segments) segment.claim = claims
  const { source, destination, metadata, context, dependencies } = clusters
  const progress = new SegmentProgress(metadata.segments, owner)
  const { nextOrder } = dependencies
  const common = { source, destination, metadata, progress, throttle: new Throttle(3), context, nextOrder }
  const progressed = (bytes: number): void => {
    entry.copiedBytes += bytes
  }
  const parts = { ...common, startTime: source.latest, isKnown: () => true, progressed, locate: async () => true }
  for (const segment of segments) {
    await convergeSegment(parts, entry, segment)
    await onWritten()
  }
  await progress.close()
}

/** Ends the copy as the owners of all partitions do. */
async function end(entry: CatalogEntry): Promise<void> {
  const catalog = new Catalog()
  catalog.add(entry)
  await clusters.metadata.collections.save([entry])
  await appendOplogNote(clusters.source, 'test')
  const partitions = new Map([[0, { epoch: 1 }]])
  const { source, metadata, dependencies: documents } = clusters
  await new CopyEnds({ source, metadata, catalog, documents, partitions, partitionCount: 1, shared: true }).reconcile(
    entry,
  )
}

const idAt = (documents: Buffer[], at: number) => idOf(idElementOf(documents[at] as Buffer))

/**
 * Creates a collection with `_id`s of every type. Each side lacks some documents, and others differ. Returns the documents of the
 * source in the order of their `_id`s as `stored`.
 */
async function seeded(name: string, random: Random, options = {}): Promise<{ entry: CatalogEntry; stored: Buffer[] }> {
  await Promise.all([source(), destination()].map((db) => db.createCollection(name, options)))
  const ids = [
    ...Array.from({ length: 3 }, () => idOfEveryType.map((make) => make(random))).flat(),
    ...Array.from({ length: 60 }, () => random.pick([random.int(-50, 50), random.word(3)])),
  ]
  const documents = ids.map((id) => nastyDocument(random, id))
  const insert = async (db: ReturnType<typeof source>, some: Buffer[]) => {
    if (some.length === 0) return
    await db.command({ insert: name, documents: rawSequence('documents', some), ordered: false })
  }
  await insert(
    source(),
    documents.filter(() => random.chance(0.8)),
  )
  await insert(
    destination(),
    documents.filter(() => random.chance(0.8)),
  )
  const others = ids.map((id) => nastyDocument(random, id)).filter(() => random.chance(0.2))
  await destination()
    .collection(name)
    .deleteMany({ _id: { $in: [1, 2, 3, 4, 5] as never[] } })
  await insert(destination(), others)
  const read = await source().collection(name).find({}, { raw: true }).sort({ _id: 1 }).toArray()
  const entry = { ...(await clusters.entryOf(database, name, 'copying')), converging: true }
  return { entry, stored: read.map((document) => Buffer.from(document as unknown as Uint8Array)) }
}

describe('convergeSegment', () => {
  it.each([
    ['plain', {}],
    ['collated', { collation: { locale: 'en', strength: 2 } }],
    ['clustered', { clusteredIndex: { key: { _id: 1 }, unique: true } }],
  ])('makes a %s collection equal for any split points and any order of segments', async (name, options) => {
    for (let round = 0; round < 4; round++) {
      const random = new Random(`${name} ${round}`)
      const collection = `${name}${round}`
      const { entry, stored } = await seeded(collection, random, options)
      const places = new Set(Array.from({ length: round * 2 }, () => random.int(1, stored.length - 2)))
      const splits = [...places].sort((one, other) => one - other).map((at) => idAt(stored, at))
      const segments = [null, ...splits].map((from, at) => segmentOf(entry, from, splits[at] ?? null, at))
      await converge(entry, random.shuffle(segments))
      expect(segments.reduce((sum, { documents }) => sum + documents, 0)).toBe(stored.length)
      await end(entry)
    }
    await clusters.expectEqual(database)
  })

  it('leaves differing documents to the end of the copy, which also applies a later update and delete', async () => {
    const [from, to] = [
      source().collection<{ _id: number; v: number }>('c'),
      destination().collection<{ _id: number; v: number }>('c'),
    ]
    await from.insertMany([1, 2, 3, 4].map((_id) => ({ _id, v: 1 })))
    await to.insertMany([1, 2].map((_id) => ({ _id, v: 0 })))
    const entry = { ...(await clusters.entryOf(database, 'c', 'copying')), converging: true }
    await converge(entry, [segmentOf(entry, null, null)])
    // The convergence only records differing documents, so they keep their old versions.
    expect(await to.find({ v: 0 }).toArray()).toHaveLength(2)
    expect(await to.countDocuments()).toBe(4)
    await from.updateOne({ _id: 1 }, { $set: { v: 2 } })
    await from.deleteOne({ _id: 2 })
    await end(entry)
    await clusters.expectEqual(database)
    expect(await to.findOne({ _id: 1 })).toEqual({ _id: 1, v: 2 })
  })

  it('continues at the last document that both sides have, and does not read the range before it again', async () => {
    const documents = Array.from({ length: 2_000 }, (_, _id) => ({ _id, v: 1 }))
    await source().collection<{ _id: number }>('c').insertMany(documents)
    await destination()
      .collection<{ _id: number }>('c')
      .insertMany(documents.map((one) => ({ ...one, v: one._id % 2 })))
    const entry = { ...(await clusters.entryOf(database, 'c', 'copying')), converging: true }
    const segment = segmentOf(entry, null, null)
    await converge(entry, [segment])
    const [stored] = (await clusters.metadata.segments.load([entry.uuid])).get(entry.uuid) ?? []
    expect(stored).toMatchObject({ done: true, documents: 2_000 })
    expect(stored?.last?.readInt32LE(1)).toBe(1_999)
    const again = { ...segment, done: false, documents: 0, bytes: 0 }
    await converge(entry, [again])
    expect(again.documents).toBe(1)
    await end(entry)
    await clusters.expectEqual(database)
  })
})
