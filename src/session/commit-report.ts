import type { InstanceContext } from '../../machines/instance-context.ts'
import { canBeAborted, type SyncSnapshot } from '../../machines/sync-view.ts'
import type { CommitFigures } from '../domain/commit-estimate.ts'
import { plainCommit } from '../domain/commit-request.ts'
import { deferredOptionsOf, isCapped } from '../domain/definition.ts'
import type { PublicState } from '../domain/progress.ts'
import { undoing } from './commit-readiness.ts'
import type { SyncSession } from './sync-session.ts'

/** The work that remains for a commit, as far as the coordinator knows it without reading from the clusters. */
export function commitFigures(session: SyncSession, lagSeconds: number | null): CommitFigures {
  const { catalog } = session.runs.latest ?? {}
  const entries = catalog?.entries() ?? []
  const { step } = session.commit.timing
  const isPrepared = step === 'verify' || step === 'lastCheck'
  const unprepared = isPrepared ? [] : entries
  let [uniqueIndexes, cappedDocuments, indexEntries] = [0, 0, 0]
  for (const { wanted, estimatedDocuments, awaitsIndexes } of unprepared) {
    if (awaitsIndexes) indexEntries += Math.max(1, estimatedDocuments) * wanted.indexes.length
    for (const index of wanted.indexes) if (deferredOptionsOf(index).unique) uniqueIndexes += 1
    if (isCapped(wanted.options)) cappedDocuments += estimatedDocuments
  }
  return {
    lagSeconds: step === null || step === 'commitPoint' || step === 'applyEvents' ? lagSeconds : null,
    appliedPerSecond: session.figures.appliedPerSecond,
    verification: session.verification.backlog,
    // The definitions of all collections are compared before preparation and again at the verdict.
    collections: entries.length + unprepared.length,
    uniqueIndexes,
    indexEntries,
    cappedDocuments,
    roundTripMS: session.figures.roundTrips.slowerMS,
  }
}

/**
 * Returns a warning when a commit waits for this instance because this instance has not received it. The instances that
 * have received it may be gone, so the warning says both how the commit can continue and how to abort it. Empty while no
 * such commit is stored.
 */
export function notReceived(
  sync: SyncSnapshot,
  state: PublicState,
  { commitRequested }: Pick<InstanceContext, 'commitRequested'>,
): string[] {
  const { request, failure } = sync.context
  const isAtRest = state === 'PAUSED' || state === 'FAILED'
  if (commitRequested || !(isAtRest || state === 'RUNNING') || !canBeAborted(sync) || sync.matches('undoing')) return []
  // A running instance joins an attempt by itself once every other instance has received the commit.
  const joins = state === 'RUNNING' && sync.matches('committing') && !sync.matches({ committing: 'gathering' })
  if (joins) return []
  const abort = 'or send tandem abort to any instance; until then, writes that the commit blocks stay blocked'
  if (sync.matches('failed')) {
    return [
      `this instance has not received the commit that is under way, which has failed on another instance with ${failure?.error}: ` +
        `remove that cause and resume that instance, ${abort}`,
    ]
  }
  const { dryRun, maxSeconds } = request ?? plainCommit
  const command = `tandem commit${dryRun ? ' --dry-run' : ''}${maxSeconds === null ? '' : ` --max-seconds ${maxSeconds}`}`
  return [
    `this instance has not received the commit that is under way: ${isAtRest ? 'resume it, then ' : ''}send it the same command (${command}), ${abort}`,
  ]
}

/** Warnings about the last commit or the commit that is under way. */
export function commitWarnings(sync: SyncSnapshot): string[] {
  const { abortReason, lateWrites } = sync.context
  const warnings = abortReason === null ? [] : [abortReason]
  if (sync.matches('undoing')) warnings.push(undoing)
  if (lateWrites?.unchecked) {
    warnings.push(
      `the source could not be checked for late writes after writes on the destination were enabled (${lateWrites.unchecked}); check whether it was written after the commit`,
    )
  }
  if (lateWrites && lateWrites.total > 0) {
    const { total, first } = lateWrites
    warnings.push(
      `the source was written after the last check before the commit decision: ${total} ${total === 1 ? 'write is' : 'writes are'} not on the ` +
        `destination: ${first.join('; ')}${total > first.length ? '; …' : ''}. Apply them there by hand.`,
    )
  }
  return warnings
}
