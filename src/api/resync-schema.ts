import * as v from 'valibot'
import { RefusedError } from '../domain/errors.ts'
import type { NamespaceName } from '../domain/namespace.ts'
import { describeIssues, objectOf } from './strict-schema.ts'

/** The body of `POST /api/v1/resync`. */

const name = (meaning: string) => v.pipe(v.string(), v.minLength(1, 'must not be empty'), v.description(meaning))

export const resyncBodySchema = objectOf({
  namespaces: v.pipe(
    v.array(
      objectOf({
        database: name('Database of the collection.'),
        collection: name('Name of the collection, on both clusters.'),
      }),
    ),
    v.minLength(1, 'must not be empty'),
    v.description('Collections to compare with the source again. What differs is written.'),
  ),
})

/**
 * Parses the body of a resync.
 * @throws RefusedError InvalidRequest that names the invalid field
 */
export function parseResync(body: Record<string, unknown>): NamespaceName[] {
  const parsed = v.safeParse(resyncBodySchema, body)
  if (!parsed.success) throw new RefusedError('InvalidRequest', describeIssues(parsed.issues))
  return parsed.output.namespaces
}
