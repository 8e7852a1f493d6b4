import { BSON, type Document, Int32 } from 'mongodb'
import { afterEach, describe, expect, it, onTestFinished, vi } from 'vitest'
import { copySegment } from '../../src/copy/copy-segment.ts'
import { SegmentProgress } from '../../src/copy/segment-progress.ts'
import type { CatalogEntry, Segment } from '../../src/domain/catalog.ts'
import { StoppedError } from '../../src/domain/errors.ts'
import { metadataDatabase } from '../../src/domain/namespace.ts'
import { beforeNaturalRead } from '../../src/domain/natural-order.ts'
import { appendOplogNote } from '../../src/mongo/oplog-note.ts'
import { Throttle } from '../../src/throttle/throttle.ts'
import {
  clusters,
  createOnBoth,
  database,
  destination,
  source,
  useTwoClusters,
} from '../definitions/reconcile-fixture.ts'
import { Random } from '../support/random.ts'
import { segmentOf } from './segment-fixture.ts'

/** The copy of a collection in natural order is interrupted, and another instance continues it. */

useTwoClusters()

/** A throttle that makes batches of about 64 KiB. */
class SmallBatches extends Throttle {
  override batchBytes(): number {
    return 64 * 1024
  }
}

interface Row {
  _id: number
  text: string
}
const documents = 300
const rows = (): Row[] => {
  const ids = new Random('natural').shuffle(Array.from({ length: documents }, (_, at) => at))
  return ids.map((_id) => ({ _id, text: 'x'.repeat(8_000) }))
}

let claims = 0
let restarted: Document[] = []

const stored = () => clusters.destinationClient.db(metadataDatabase).collection('segments')

afterEach(async () => {
  vi.restoreAllMocks()
  await stored().deleteMany({})
  restarted = []
})

/** Creates the collection with documents in random order, and stores its plan: one segment in natural order. */
async function planned(): Promise<CatalogEntry> {
  await createOnBoth('c')
  await source().collection<Row>('c').insertMany(rows())
  await appendOplogNote(clusters.source, 'test')
  const entry = await clusters.entryOf(database, 'c', 'copying')
  const { segments } = clusters.metadata
  await segments.plan([{ ...segmentOf(entry, null, null), natural: beforeNaturalRead([]) }])
  await segments.open([entry.uuid])
  return entry
}

/**
 * Copies like an instance that claims the segment from any former owner. Stops when `batches` are written, like an instance whose
 * process ends.
 */
async function copy(entry: CatalogEntry, batches = Number.POSITIVE_INFINITY): Promise<Segment> {
  claims += 1
  const owner = `copier#${claims}`
  const [segment] = await clusters.metadata.segments.claim(owner, claims, 1, () => true)
  if (!segment) throw new Error('there is no segment to claim')
  const progress = new SegmentProgress(clusters.metadata.segments, owner)
  const { signal } = new AbortController()
  let left = batches
  const parts = {
    ...{ source: clusters.source, destination: clusters.destination, metadata: clusters.metadata, progress },
    throttle: new SmallBatches(3),
    context: {
      ...clusters.context,
      signal,
      journal: (message: string, fields: Document) => {
        if (message === 'copy begins again') restarted.push(fields)
      },
    },
    startTime: clusters.source.latest,
    nextOrder: clusters.dependencies.nextOrder,
    isKnown: () => {
      left -= 1
      if (left < 0) throw new StoppedError()
      return true
    },
    locate: async () => true,
    progressed: (bytes: number): void => {
      entry.copiedBytes += bytes
    },
  }
  await copySegment(parts, entry, segment).catch((error) => {
    if (!(error instanceof StoppedError)) throw error
  })
  await progress.close()
  return segment
}

/** Observes the commands of the copy on one cluster, and the number of documents that each read returns. */
function observed(cluster: 'source' | 'destination') {
  const commands: Document[] = []
  let read = 0
  const run = clusters[cluster].run.bind(clusters[cluster])
  vi.spyOn(clusters[cluster], 'run').mockImplementation(async (...asked) => {
    const reply = await run(...asked)
    commands.push(asked[1])
    if (asked[0] === database) read += (reply['cursor']?.firstBatch ?? reply['cursor']?.nextBatch ?? []).length
    return reply
  })
  const ofCollection = () => commands.filter((command) => command['find'] === 'c')
  return {
    finds: ofCollection,
    resumed: () => ofCollection().filter((command) => command['$_resumeAfter']),
    get read() {
      return read
    },
  }
}

const inserts = () => {
  let sent = 0
  const write = clusters.destination.write.bind(clusters.destination)
  vi.spyOn(clusters.destination, 'write').mockImplementation(async (...asked) => {
    if (asked[1]['insert'] === 'c') sent += 1
    return await write(...asked)
  })
  return () => sent
}

/** Returns the `_id`s in natural order up to the newest token of the stored progress. */
async function copiedIds(entry: CatalogEntry): Promise<number[]> {
  const [segment] = (await clusters.metadata.segments.load([entry.uuid])).get(entry.uuid) ?? []
  expect(segment?.natural?.tokens.length).toBeGreaterThan(0)
  return rows()
    .slice(0, segment?.documents)
    .map(({ _id }) => _id)
}

describe('a collection that is read in natural order', () => {
  it('is copied completely by one read', async () => {
    const entry = await planned()
    const reads = observed('source')
    const segment = await copy(entry)
    expect(segment).toMatchObject({ done: true, documents, attempts: 1 })
    expect(reads.finds().map(({ hint }) => hint)).toEqual([{ $natural: 1 }])
    expect(reads.read).toBe(documents)
    await clusters.expectEqual(database)
    expect(restarted).toEqual([])
  })

  it('is continued by another instance after the last acknowledged batch', async () => {
    const entry = await planned()
    await copy(entry, 5)
    const before = await copiedIds(entry)
    expect(await destination().collection('c').countDocuments()).toBe(before.length)
    const reads = observed('source')
    const segment = await copy(entry)
    expect(segment).toMatchObject({ done: true, documents, attempts: 2 })
    expect(reads.resumed()).toHaveLength(1)
    expect(reads.read).toBe(documents - before.length)
    expect(entry.copiedBytes).toBe(segment.bytes)
    await clusters.expectEqual(database)
  })

  it('is continued at an older token if the document of the newest token was deleted', async () => {
    const entry = await planned()
    await copy(entry, 5)
    const before = await copiedIds(entry)
    const last = before.at(-1) as number
    for (const db of [source(), destination()]) await db.collection<Row>('c').deleteOne({ _id: last })
    await appendOplogNote(clusters.source, 'test')
    const reads = observed('source')
    expect(await copy(entry)).toMatchObject({ done: true, attempts: 2 })
    expect(reads.resumed()).toHaveLength(1) // the refused find threw
    expect(reads.read).toBeLessThan(documents - 1)
    expect(reads.read).toBeGreaterThan(documents - before.length)
    expect(restarted).toEqual([])
    await clusters.expectEqual(database)
  })

  it.each<[string, (entry: CatalogEntry) => Promise<number>]>([
    [
      'the documents of all tokens were deleted',
      async (entry) => {
        const gone = { _id: { $in: (await copiedIds(entry)).slice(4) } }
        for (const db of [source(), destination()]) await db.collection<Row>('c').deleteMany(gone)
        return documents - gone._id.$in.length
      },
    ],
    [
      'another process, or the same one in another term, is the primary',
      async () => {
        expect(
          (await stored().updateMany({ server: { $type: 'string' } }, { $set: { server: 'process term' } }))
            .modifiedCount,
        ).toBe(1)
        return documents
      },
    ],
    [
      'the source is read through a router, which accepts no tokens',
      async () => {
        clusters.source.sharded = true
        onTestFinished(() => {
          clusters.source.sharded = false
        })
        return documents
      },
    ],
    [
      'the server does not understand its tokens',
      async () => {
        const token = BSON.serialize({ $recordId: 'of another kind' })
        await stored().updateMany({ done: false }, { $set: { tokens: [token] } })
        return documents
      },
    ],
  ])('is read from the beginning when %s, and documents that exist are not inserted again', async (_, change) => {
    const entry = await planned()
    await copy(entry, 12)
    const before = await destination().collection('c').countDocuments()
    const remaining = await change(entry)
    await appendOplogNote(clusters.source, 'test')
    const [reads, sent] = [observed('source'), inserts()]
    const left = await destination().collection('c').countDocuments()
    const segment = await copy(entry)
    expect(segment).toMatchObject({ done: true, documents: remaining, attempts: 2 })
    expect(reads.read).toBe(remaining)
    expect(entry.copiedBytes).toBe(segment.bytes)
    expect(restarted).toMatchObject([{ namespace: `${database}.c` }])
    // Each batch has at least 8 documents. tandem sends no insert for a batch whose documents all exist.
    expect(sent()).toBeLessThanOrEqual(Math.ceil((remaining - left) / 7) + 1)
    expect(before).toBeGreaterThan(80)
    await clusters.expectEqual(database)
  })

  it('does not count as copied if the primary changed before the read reached the end', async () => {
    const entry = await planned()
    const run = clusters.source.run.bind(clusters.source)
    let hellos = 0
    vi.spyOn(clusters.source, 'run').mockImplementation(async (...asked) => {
      const reply = await run(...asked)
      if (asked[1]['hello'] === undefined) return reply
      hellos += 1
      // The first hello precedes the read, and the second follows its last batch.
      return hellos === 2 ? { ...reply, electionId: 'another term' } : reply
    })
    const segment = await copy(entry)
    expect(segment).toMatchObject({ done: true, documents })
    // The third and the fourth hello belong to the next attempt. The tokens belong to the current primary again, so it resumes.
    expect([hellos, segment.attempts]).toEqual([4, 2])
    await clusters.expectEqual(database)
  })

  it('does not overwrite a document that an event has written, and records one that another index refuses', async () => {
    await createOnBoth('c')
    await destination().collection('c').createIndex({ foreign: 1 }, { unique: true })
    const row = (_id: number, foreign: number) => ({ _id: new Int32(_id), foreign })
    await source()
      .collection<Document & { _id: Int32 }>('c')
      .insertMany([row(3, 3), row(1, 1), row(2, 2)])
    await destination()
      .collection<Document & { _id: Int32 }>('c')
      .insertMany([row(1, 2), row(9, 3)])
    await appendOplogNote(clusters.source, 'test')
    const entry = await clusters.entryOf(database, 'c', 'copying')
    await clusters.metadata.segments.plan([{ ...segmentOf(entry, null, null), natural: beforeNaturalRead([]) }])
    await clusters.metadata.segments.open([entry.uuid])
    expect(await copy(entry)).toMatchObject({ done: true, documents: 3 })
    const recorded = await clusters.metadata.tombstones.read(entry.uuid, null, 10)
    expect(recorded.map(({ idElement }) => idElement.at(-4)).sort()).toEqual([2, 3])
    expect(await destination().collection<Document & { _id: number }>('c').findOne({ _id: 1 })).toMatchObject({
      foreign: 2,
    })
  })

  it.each(Array.from({ length: 6 }, (_, seed) => seed))(
    'contains every document that existed at the start and still exists, no matter how often the copy is interrupted (seed %i)',
    async (seed) => {
      const random = new Random(`interruptions ${seed}`)
      const entry = await planned()
      const collection = source().collection<Row>('c')
      let segment: Segment
      do {
        segment = await copy(entry, random.int(0, 12))
        // The event of each change would be applied. Here only the copy runs, so changed documents are not compared.
        const _id = { $in: Array.from({ length: random.int(1, 12) }, () => random.int(0, documents - 1)) }
        await collection.deleteMany({ _id })
        if (random.chance(0.5))
          await collection.insertMany(_id.$in.slice(0, 1).map((one) => ({ _id: one, text: 'new' })))
        await appendOplogNote(clusters.source, 'test')
      } while (!segment.done)
      const remaining = await collection.find({ text: { $ne: 'new' } }).toArray()
      const copied = await destination().collection<Row>('c').find({}).toArray()
      const ids = new Set(copied.map(({ _id }) => _id))
      expect(remaining.filter(({ _id }) => !ids.has(_id)).map(({ _id }) => _id)).toEqual([])
      expect(remaining.length).toBeGreaterThan(50)
    },
  )
})
