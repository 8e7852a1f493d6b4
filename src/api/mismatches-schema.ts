import * as v from 'valibot'
import { listedMax, type Mismatch } from '../domain/mismatch.ts'
import { numberParameters } from './query-parameters.ts'
import { objectOf } from './strict-schema.ts'

/** The answer of `GET /api/v1/verification/mismatches`. It contains names, and no values of documents except `_id`s. */

const text = (meaning: string) => v.pipe(v.string(), v.description(meaning))

const mismatchSchema = objectOf({
  namespace: text('database.collection, as on the source.'),
  destinationNamespace: v.exactOptional(
    text('database.collection on the destination, if namespaceRemap gives it another name there.'),
  ),
  kind: v.pipe(
    v.picklist(['missing', 'extra', 'content', 'index', 'option', 'collection']),
    v.description('missing, extra and content are about a document, the others about a definition.'),
  ),
  id: v.exactOptional(v.pipe(v.unknown(), v.description('The _id as canonical Extended JSON.'))),
  field: v.exactOptional(text('Path of the first field that differs, or the name of the index or option.')),
  by: v.exactOptional(
    v.pipe(
      v.picklist(['sync', 'foreignWrite']),
      v.description('The cause, inferred from both change streams; absent if it is not certain.'),
    ),
  ),
})

export const mismatchesAnswerSchema = objectOf({
  success: v.literal(true),
  mismatches: v.array(mismatchSchema),
  total: v.pipe(v.number(), v.integer(), v.minValue(0), v.description('All differences, listed or not.')),
  truncated: v.pipe(v.boolean(), v.description('Not all differences are listed.')),
})

export const mismatchesPage = numberParameters({
  limit: { least: 1, most: listedMax, usual: listedMax, meaning: 'Differences to list.' },
})

export type MismatchesAnswer = v.InferOutput<typeof mismatchesAnswerSchema>

export const repairedSchema = objectOf({
  success: v.literal(true),
  repairedDocuments: v.pipe(v.number(), v.integer(), v.minValue(0), v.description('Documents reconciled.')),
  convergingCollections: v.exactOptional(
    v.pipe(
      v.number(),
      v.integer(),
      v.minValue(1),
      v.description(
        'Number of collections that repair could not make equal. tandem has aborted the commit and converges these collections.',
      ),
    ),
  ),
})

/** The parameter's type is written out, because the dashboard is type-checked without Node's types. */
export function renderRepaired({
  repairedDocuments,
  convergingCollections,
}: {
  repairedDocuments: number
  convergingCollections: number
}) {
  return { repairedDocuments, ...(convergingCollections === 0 ? {} : { convergingCollections }) }
}

/** @param limit maximum number of differences to list */
export function renderMismatches({ mismatches, total }: { mismatches: Mismatch[]; total: number }, limit: number) {
  const listed = mismatches.slice(0, limit).map(({ namespace, destinationNamespace, kind, id, field, by }) => ({
    namespace,
    ...(destinationNamespace === undefined ? {} : { destinationNamespace }),
    kind,
    ...(id === undefined ? {} : { id }),
    ...(field === undefined ? {} : { field }),
    ...(by === undefined ? {} : { by }),
  }))
  return { success: true as const, mismatches: listed, total, truncated: total > listed.length }
}
