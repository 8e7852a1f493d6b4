import type { StoredRecheck, VerificationStore } from '../mongo/verification-store.ts'
import type { Rechecks } from './rechecks.ts'

/** Interval between pages of stored rechecks that are compared again. There may be a million real differences. */
const revisitMS = 2_000
/**
 * Interval between pages until all stored rechecks are read once, because an earlier process may have left tens of
 * thousands whose documents are equal by now. It also applies while other instances store rechecks.
 */
const firstRevisitMS = 200
const revisitedAtOnce = 1_000

export interface RevisitParts {
  store: VerificationStore
  rechecks: Rechecks
  signal: AbortSignal
  /** True while other comparisons come first. */
  isPostponed: () => boolean
  /** True while other instances store rechecks. */
  isGrowing: () => boolean
  /** Runs work that no comparison and no checkpoint may interrupt. */
  exclusively: <T>(work: () => Promise<T>) => Promise<T>
  pause: (milliseconds: number) => Promise<void>
}

/**
 * Has stored rechecks compared again: those of an earlier process, those that another instance has stored, and those that
 * stayed different for a while. Otherwise the verdict would also have to compare documents that have become equal since,
 * while writes are blocked.
 */
export async function revisitStored(parts: RevisitParts): Promise<void> {
  const { store, rechecks, signal, isPostponed, isGrowing, exclusively, pause } = parts
  let after: StoredRecheck | null = null
  // The number of rounds that are still to be read at the short interval. Other instances may store rechecks behind the
  // position of a round, so one more round follows when they have ended.
  let quickRounds = 1
  while (!signal.aborted) {
    if (isGrowing()) quickRounds = 2
    await pause(quickRounds > 0 ? firstRevisitMS : revisitMS)
    if (isPostponed()) continue
    // This must not run during a checkpoint, which may remove the entries that were just read.
    after = await exclusively(async () => {
      const page: StoredRecheck[] = await store.readRechecks(after, revisitedAtOnce)
      for (const recheck of page) rechecks.revisit(recheck)
      return page.at(-1) ?? null
    })
    if (after === null && quickRounds > 0) quickRounds -= 1
  }
}
