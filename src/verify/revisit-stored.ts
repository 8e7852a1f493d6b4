import type { StoredRecheck, VerificationStore } from '../mongo/verification-store.ts'
import type { Rechecks } from './rechecks.ts'

/** Interval between pages of stored rechecks that are compared again. There may be a million real differences. */
const revisitMS = 2_000
/**
 * Interval until all are read once, because an earlier process may have left tens of thousands that are equal by now, and
 * while other instances store what they find different.
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
 * Compares stored rechecks again: those of an earlier process, those that another instance has found different, and
 * those that stayed different for a while. Otherwise the verdict would also have to compare the ones that have become
 * equal since, while writes are blocked.
 */
export async function revisitStored(parts: RevisitParts): Promise<void> {
  const { store, rechecks, signal, isPostponed, isGrowing, exclusively, pause } = parts
  let after: StoredRecheck | null = null
  // How often all are still to be read quickly. The last round while others store rechecks may have begun before they
  // stored some, so one more round follows.
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
