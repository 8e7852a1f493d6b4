import pLimit from 'p-limit'
import type { SyncSession } from './sync-session.ts'

/**
 * The session in which this instance takes part in a sync. A reversal replaces it with the session of the other
 * direction.
 */
export class CurrentSession {
  /** Null before the sync exists. */
  session: SyncSession | null = null
  /** Runs one swap at a time, because the next swap takes the lease that an abandoned swap gives back. */
  readonly #swaps = pLimit(1)

  /** Resolves when all direction swaps and the work of all states that the machine has left have ended. */
  get ended(): Promise<unknown> {
    return Promise.all([this.#swaps(() => {}), this.session?.ended])
  }

  /** Replaces the session with the one that `swap` resolves with. */
  replace(swap: () => Promise<SyncSession>): Promise<void> {
    return this.#swaps(async () => {
      this.session = await swap()
    })
  }
}
