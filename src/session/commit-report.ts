import type { SyncSnapshot } from '../../machines/sync-view.ts'
import type { CommitFigures } from '../domain/commit-estimate.ts'
import { isCapped, traitsOf } from '../domain/definition.ts'
import { undoing } from './commit-readiness.ts'
import type { SyncSession } from './sync-session.ts'

/** The work that a commit still has to do, as far as the coordinator knows it without reading from the clusters. */
export function commitFigures(work: SyncSession, lagSeconds: number | null): CommitFigures {
  const { catalogue } = work.runs.latest ?? {}
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

/** Warnings about the last commit or the one that is under way. */
export function commitWarnings(sync: SyncSnapshot): string[] {
  const { abortReason, lateWrites } = sync.context
  const warnings = abortReason === null ? [] : [abortReason]
  if (sync.matches('undoing')) warnings.push(undoing)
  if (lateWrites?.unchecked) {
    warnings.push(
      `the source could not be checked for writes while writes moved to the destination (${lateWrites.unchecked}); see whether it was written after the commit`,
    )
  }
  if (lateWrites && lateWrites.total > 0) {
    const { total, first } = lateWrites
    warnings.push(
      `the source was written while writes moved to the destination: ${total} ${total === 1 ? 'write is' : 'writes are'} not on the ` +
        `destination: ${first.join('; ')}${total > first.length ? '; …' : ''}. Apply them there by hand.`,
    )
  }
  return warnings
}
