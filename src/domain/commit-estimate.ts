import type { CommitEstimate, CommitWait } from './commit-request.ts'

/** What an estimate of a commit goes by. Each figure is of what is still to be done. */
export interface CommitFigures {
  /** Seconds by which the application of changes is behind; null once everything is applied. */
  lagSeconds: number | null
  /** Seconds of the source's time that are applied in a second, measured lately; null before it is known. */
  appliedPerSecond: number | null
  /** Documents whose comparison is outstanding, and how many are compared in a second. */
  verification: { open: number; perSecond: number } | null
  /** Collections and views whose definitions are compared once more. */
  collections: number
  /** Unique indexes that begin to refuse duplicates. */
  uniqueIndexes: number
  /** Documents of capped collections, whose order is compared. */
  cappedDocuments: number
  /** Milliseconds of a round trip: to the source and to the destination, the slower counts. */
  roundTripMS: number
}

/** What every commit takes beside what it waits for: a dozen stored steps, on an idle machine. */
const fixedSeconds = 0.6
/** Round trips that a commit takes one after another: measured at 50 ms. */
const roundTrips = 50
/** Measured on two cores with both servers; a wider machine is faster. */
const collectionsPerSecond = 4_000
const uniqueIndexesPerSecond = 150
const cappedDocumentsPerSecond = 60_000
/** A lag of a second is that of whole seconds, and of no-op writes on the source. */
const idleLagSeconds = 1
/** Before a rate is known: as fast as a slow machine catches up. */
const assumedAppliedPerSecond = 1
/** What takes less is not worth naming. */
const namedSeconds = 0.1

/** Seconds from `commit` (or from now, while it is under way) to `canWrite`, and what makes them. */
export function estimateCommit(figures: CommitFigures): CommitEstimate {
  const { lagSeconds, appliedPerSecond, verification, roundTripMS } = figures
  const waits: [what: string, seconds: number][] = [
    [
      'changes to be applied',
      Math.max(0, (lagSeconds ?? 0) - idleLagSeconds) / Math.max(appliedPerSecond ?? assumedAppliedPerSecond, 0.1),
    ],
    ['documents to be compared', verification ? verification.open / Math.max(verification.perSecond, 1) : 0],
    ['definitions to be compared', figures.collections / collectionsPerSecond],
    ['unique indexes to be converted', figures.uniqueIndexes / uniqueIndexesPerSecond],
    ['capped collections to be put in order', figures.cappedDocuments / cappedDocumentsPerSecond],
    ['round trips', (roundTrips * roundTripMS) / 1000],
  ]
  const total = waits.reduce((sum, [, seconds]) => sum + seconds, fixedSeconds)
  const waitingFor: CommitWait[] = waits
    .filter(([, seconds]) => seconds >= namedSeconds)
    .map(([what, seconds]) => ({ what, estimatedSeconds: tenths(seconds) }))
  return { estimatedSeconds: tenths(total), waitingFor }
}

function tenths(seconds: number): number {
  return Math.round(seconds * 10) / 10
}
