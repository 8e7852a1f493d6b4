import { Int32 } from 'mongodb'
import { afterAll, beforeEach, describe, expect, it, vi } from 'vitest'
import type { CatalogEntry, Segment } from '../../src/domain/catalog.ts'
import { metadataDatabase } from '../../src/domain/namespace.ts'
import { readFields } from '../../src/domain/raw-bson.ts'
import type { StartConfiguration } from '../../src/domain/start-request.ts'
import { Cluster } from '../../src/mongo/cluster.ts'
import { CollectionFigures } from '../../src/mongo/collection-figures.ts'
import { Metadata } from '../../src/mongo/metadata.ts'
import { VerificationStore } from '../../src/mongo/verification-store.ts'
import { CollectionReports } from '../../src/session/collection-reports.ts'
import { rawDocument } from '../support/bson-values.ts'
import { failPoint } from '../support/fail-point.ts'
import { testContext } from './clusters.ts'
import { oneSet } from './one-set.ts'

/** The report on collections reads the figures that the metadata stores of a sync have written. */

const one = oneSet()
const configuration = { buildIndexes: 'beforeDataCopy', verification: { enabled: true } } as StartConfiguration
const firstPage = { limit: 100, after: 0 }
const partitions = 1
let metadata: Metadata
let verified: VerificationStore

beforeEach(async () => {
  await one.client.db(metadataDatabase).dropDatabase()
  metadata = new Metadata(one.cluster, testContext())
  verified = new VerificationStore(one.cluster, testContext())
  await metadata.createIndexes()
})

const uuid = (at: number): string => {
  const bytes = Buffer.alloc(16)
  bytes.writeUInt32BE(at)
  return bytes.toString('latin1')
}
const unique = readFields(
  rawDocument([
    ['v', new Int32(2)],
    ['name', 'n_1'],
    ['unique', true],
  ]),
)

function entryOf(at: number, estimatedBytes: number, more: Partial<CatalogEntry> = {}): CatalogEntry {
  return {
    uuid: uuid(at),
    database: 'app',
    name: `c${at}`,
    sourceName: `c${at}`,
    destinationUUID: uuid(1_000_000 + at),
    state: 'copying',
    wanted: { options: [], indexes: [unique] },
    refusedIndexes: [],
    awaitsIndexes: false,
    shardKey: null,
    estimatedBytes,
    estimatedDocuments: estimatedBytes / 10,
    copiedBytes: 0,
    totalCopied: null,
    endedPartitions: new Set(),
    planned: true,
    hasTombstones: false,
    converging: false,
    convergedFrom: null,
    ...more,
  }
}

const segmentOf = (at: number, ordinal: number, more: Partial<Segment> = {}): Segment => ({
  collection: uuid(at),
  ordinal,
  priority: ordinal,
  from: null,
  to: null,
  natural: null,
  last: null,
  done: false,
  documents: 0,
  bytes: 0,
  attempts: 1,
  wasOwn: false,
  claim: 0,
  ...more,
})
const range = (at: number, ordinal: number, documents: number, bytes: number) => ({
  collection: uuid(at),
  ordinal,
  source: documents,
  destination: documents,
  bytes,
})

/** Makes a report with a new instance of CollectionReports, so that the report is not a cached one. */
const report = (page = firstPage, given = configuration, restored = false) =>
  new CollectionReports(new CollectionFigures(one.cluster), given).report(page, restored)
const names = async (page = firstPage, given = configuration): Promise<string[]> =>
  (await report(page, given)).collections.map(({ namespace }) => namespace)

describe('the report on collections', () => {
  it('is empty before anything is stored', async () => {
    expect(await report()).toEqual({ collections: [], total: 0 })
  })

  it('sums what all instances have copied and compared, with the collection that has the most work left first', async () => {
    await metadata.collections.save([entryOf(1, 100), entryOf(2, 1_000, { refusedIndexes: ['n_1'] }), entryOf(3, 50)])
    const done = { done: true, documents: 5, bytes: 60 }
    await metadata.segments.plan([segmentOf(1, 0, done), segmentOf(1, 1, { ...done, documents: 4, bytes: 50 })])
    await metadata.segments.plan([segmentOf(2, 0, { documents: 10, bytes: 100 }), segmentOf(2, 1), segmentOf(3, 0)])
    await metadata.collections.endCopy(uuid(1), new Map([[0, 1]]), partitions)
    await verified.saveRanges([range(1, 0, 5, 60)])
    const { collections, total } = await report()
    expect(total).toBe(3)
    expect(collections.map(({ namespace }) => namespace)).toEqual(['app.c2', 'app.c3', 'app.c1'])
    expect(collections[0]).toEqual({
      namespace: 'app.c2',
      copy: {
        ended: false,
        converging: false,
        estimatedTotalBytes: 1_000,
        estimatedCopiedBytes: 100,
        estimatedDocumentCount: 100,
        copiedDocumentCount: 10,
      },
      indexes: { total: 1, built: 0, heldBack: 0, missing: 1 },
      verification: { phase: 'not started', hashedDocumentCount: 0, hashedRanges: 0, totalRanges: 2 },
      mismatches: 0,
    })
    // The copy of this collection has ended, so the copied bytes replace the estimate.
    expect(collections[2]).toEqual({
      namespace: 'app.c1',
      copy: {
        ended: true,
        converging: false,
        estimatedTotalBytes: 110,
        estimatedCopiedBytes: 110,
        estimatedDocumentCount: 10,
        copiedDocumentCount: 9,
      },
      indexes: { total: 1, built: 1, heldBack: 1, missing: 0 },
      verification: { phase: 'initial hashing', hashedDocumentCount: 5, hashedRanges: 1, totalRanges: 2 },
      mismatches: 0,
    })
    await verified.saveRanges([range(1, 1, 4, 50)])
    const [last] = (await report(firstPage, configuration, true)).collections.slice(-1)
    expect(last).toMatchObject({
      indexes: { built: 1, heldBack: 0 },
      verification: { phase: 'stream hashing', hashedDocumentCount: 9, hashedRanges: 2 },
    })
  })

  it('lists collections with mismatches first, and omits verification when it is disabled', async () => {
    await metadata.collections.save([entryOf(1, 100), entryOf(2, 200), entryOf(3, 300)])
    const mismatch = { kind: 'content', id: 1 }
    const app = (name: string) => ({ ...mismatch, namespace: `app.${name}` })
    await verified.saveVerdict([app('c1'), app('c1'), app('c2'), app('gone')], 4)
    const { collections } = await report()
    const counts = collections.map(({ namespace, mismatches }) => [namespace, mismatches])
    expect(counts).toEqual([
      ['app.c2', 1],
      ['app.c1', 2],
      ['app.c3', 0],
    ])
    const without = { ...configuration, verification: { ...configuration.verification, enabled: false } }
    expect((await report(firstPage, without)).collections.map(({ verification }) => verification)).toEqual([
      null,
      null,
      null,
    ])
  })

  it('counts a collection as copied and compared if a reversal has kept its data', async () => {
    await metadata.collections.save([entryOf(1, 100, { state: 'copied', totalCopied: 90 })])
    await verified.saveRanges([range(1, 0, 0, 0)])
    expect((await report()).collections[0]).toMatchObject({
      copy: { ended: true, estimatedTotalBytes: 90, estimatedCopiedBytes: 90, copiedDocumentCount: 10 },
      verification: { phase: 'stream hashing', hashedRanges: 1, totalRanges: 1 },
    })
  })

  it('omits a dropped collection whose ranges are still stored', async () => {
    await metadata.segments.plan([segmentOf(7, 0)])
    await verified.saveRanges([range(7, 0, 1, 1)])
    expect(await report()).toEqual({ collections: [], total: 0 })
  })

  describe('on thousands of collections', () => {
    const collections = 10_000
    const read = vi.spyOn(Cluster.prototype, 'read')
    const commands = () => read.mock.calls.map(([, command]) => Object.keys(command)[0])
    afterAll(() => read.mockRestore())
    beforeEach(async () => {
      const all = Array.from({ length: collections }, (_, at) => at)
      await metadata.collections.save(all.map((at) => entryOf(at, 10 * (at + 1))))
      await metadata.segments.plan(all.map((at) => segmentOf(at, 0, { documents: 1, bytes: 10 })))
      read.mockClear()
    })

    it('returns consecutive pages, and reads a page with one aggregate, one count and one find', async () => {
      expect(await names({ limit: 3, after: 0 })).toEqual(['app.c9999', 'app.c9998', 'app.c9997'])
      expect(
        commands()
          .filter((name) => name !== 'getMore')
          .sort(),
      ).toEqual(['aggregate', 'count', 'find'])
      expect(await names({ limit: 2, after: 3 })).toEqual(['app.c9996', 'app.c9995'])
      expect(await names({ limit: 200, after: collections - 1 })).toEqual(['app.c0'])
      expect((await report({ limit: 1, after: collections })).total).toBe(collections)
    })

    it('reads the figures once for all requests within a second', async () => {
      const reports = new CollectionReports(new CollectionFigures(one.cluster), configuration)
      const answers = await Promise.all(Array.from({ length: 200 }, () => reports.report(firstPage, false)))
      expect(new Set(answers).size).toBe(1)
      expect(await reports.report(firstPage, false)).toBe(answers[0])
      expect(commands().filter((name) => name === 'aggregate')).toHaveLength(1)
    })
  })

  it('of many collections is answered with the expired one while the server takes long to make a new one', async () => {
    await metadata.collections.save(Array.from({ length: 500 }, (_, at) => entryOf(at, 100)))
    const reports = new CollectionReports(new CollectionFigures(one.cluster), configuration)
    const first = await reports.report(firstPage, false)
    const read = vi.spyOn(Cluster.prototype, 'read')
    const now = performance.now.bind(performance)
    let skew = 0
    const clock = vi.spyOn(performance, 'now').mockImplementation(() => now() + skew)
    try {
      const data = { failCommands: ['aggregate'], blockConnection: true, blockTimeMS: 2_000, appName: 'tandem-test' }
      await using _slow = await failPoint(one.client, 'failCommand', data)
      while (read.mock.calls.length === 0) {
        skew += 500
        expect(await reports.report(firstPage, false)).toBe(first)
      }
    } finally {
      read.mockRestore()
      clock.mockRestore()
    }
    const isNew = async () => expect(await reports.report(firstPage, false)).not.toBe(first)
    await vi.waitFor(isNew, { timeout: 60_000, interval: 20 })
  })

  it('of many collections is not answered with the one of another situation', async () => {
    await metadata.collections.save(Array.from({ length: 500 }, (_, at) => entryOf(at, 100)))
    const reports = new CollectionReports(new CollectionFigures(one.cluster), configuration)
    const before = await reports.report(firstPage, false, 'COMMITTING')
    await metadata.collections.save([entryOf(500, 100)])
    expect(await reports.report(firstPage, false, 'COMMITTING')).toBe(before)
    expect((await reports.report(firstPage, false, 'FAILED')).total).toBe(501)
  })

  it('fails at once when the destination fails, and reads the figures again for a later request', async () => {
    await metadata.collections.save([entryOf(1, 100)])
    const reports = new CollectionReports(new CollectionFigures(one.cluster), configuration)
    {
      // The error is ExceededTimeLimit, after which other reads are retried.
      const data = { failCommands: ['aggregate'], errorCode: 262, appName: 'tandem-test' }
      await using _failing = await failPoint(one.client, 'failCommand', data)
      const requests = Array.from({ length: 20 }, () => reports.report(firstPage, false).catch(({ code }) => code))
      expect(await Promise.all(requests)).toEqual(requests.map(() => 262))
    }
    const again = () => reports.report(firstPage, false)
    await vi.waitFor(async () => expect((await again()).total).toBe(1), { timeout: 20_000, interval: 100 })
  })
})
