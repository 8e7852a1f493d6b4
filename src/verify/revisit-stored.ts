import type { StoredRecheck, VerificationStore } from '../mongo/verification-store.ts'
import type { Rechecks } from './rechecks.ts'

/**
 * Interval between two pages of stored rechecks that are compared again. There may be a million real differences, and
 * comparing them again and again must not load the clusters.
 */
const revisitMS = 2_000
/**
 * The shorter interval of a quick round. The first round is quick, because an earlier process may have left tens of
 * thousands of rechecks whose documents are equal by now. Rounds are also quick while other instances store rechecks.
 */
const firstRevisitMS = 200
const revisitedAtOnce = 1_000

export interface RevisitParts {
  store: VerificationStore
  rechecks: Rechecks
  signal: AbortSignal
  /** True while other work has priority. */
  isPostponed: () => boolean
  /** True while other instances store rechecks. */
  isGrowing: () => boolean
  /** Runs work that no comparison and no checkpoint may interrupt. */
  exclusively: <T>(work: () => Promise<T>) => Promise<T>
  pause: (milliseconds: number) => Promise<void>
}

/**
 * Compares stored rechecks again: those of an earlier process, those that another instance has found different, and
 * those that stayed different for a while. Many of these documents become equal in the meantime. If they were not
 * compared here, the verdict would have to compare them while writes are blocked.
 */
export async function revisitStored(parts: RevisitParts): Promise<void> {
  const { store, rechecks, signal, isPostponed, isGrowing, exclusively, pause } = parts
  let after: StoredRecheck | null = null
  // The number of quick rounds that remain. A round reads all stored rechecks once. After the other instances have
  // stored their last recheck, one more complete round is needed, because the current round may already be past that
  // recheck.
  let quickRounds = 1
  while (!signal.aborted) {
    if (isGrowing()) quickRounds = 2
    await pause(quickRounds > 0 ? firstRevisitMS : revisitMS)
    if (isPostponed()) continue
    // No checkpoint may run meanwhile, because it may remove the entries that were just read.
    after = await exclusively(async () => {
      const page: StoredRecheck[] = await store.readRechecks(after, revisitedAtOnce)
      for (const recheck of page) rechecks.revisit(recheck)
      return page.at(-1) ?? null
    })
    if (after === null && quickRounds > 0) quickRounds -= 1
  }
}
