import * as v from 'valibot'
import { instancesAnswerSchema } from './instances-schema.ts'
import { progressSchema } from './progress-schema.ts'
import { objectOf } from './strict-schema.ts'

/** The events of `GET /api/v1/events`: the history once, then a sample each second. */

const { instances, totals } = instancesAnswerSchema.entries

export const sampleSchema = objectOf({
  at: v.pipe(v.number(), v.integer(), v.description('Time of the sample, milliseconds since the epoch.')),
  self: v.pipe(
    v.nullable(v.string()),
    v.description('mongosyncID of the instance that sends the event; null before a start.'),
  ),
  problem: v.pipe(
    v.nullable(v.string()),
    v.description('Why data is missing, for instance because a cluster does not answer yet.'),
  ),
  problemError: v.pipe(
    v.nullable(v.string()),
    v.description('Name of the error behind `problem`; null if there is none.'),
  ),
  progress: v.pipe(v.nullable(progressSchema), v.description('Progress of that instance; null while it connects.')),
  instances,
  totals,
})

export type Sample = v.InferOutput<typeof sampleSchema>

/**
 * Totals of one moment: milliseconds since the epoch, bytes copied, total bytes, events applied, lag in seconds. A point
 * is an array, which is shorter than an object: each new client receives about two thousand points.
 */
export type HistoryPoint = [at: number, copied: number, total: number, events: number, lag: number | null]
