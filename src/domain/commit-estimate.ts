import { idleLagSeconds } from './catch-up.ts'
import type { CommitEstimate, CommitWait } from './commit-request.ts'

/** The input of an estimate. Each figure counts the work that is still to be done. */
export interface CommitFigures {
  /** Lag of change event application in seconds; null if it is unknown or every event of the commit is applied. */
  lagSeconds: number | null
  /** How many seconds of source changes are applied per second, measured recently; null before it is known. */
  appliedPerSecond: number | null
  /** Documents that must still be compared, and how many are compared per second; null if no verifier runs here. */
  verification: { open: number; perSecond: number } | null
  /** Collections and views whose definitions the commit compares once more. */
  collections: number
  /** Unique indexes that the commit prepares (`prepareUnique`), so that they reject duplicates from then on. */
  uniqueIndexes: number
  /** Entries of the indexes that must be built before the commit can begin: one for each document and index. */
  indexEntries: number
  /** Documents of capped collections, whose order the commit compares. */
  cappedDocuments: number
  /** Milliseconds of a round trip to the slower of the two clusters. */
  roundTripMS: number
}

/** Seconds to store the about twelve steps of a commit, in addition to its waits. Measured on an idle machine. */
const fixedSeconds = 0.6
/** Number of sequential round trips in a commit, derived from a measurement with round trips of 50 ms. */
const roundTrips = 50
/** Measured on two cores that also ran both servers; a larger machine is faster. */
const collectionsPerSecond = 12_000
const uniqueIndexesPerSecond = 150
/** A build scans the collection once, and sorts the entries of all of its indexes. */
const indexEntriesPerSecond = 200_000
const cappedDocumentsPerSecond = 60_000
/** The rate of a slow machine. It is assumed until a rate has been measured. */
const assumedAppliedPerSecond = 1
/** A wait shorter than this many seconds is not listed. */
const listedSecondsMin = 0.1

/** Estimates the seconds from `commit` (from now, if a commit is in progress) to `canWrite`, and lists the waits in them. */
export function estimateCommit(figures: CommitFigures): CommitEstimate {
  const { lagSeconds, appliedPerSecond, verification, roundTripMS } = figures
  const waits: [what: string, seconds: number][] = [
    [
      'changes to be applied',
      Math.max(0, (lagSeconds ?? 0) - idleLagSeconds) / Math.max(appliedPerSecond ?? assumedAppliedPerSecond, 0.1),
    ],
    ['documents to be compared', verification ? verification.open / Math.max(verification.perSecond, 1) : 0],
    // A commit is refused until all indexes are built, so this wait is listed even if its estimate is short.
    ['indexes to be built', figures.indexEntries === 0 ? 0 : Math.max(1, figures.indexEntries / indexEntriesPerSecond)],
    ['definitions to be compared', figures.collections / collectionsPerSecond],
    ['unique indexes to be converted', figures.uniqueIndexes / uniqueIndexesPerSecond],
    ['capped collections to be put in order', figures.cappedDocuments / cappedDocumentsPerSecond],
    ['round trips', (roundTrips * roundTripMS) / 1000],
  ]
  const total = waits.reduce((sum, [, seconds]) => sum + seconds, fixedSeconds)
  const waitingFor: CommitWait[] = waits
    .filter(([, seconds]) => seconds >= listedSecondsMin)
    .map(([what, seconds]) => ({ what, estimatedSeconds: tenths(seconds) }))
  return { estimatedSeconds: tenths(total), waitingFor }
}

function tenths(seconds: number): number {
  return Math.round(seconds * 10) / 10
}
