import { InTurn } from '../domain/in-turn.ts'
import type { SyncSession } from './sync-session.ts'

/**
 * The session in which this instance takes part in a sync. A reversal replaces it by the session of the other direction.
 */
export class CurrentSession {
  /** Null before the sync exists. */
  session: SyncSession | null = null
  /** One swap at a time: the next one takes the lease that an abandoned one gives back. */
  readonly #swaps = new InTurn()

  /** Resolves when everything that was left has ended. */
  get ended(): Promise<unknown> {
    return Promise.all([this.#swaps.idle, this.session?.ended])
  }

  /** Replaces the session by the one that `swap` resolves with. */
  replace(swap: () => Promise<SyncSession>): Promise<void> {
    return this.#swaps.run(async () => {
      this.session = await swap()
    })
  }
}
