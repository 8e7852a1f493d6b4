import * as v from 'valibot'
import type { CollectionRow, CollectionsReport } from '../domain/collection-figures.ts'
import { whole } from './progress-schema.ts'
import { numberParameters } from './query-parameters.ts'
import { objectOf } from './strict-schema.ts'

/** `GET /api/v1/collections`: the progress of each collection, one page at a time. */

const integer = (meaning: string) => v.pipe(v.number(), v.integer(), v.minValue(0), v.description(meaning))

const rowSchema = objectOf({
  namespace: v.pipe(
    v.string(),
    v.description(
      'database.collection: the name of the database on the source, and the name of the collection on the destination.',
    ),
  ),
  destinationNamespace: v.exactOptional(
    v.pipe(
      v.string(),
      v.description('database.collection on the destination, if namespaceRemap gives it another name there.'),
    ),
  ),
  copy: objectOf({
    ended: v.pipe(v.boolean(), v.description('Every document has been copied once.')),
    converging: v.pipe(
      v.boolean(),
      v.description('The collection existed on the destination or is compared again. Only what differs is written.'),
    ),
    estimatedTotalBytes: integer('Bytes of documents.'),
    estimatedCopiedBytes: integer('Bytes copied by all instances.'),
    estimatedDocumentCount: integer('Documents when the copy was planned, or documents copied if that is more.'),
    copiedDocumentCount: integer('Documents copied by all instances.'),
  }),
  indexes: objectOf({
    total: integer('Indexes of the source, without the one on _id.'),
    built: integer('Indexes built on the destination.'),
    heldBack: integer(
      'Indexes with a unique, TTL or hidden option that is deferred until the commit, and indexes that are deferred altogether because they differ from another index only in these options.',
    ),
    missing: integer(
      'Indexes that do not exist on the destination yet: they are built after the copy, or the destination has refused them so far and tandem retries them.',
    ),
  }),
  verification: v.pipe(
    v.nullable(
      objectOf({
        phase: v.picklist(['not started', 'initial hashing', 'stream hashing']),
        hashedDocumentCount: integer('Documents of the source compared by the first verification.'),
        hashedRanges: integer('Ranges of _id compared.'),
        totalRanges: integer('Ranges of _id in all.'),
      }),
    ),
    v.description('Null if verification is disabled.'),
  ),
  mismatches: integer('Differences of this collection that `GET /api/v1/verification/mismatches` lists.'),
})

export const collectionsAnswerSchema = objectOf({
  success: v.literal(true),
  collections: v.array(rowSchema),
  total: integer('Number of collections of the sync, on all pages.'),
})

export type CollectionsAnswer = v.InferOutput<typeof collectionsAnswerSchema>

export const collectionsPage = numberParameters({
  limit: { least: 1, most: 200, usual: 100, meaning: 'Rows to show.' },
  after: { least: 0, most: 999_999_999, usual: 0, meaning: 'Rows to skip: the number of rows already shown.' },
})

function renderCollections(report: CollectionsReport): CollectionsAnswer {
  return { success: true, collections: report.collections.map(renderRow), total: whole(report.total) }
}

const written = new WeakMap<CollectionsReport, string>()

/** The report as JSON. Requests at the same moment share one report, which is therefore serialized only once. */
export function writeCollections(report: CollectionsReport): string {
  const known = written.get(report) ?? JSON.stringify(renderCollections(report))
  written.set(report, known)
  return known
}

function renderRow({ namespace, destinationNamespace, copy, indexes, verification, mismatches }: CollectionRow) {
  return {
    namespace,
    ...(destinationNamespace === undefined ? {} : { destinationNamespace }),
    copy: {
      ended: copy.ended,
      converging: copy.converging,
      estimatedTotalBytes: whole(copy.estimatedTotalBytes),
      estimatedCopiedBytes: whole(copy.estimatedCopiedBytes),
      estimatedDocumentCount: whole(copy.estimatedDocumentCount),
      copiedDocumentCount: whole(copy.copiedDocumentCount),
    },
    indexes: {
      total: whole(indexes.total),
      built: whole(indexes.built),
      heldBack: whole(indexes.heldBack),
      missing: whole(indexes.missing),
    },
    verification: verification && {
      phase: verification.phase,
      hashedDocumentCount: whole(verification.hashedDocumentCount),
      hashedRanges: whole(verification.hashedRanges),
      totalRanges: whole(verification.totalRanges),
    },
    mismatches: whole(mismatches),
  }
}
