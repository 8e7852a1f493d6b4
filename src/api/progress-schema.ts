import * as v from 'valibot'
import { initialCompareMethods } from '../domain/compare-method.ts'
import { errorDetails } from '../domain/error-details.ts'
import { causeOfFailure } from '../domain/errors.ts'
import type { Progress, VerificationSide } from '../domain/progress.ts'
import { redactUris } from '../domain/uri-rules.ts'
import { commitEstimateSchema, rehearsalSchema } from './commit-schema.ts'
import { limitsSchema, renderLimits } from './limits-schema.ts'
import { detailEntries } from './schemas.ts'
import { objectOf } from './strict-schema.ts'

/** The answer of `GET /api/v1/progress`. Fields of `Progress` that the schema does not list are not sent. */

const described = <Schema extends v.GenericSchema>(schema: Schema, meaning: string) =>
  v.pipe(schema, v.description(meaning))
const integer = (meaning: string) => v.pipe(v.number(), v.integer(), v.minValue(0), v.description(meaning))
const text = (meaning: string) => v.pipe(v.string(), v.description(meaning))

const verificationSideSchema = objectOf({
  estimatedDocumentCount: integer('Estimated documents on that cluster.'),
  hashedDocumentCount: integer('Documents on that cluster that the verifier has compared.'),
  lagTimeSeconds: integer(
    'Seconds between the newest known change on that cluster and the newest one that the verifier has read.',
  ),
  phase: text('Current verification phase on that cluster.'),
  scannedCollectionCount: integer('Collections scanned by the verifier on that cluster.'),
  totalCollectionCount: integer('Collections on that cluster included in verification.'),
})

const pingSchema = (cluster: string) =>
  described(
    objectOf({
      pingLatencyMs: v.pipe(
        v.number(),
        v.integer(),
        v.minValue(-1),
        v.description('Duration of the last ping in milliseconds, rounded up; -1 if it failed.'),
      ),
    }),
    `Round trip from this instance to the ${cluster} cluster. Present in RUNNING and COMMITTING.`,
  )

const failureSchema = objectOf({
  error: text('Name of the failure.'),
  errorDescription: text('What failed and how to fix it.'),
  ...detailEntries,
})

export const progressSchema = objectOf({
  state: described(
    v.picklist(['IDLE', 'RUNNING', 'PAUSED', 'COMMITTING', 'COMMITTED', 'REVERSING', 'FAILED']),
    'Current state. In IDLE every other field is null or absent, except canCommit and, if there are any, warnings.',
  ),
  canCommit: described(v.boolean(), 'True if a commit request would be accepted.'),
  canWrite: described(v.nullable(v.boolean()), 'True if writes are permitted on the destination.'),
  info: described(
    v.nullable(
      v.picklist(['collection copy', 'change event application', 'waiting for commit to complete', 'commit completed']),
    ),
    'What the instance is doing.',
  ),
  lagTimeSeconds: v.nullable(
    integer(
      'Seconds between the newest source event and the newest applied one; null while PAUSED, FAILED or REVERSING.',
    ),
  ),
  lag: v.exactOptional(
    described(
      objectOf({
        overallLagSeconds: integer('The value of lagTimeSeconds.'),
        crudLagSeconds: integer('The same value.'),
        ddlLagSeconds: integer('The same value.'),
      }),
      'The lag in the form of mongosync 1.21 and later. tandem applies changes of documents and DDL from one change stream, so there is only one lag. Absent if lagTimeSeconds is null.',
    ),
  ),
  totalEventsApplied: v.nullable(
    integer('Approximate number of change events that this process has applied; not persisted.'),
  ),
  collectionCopy: v.nullable(
    objectOf({
      estimatedTotalBytes: integer('Estimated bytes to copy across all instances; 1 before the copy.'),
      estimatedCopiedBytes: integer(
        'Estimated bytes copied by this instance, and for the coordinator also by lost instances; never above the total.',
      ),
    }),
  ),
  directionMapping: v.nullable(
    objectOf({
      Source: text('<cluster name>: <host>:<port>'),
      Destination: text('<cluster name>: <host>:<port>'),
    }),
  ),
  mongosyncID: v.nullable(text('Identifier of this instance.')),
  coordinatorID: v.nullable(text('Identifier of the coordinator; null until it is known.')),
  verification: v.nullable(
    objectOf({
      source: verificationSideSchema,
      destination: verificationSideSchema,
      initialCompareMethod: v.exactOptional(
        described(
          v.picklist(initialCompareMethods),
          'How the first verification compares documents; absent if it compares bytes.',
        ),
      ),
    }),
  ),
  comparedDocumentCount: v.exactOptional(
    integer(
      'Documents of the source that this process has compared in the first pass of the verifier; not persisted. Absent while it has compared none.',
    ),
  ),
  failure: v.exactOptional(described(failureSchema, 'Why the instance is FAILED.')),
  warnings: v.exactOptional(v.array(text('A warning for the operator.'))),
  estimatedSecondsToCatchUp: v.exactOptional(
    integer(
      'Estimated seconds until the lag of this instance is gone, based on how the lag changed in the last half minute. Absent while the collection copy runs, outside RUNNING, and while the lag does not decrease.',
    ),
  ),
  estimatedSecondsToCEACatchup: v.exactOptional(integer("The same value under mongosync's name.")),
  estimatedOplogTimeRemaining: v.exactOptional(
    text('How long the sync could stop before the source oplog overwrites its position.'),
  ),
  convergingCollections: v.exactOptional(
    integer(
      'Number of collections that this instance still has to make equal to the source, because they existed on the destination or are compared again. Only what differs is written. Absent if there is none.',
    ),
  ),
  indexBuilding: v.exactOptional(
    described(
      objectOf({
        indexesBuilt: integer('Indexes that exist on the destination.'),
        totalIndexesToBuild: integer('Indexes to build, including those that exist.'),
        collectionsFinished: integer('Collections whose indexes all exist on the destination.'),
        collectionsTotal: integer('Collections that have an index to build.'),
      }),
      'Index builds of the whole sync, without the _id indexes. Absent if buildIndexes is never, and if there is no index to build.',
    ),
  ),
  source: v.exactOptional(pingSchema('source')),
  destination: v.exactOptional(pingSchema('destination')),
  limits: v.exactOptional(described(limitsSchema, 'Limits on bulk work; absent while only --loadLevel limits it.')),
  commit: v.exactOptional(described(commitEstimateSchema, 'How long a commit would take, or will still take.')),
  lastRehearsal: v.exactOptional(described(rehearsalSchema, 'Result of the last rehearsal of the commit.')),
  retrying: v.exactOptional(
    objectOf({ what: text('What is being retried.'), since: text('When the retries began, ISO 8601.') }),
  ),
})

export const progressAnswerSchema = objectOf({ progress: progressSchema, success: v.literal(true) })

type RenderedProgress = v.InferOutput<typeof progressSchema>

/** Copies the public fields, with whole numbers and without connection strings in free text. */
export function renderProgress(progress: Progress): RenderedProgress {
  const { collectionCopy, directionMapping, verification, failure, indexBuilding, limits, retrying } = progress
  const { commit, lastRehearsal } = progress
  return {
    state: progress.state,
    canCommit: progress.canCommit,
    canWrite: progress.canWrite,
    info: progress.info,
    ...renderLag(progress),
    totalEventsApplied: progress.totalEventsApplied === null ? null : whole(progress.totalEventsApplied),
    collectionCopy: collectionCopy && {
      estimatedTotalBytes: whole(collectionCopy.estimatedTotalBytes),
      estimatedCopiedBytes: whole(collectionCopy.estimatedCopiedBytes),
    },
    directionMapping: directionMapping && {
      Source: redactUris(directionMapping.Source),
      Destination: redactUris(directionMapping.Destination),
    },
    mongosyncID: progress.mongosyncID,
    coordinatorID: progress.coordinatorID,
    verification: verification && {
      source: renderSide(verification.source),
      destination: renderSide(verification.destination),
      ...(verification.initialCompareMethod && { initialCompareMethod: verification.initialCompareMethod }),
    },
    ...(progress.comparedDocumentCount !== undefined && {
      comparedDocumentCount: whole(progress.comparedDocumentCount),
    }),
    ...(failure && {
      failure: {
        error: failure.error,
        errorDescription: redactUris(failure.errorDescription),
        ...errorDetails(failure.error, causeOfFailure(failure)),
      },
    }),
    ...(progress.warnings && { warnings: progress.warnings.map(redactUris) }),
    ...(progress.estimatedSecondsToCatchUp !== undefined && {
      estimatedSecondsToCatchUp: whole(progress.estimatedSecondsToCatchUp),
      estimatedSecondsToCEACatchup: whole(progress.estimatedSecondsToCatchUp),
    }),
    ...(progress.estimatedOplogTimeRemaining !== undefined && {
      estimatedOplogTimeRemaining: progress.estimatedOplogTimeRemaining,
    }),
    ...(progress.convergingCollections !== undefined && {
      convergingCollections: whole(progress.convergingCollections),
    }),
    ...(indexBuilding && {
      indexBuilding: {
        indexesBuilt: whole(indexBuilding.indexesBuilt),
        totalIndexesToBuild: whole(indexBuilding.totalIndexesToBuild),
        collectionsFinished: whole(indexBuilding.collectionsFinished),
        collectionsTotal: whole(indexBuilding.collectionsTotal),
      },
    }),
    ...(progress.source && { source: renderPing(progress.source) }),
    ...(progress.destination && { destination: renderPing(progress.destination) }),
    ...(limits && { limits: renderLimits(limits) }),
    ...(commit && {
      commit: { estimatedSeconds: commit.estimatedSeconds, waitingFor: commit.waitingFor.map((one) => ({ ...one })) },
    }),
    ...(lastRehearsal && { lastRehearsal: { ...lastRehearsal, verdict: redactUris(lastRehearsal.verdict) } }),
    ...(retrying && { retrying: { what: redactUris(retrying.what), since: retrying.since } }),
  }
}

function renderLag({ lagTimeSeconds }: Progress): Pick<RenderedProgress, 'lagTimeSeconds' | 'lag'> {
  if (lagTimeSeconds === null) return { lagTimeSeconds }
  const seconds = whole(lagTimeSeconds)
  return {
    lagTimeSeconds: seconds,
    lag: { overallLagSeconds: seconds, crudLagSeconds: seconds, ddlLagSeconds: seconds },
  }
}

function renderPing({ pingLatencyMs }: { pingLatencyMs: number }): { pingLatencyMs: number } {
  return { pingLatencyMs: pingLatencyMs < 0 ? -1 : whole(pingLatencyMs) }
}

function renderSide(side: VerificationSide): VerificationSide {
  return {
    estimatedDocumentCount: whole(side.estimatedDocumentCount),
    hashedDocumentCount: whole(side.hashedDocumentCount),
    lagTimeSeconds: whole(side.lagTimeSeconds),
    phase: side.phase,
    scannedCollectionCount: whole(side.scannedCollectionCount),
    totalCollectionCount: whole(side.totalCollectionCount),
  }
}

/**
 * Rounds down to a whole number of at least 0. Estimates and clock differences may be fractional or slightly
 * negative, and JSON would print NaN as null.
 */
export function whole(value: number): number {
  return Number.isFinite(value) ? Math.max(0, Math.floor(value)) : 0
}
