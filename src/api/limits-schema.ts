import * as v from 'valibot'
import { RefusedError } from '../domain/errors.ts'
import { bytesPerSecondMin, concurrencyMax, type Limits, type LimitsReport } from '../domain/limits.ts'
import { describeIssues, objectOf } from './strict-schema.ts'

/** `GET` and `PATCH /api/v1/limits`: the limits on the load of this instance's bulk work. */

const whole = (least: number, most: number, meaning: string) =>
  v.pipe(
    v.number(),
    v.integer('must be a whole number'),
    v.minValue(least, `must be at least ${least}`),
    v.maxValue(most, `must be at most ${most}`),
    v.description(meaning),
  )
const limit = (least: number, most: number, meaning: string) => v.exactOptional(v.nullable(whole(least, most, meaning)))

export const limitsBodySchema = objectOf({
  bytesPerSecond: limit(
    bytesPerSecondMin,
    Number.MAX_SAFE_INTEGER,
    'Bytes of documents copied, or read for the first verification, each second; null: no limit.',
  ),
  readConcurrency: limit(1, concurrencyMax, 'Ranges of documents read at a time; null: --loadLevel decides.'),
  writeConcurrency: limit(1, concurrencyMax, 'Batches of the copy written at a time; null: --loadLevel decides.'),
})

const backedOffSchema = objectOf({
  reason: v.pipe(v.string(), v.description('Why tandem writes more slowly to the destination.')),
  since: v.pipe(v.string(), v.description('When tandem began to write more slowly, ISO 8601.')),
  writeConcurrency: whole(1, concurrencyMax, 'Batches written at a time until the destination recovers.'),
})

export const limitsSchema = objectOf({
  bytesPerSecond: v.nullable(v.pipe(v.number(), v.integer(), v.description('Null: no limit.'))),
  readConcurrency: whole(1, concurrencyMax, 'Ranges of documents read at a time.'),
  writeConcurrency: whole(1, concurrencyMax, 'Batches of the copy written at a time.'),
  backedOff: v.exactOptional(backedOffSchema),
})

export const limitsAnswerSchema = objectOf({ limits: limitsSchema, success: v.literal(true) })

/**
 * Parses the limits that a request changes.
 * @throws RefusedError InvalidRequest that names the invalid field
 */
export function parseLimits(body: Record<string, unknown>): Partial<Limits> {
  const parsed = v.safeParse(limitsBodySchema, body)
  if (!parsed.success) throw new RefusedError('InvalidRequest', describeIssues(parsed.issues))
  return parsed.output
}

export function renderLimits(report: LimitsReport): v.InferOutput<typeof limitsSchema> {
  const { bytesPerSecond, readConcurrency, writeConcurrency, backedOff } = report
  return { bytesPerSecond, readConcurrency, writeConcurrency, ...(backedOff && { backedOff: { ...backedOff } }) }
}
