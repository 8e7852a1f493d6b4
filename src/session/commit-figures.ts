import type { CommitFigures } from '../domain/commit-estimate.ts'
import { isCapped, traitsOf } from '../domain/definition.ts'
import type { SyncWork } from './sync-work.ts'

/** The work that a commit still has to do, as far as the coordinator knows it without reading from the clusters. */
export function commitFigures(work: SyncWork, lagSeconds: number | null): CommitFigures {
  const { catalogue } = work.replication.latest ?? {}
  const entries = catalogue?.entries() ?? []
  const { step } = work.commit.timing
  const isPrepared = step === 'verify' || step === 'lastCheck'
  const unprepared = isPrepared ? [] : entries
  let [uniqueIndexes, cappedDocuments] = [0, 0]
  for (const { wanted, estimatedDocuments } of unprepared) {
    for (const index of wanted.indexes) if (traitsOf(index).unique) uniqueIndexes += 1
    if (isCapped(wanted.options)) cappedDocuments += estimatedDocuments
  }
  return {
    lagSeconds: step === null || step === 'commitPoint' || step === 'applyEvents' ? lagSeconds : null,
    appliedPerSecond: work.figures.appliedPerSecond,
    verification: work.verification.backlog,
    // Definitions of all collections are compared before preparation and again at the verdict.
    collections: entries.length + unprepared.length,
    uniqueIndexes,
    cappedDocuments,
    roundTripMS: work.figures.roundTripMS,
  }
}
