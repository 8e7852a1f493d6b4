import * as v from 'valibot'
import type { InstancesReport } from '../domain/instances.ts'
import { progressSchema, renderProgress, whole } from './progress-schema.ts'
import { objectOf } from './strict-schema.ts'

/** The answer of `GET /api/v1/instances`: every instance of the sync that this one knows, and their totals. */

const integer = (meaning: string) => v.pipe(v.number(), v.integer(), v.minValue(0), v.description(meaning))

const instanceSchema = objectOf({
  mongosyncID: v.pipe(v.string(), v.description('Identifier of the instance.')),
  coordinator: v.pipe(v.boolean(), v.description('The instance is the coordinator of the sync.')),
  status: v.pipe(
    v.picklist(['alive', 'lost']),
    v.description(
      'lost: no heartbeat has arrived for 10 seconds (with Redis: 3 seconds); the other instances take over its work when its lease has expired.',
    ),
  ),
  lastSeenSeconds: integer('Seconds since its last heartbeat.'),
  partitions: v.pipe(
    v.array(v.pipe(v.number(), v.integer(), v.minValue(0))),
    v.description('Numbers of the partitions of the change stream whose changes the instance applies.'),
  ),
  progress: v.pipe(progressSchema, v.description('Its progress at its last heartbeat.')),
})

const totalsSchema = objectOf({
  estimatedCopiedBytes: integer('Sum over all instances.'),
  estimatedTotalBytes: integer('Estimated bytes to copy, of all instances together.'),
  percent: v.pipe(
    v.number(),
    v.minValue(0),
    v.maxValue(100),
    v.description('Share of the total that is copied, with two decimals.'),
  ),
  lagTimeSeconds: v.nullable(integer('The largest lag of the live instances; null when none of them reports one.')),
  totalEventsApplied: integer('Sum over all instances.'),
  comparedDocumentCount: v.exactOptional(integer('Sum over all instances. Absent while none has compared a document.')),
})

export const instancesAnswerSchema = objectOf({
  success: v.literal(true),
  instances: v.array(instanceSchema),
  totals: totalsSchema,
})

/** Copies the public fields. Each progress has the form of `GET /api/v1/progress`. */
export function renderInstances({ instances, totals }: InstancesReport): v.InferOutput<typeof instancesAnswerSchema> {
  return {
    success: true,
    instances: instances.map((row) => ({
      mongosyncID: row.mongosyncID,
      coordinator: row.coordinator,
      status: row.status,
      lastSeenSeconds: whole(row.lastSeenSeconds),
      partitions: row.partitions.map(whole),
      progress: renderProgress(row.progress),
    })),
    totals: {
      estimatedCopiedBytes: whole(totals.estimatedCopiedBytes),
      estimatedTotalBytes: whole(totals.estimatedTotalBytes),
      percent: Number.isFinite(totals.percent) ? totals.percent : 0,
      lagTimeSeconds: totals.lagTimeSeconds === null ? null : whole(totals.lagTimeSeconds),
      totalEventsApplied: whole(totals.totalEventsApplied),
      ...(totals.comparedDocumentCount !== undefined && {
        comparedDocumentCount: whole(totals.comparedDocumentCount),
      }),
    },
  }
}
