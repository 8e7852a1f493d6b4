import * as v from 'valibot'
import { RefusedError } from '../domain/errors.ts'
import type { FilterRequest } from '../domain/filter-request.ts'
import { parseFilters } from './start-body.ts'
import { filterFields } from './start-schema.ts'
import { describeIssues, objectOf } from './strict-schema.ts'

/** The body of `POST /api/v1/filter`. */

export const filterBodySchema = objectOf({
  ...filterFields,
  dropExcluded: v.optional(
    v.pipe(
      v.boolean(),
      v.description('true drops newly excluded collections and views on the destination; false leaves them there.'),
    ),
    false,
  ),
})

/**
 * Parses the body of a filter. A field that is absent means no filter of that kind, as in start.
 * @throws RefusedError InvalidRequest that names the invalid field
 */
export function parseFilter(body: Record<string, unknown>): FilterRequest {
  const parsed = v.safeParse(filterBodySchema, body)
  if (!parsed.success) throw new RefusedError('InvalidRequest', describeIssues(parsed.issues))
  const { includeNamespaces, excludeNamespaces, dropExcluded } = parsed.output
  return {
    includeNamespaces: parseFilters('includeNamespaces', includeNamespaces),
    excludeNamespaces: parseFilters('excludeNamespaces', excludeNamespaces),
    dropExcluded,
  }
}
