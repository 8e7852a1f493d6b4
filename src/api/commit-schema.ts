import * as v from 'valibot'
import type { CommitRequest } from '../domain/commit-request.ts'
import { RefusedError } from '../domain/errors.ts'
import { describeIssues, objectOf } from './strict-schema.ts'

/** The body of `POST /api/v1/commit`, and the commit fields of `progress`. */

/** One day in seconds. A request for a cutover that may take longer can omit `maxSeconds`. */
const maxSecondsMax = 86_400

export const commitBodySchema = objectOf({
  maxSeconds: v.exactOptional(
    v.pipe(
      v.number(),
      v.integer('must be a whole number'),
      v.minValue(1, 'must be at least 1'),
      v.maxValue(maxSecondsMax, `must be at most ${maxSecondsMax}`),
      v.description(
        'Aborts the commit if its decision is not stored within this many seconds. The decision is stored shortly before canWrite becomes true.',
      ),
    ),
  ),
  dryRun: v.exactOptional(
    v.pipe(
      v.boolean(),
      v.description(
        'Rehearses the commit: performs all steps up to the verdict, including the write block on the source if there is one, and returns to RUNNING. See progress.lastRehearsal.',
      ),
    ),
  ),
})

/**
 * Parses the body of a commit.
 * @throws RefusedError InvalidRequest that names the invalid field
 */
export function parseCommit(body: Record<string, unknown>): CommitRequest {
  const parsed = v.safeParse(commitBodySchema, body)
  if (!parsed.success) throw new RefusedError('InvalidRequest', describeIssues(parsed.issues))
  return { dryRun: parsed.output.dryRun ?? false, maxSeconds: parsed.output.maxSeconds ?? null }
}

const seconds = (meaning: string) => v.pipe(v.number(), v.minValue(0), v.description(meaning))
const text = (meaning: string) => v.pipe(v.string(), v.description(meaning))

export const commitEstimateSchema = objectOf({
  estimatedSeconds: seconds(
    'Estimated time until canWrite, counted from commit, or from now while a commit is in progress.',
  ),
  waitingFor: v.array(objectOf({ what: text('Remaining work.'), estimatedSeconds: seconds('How long that takes.') })),
})

export const rehearsalSchema = objectOf({
  at: text('When the rehearsal ended, ISO 8601.'),
  steps: v.array(objectOf({ step: text('A step of the commit.'), seconds: seconds('How long it took.') })),
  outageSeconds: seconds('Seconds during which applications could not write.'),
  verdict: text('equal, not verified, or the name of the failure that would have ended a commit.'),
})
