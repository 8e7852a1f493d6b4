import { type Binary, BSON, type Document } from 'mongodb'
import type { CollectionsPage } from '../domain/collection-figures.ts'
import type { IndexSpecification } from '../domain/definition.ts'
import { listedMax, type Mismatch } from '../domain/mismatch.ts'
import { namespace } from '../domain/namespace.ts'
import { readFields } from '../domain/raw-bson.ts'
import type { Cluster } from './cluster.ts'
import { RawCursor } from './raw-cursor.ts'
import { bytesOf } from './stored-documents.ts'

/** The figures of one collection, aggregated from stored documents. */
export interface StoredFigures {
  namespace: string
  copied: boolean
  converging: boolean
  created: boolean
  estimatedDocuments: number
  totalBytes: number
  copiedBytes: number
  copiedDocuments: number
  /**
   * The number of ranges of `_id` into which the copy split the collection. A collection that the copy never read is one
   * range.
   */
  ranges: number
  /**
   * The number of ranges that the verifier has compared, and the number of source documents in these ranges. The API calls
   * both hashed, as mongosync does.
   */
  hashedRanges: number
  hashedDocuments: number
  indexes: IndexSpecification[]
  refusedIndexes: string[]
  /** True if the indexes are not built yet. Their build begins after the copy of the collection. */
  awaitsIndexes: boolean
}

/** Time limit in ms: a progress query must not keep the destination busy for long. */
const limitMS = 5_000

/**
 * Copy and verification progress of each collection. The destination computes it from the documents that all instances
 * store there for the sync itself. One aggregation serves any number of collections and returns the rows of one page.
 * No query is retried.
 */
export class CollectionFigures {
  readonly #cluster: Cluster
  constructor(destination: Cluster) {
    this.#cluster = destination
  }

  /**
   * Sorts the collections in `foremost` first, then those with the most work left, then by name.
   * @param verified true if ranges that are not verified yet count as work left
   */
  async read(page: CollectionsPage, verified: boolean, foremost: readonly string[]): Promise<StoredFigures[]> {
    const command = {
      aggregate: 'collections',
      pipeline: pipelineOf(page, verified, foremost),
      cursor: {},
      readConcern: { level: 'majority' },
      maxTimeMS: limitMS,
    }
    const rows = await RawCursor.readAll(this.#cluster, this.#cluster.metadataDatabase, command)
    return rows.map((bytes) => figuresOf(BSON.deserialize(bytes)))
  }

  /** Returns the number of differences that the last verdict lists for each collection, by namespace. */
  async mismatches(): Promise<Map<string, number>> {
    // One batch holds all of them, because at most `listedMax` are stored.
    const command = { find: 'mismatches', projection: { mismatch: 1 }, batchSize: 2 * listedMax, singleBatch: true }
    const majority = { ...command, readConcern: { level: 'majority' }, maxTimeMS: limitMS }
    const reply = await this.#cluster.read(this.#cluster.metadataDatabase, majority)
    const counts = new Map<string, number>()
    for (const { mismatch } of reply['cursor'].firstBatch as { mismatch: string }[]) {
      const { namespace: where } = JSON.parse(mismatch) as Mismatch
      counts.set(where, (counts.get(where) ?? 0) + 1)
    }
    return counts
  }

  /** Returns the number of collections. */
  async count(): Promise<number> {
    // `count` uses the collection's metadata, so its cost does not depend on the number of documents.
    const reply = await this.#cluster.read(this.#cluster.metadataDatabase, { count: 'collections', maxTimeMS: limitMS })
    return Number(reply['n'])
  }
}

function pipelineOf({ limit, after }: CollectionsPage, verified: boolean, foremost: readonly string[]): Document[] {
  const known = ['database', 'name', 'state', 'destinationUUID', 'estimatedBytes', 'estimatedDocuments', 'totalCopied']
  const summed = ['copiedBytes', 'copiedDocuments', 'ranges', 'hashedRanges', 'hashedDocuments', 'hashedBytes']
  const sums = (collection: string, fields: Document): Document => ({
    $unionWith: { coll: collection, pipeline: [{ $group: { _id: '$collection', ...fields } }] },
  })
  const totalBytes = { $ifNull: ['$totalCopied', { $max: ['$estimatedBytes', '$copiedBytes'] }] }
  const unhashed = { $max: [0, { $subtract: ['$totalBytes', '$hashedBytes'] }] }
  return [
    { $project: Object.fromEntries(known.map((name) => [name, 1])) },
    sums('segments', {
      copiedBytes: { $sum: '$bytes' },
      copiedDocuments: { $sum: '$documents' },
      // A segment that is read in natural order has one more range than it has splits. Any other segment is one range.
      ranges: { $sum: { $add: [1, { $size: { $ifNull: ['$splits', []] } }] } },
    }),
    sums('verifiedRanges', {
      hashedRanges: { $sum: 1 },
      hashedDocuments: { $sum: '$source' },
      hashedBytes: { $sum: '$bytes' },
    }),
    {
      $group: {
        _id: '$_id',
        ...Object.fromEntries(known.map((name) => [name, { $max: `$${name}` }])),
        ...Object.fromEntries(summed.map((name) => [name, { $sum: `$${name}` }])),
      },
    },
    // `segments` and `verifiedRanges` may still have documents of a dropped collection.
    { $match: { database: { $type: 'string' } } },
    { $set: { totalBytes, namespace: { $concat: ['$database', '.', '$name'] } } },
    {
      $set: {
        left: {
          $add: [
            { $cond: [{ $eq: ['$state', 'copied'] }, 0, { $subtract: ['$totalBytes', '$copiedBytes'] }] },
            verified ? { $cond: [{ $gte: ['$hashedRanges', { $max: [1, '$ranges'] }] }, 0, unhashed] } : 0,
          ],
        },
        foremost: { $in: ['$namespace', foremost] },
      },
    },
    { $sort: { foremost: -1, left: -1, namespace: 1 } },
    { $skip: after },
    { $limit: limit },
    // This lookup comes last, so that only the definitions of one page are read.
    { $lookup: { from: 'collections', localField: '_id', foreignField: '_id', as: 'definition' } },
  ]
}

function figuresOf(row: Document): StoredFigures {
  const definition = (row['definition'] as Document[])[0] ?? {}
  const copied = row['state'] === 'copied'
  const converging = !copied && definition['converging'] === true
  const ranges = Number(row['ranges'])
  const [estimatedDocuments, totalBytes] = [Number(row['estimatedDocuments'] ?? 0), Number(row['totalBytes'])]
  return {
    namespace: namespace(row['database'] as string, row['name'] as string),
    copied,
    converging,
    created: row['destinationUUID'] !== null,
    estimatedDocuments,
    totalBytes,
    copiedBytes: copied ? totalBytes : Number(row['copiedBytes']),
    // After a reversal the ranges of the original copy are no longer known.
    copiedDocuments: copied && ranges === 0 ? estimatedDocuments : Number(row['copiedDocuments']),
    ranges: Math.max(1, ranges),
    hashedRanges: Number(row['hashedRanges']),
    hashedDocuments: Number(row['hashedDocuments']),
    indexes: ((definition['indexes'] ?? []) as Binary[]).map((index) => readFields(bytesOf(index))),
    refusedIndexes: (definition['refusedIndexes'] as string[] | undefined) ?? [],
    awaitsIndexes: definition['awaitsIndexes'] === true,
  }
}
