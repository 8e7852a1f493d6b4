import { setTimeout as sleep } from 'node:timers/promises'
import { RefusedError, StoppedError } from '../domain/errors.ts'
import { leaseMS } from '../mongo/lease-watch.ts'
import type { SyncSession } from './sync-session.ts'

/**
 * How long a command waits for the lease, ms: twice the duration of a lease. An unrenewed lease takes that duration to
 * expire, and the work under it may take as long to end. The sum is less than the 30 s for which a command to all
 * instances is waited for, so that the refusal is answered there.
 */
const leasePatienceMS = 2 * leaseMS
const askAgainMS = 200

export interface LeasedSync {
  /**
   * The session of the current direction. A reversal replaces it, and gives the former one's lease back for good. Null
   * when the sync no longer exists.
   */
  readonly session: SyncSession | null
  /** Resolves when all runs that were left have ended. The lease is not taken before. */
  readonly ended: Promise<unknown>
  /** Throws when another process has taken the lease over: it is not taken back. */
  refuseTakenOver(): void
}

/** Limits how long one command waits for work that requires its instance's lease. After that the command is refused. */
export class LeasePatience {
  readonly #command: string
  /** Aborted when the time is over. */
  readonly signal = AbortSignal.timeout(leasePatienceMS)

  /** @param command the command's name in the API */
  constructor(command: string) {
    this.#command = command
  }

  /**
   * Resolves when this process may write under its lease; takes the lease if it has none. Throws RefusedError
   * ClusterUnreachable when the time is over first: nothing was changed then.
   */
  async held(sync: LeasedSync): Promise<void> {
    const take = async (): Promise<void> => {
      await sync.ended
      sync.refuseTakenOver()
      // Read the session again, because a reversal may have replaced it.
      await sync.session?.hold()
    }
    const isDone = (): boolean => sync.session === null || isHeld(sync.session)
    while (!isDone()) {
      sync.refuseTakenOver()
      const lease = sync.session?.lease
      await this.bounded(lease?.held ? lease.verify() : take(), 'nothing was changed')
      if (!isDone()) await sleep(askAgainMS)
    }
  }

  /**
   * Runs the action under the lease. If the lease is lost in the meantime, as when Redis was away, the next lease term
   * repeats it.
   * @param stopped aborted when this process stops
   */
  async withLease<T>(sync: LeasedSync, stopped: AbortSignal, action: (until: AbortSignal) => Promise<T>): Promise<T> {
    for (;;) {
      await this.held(sync)
      try {
        return await this.bounded(action(this.signal), 'whether it was stored shows in progress')
      } catch (error) {
        if (!(error instanceof StoppedError) || stopped.aborted) throw error
      }
    }
  }

  /**
   * Waits for the promise until the time is over. Throws RefusedError ClusterUnreachable then.
   * @param effect what the command has changed by then, as text for the refusal
   */
  async bounded<T>(waited: Promise<T>, effect: string): Promise<T> {
    const { signal } = this
    let onAbort = (): void => {}
    const over = new Promise<never>((_, reject) => {
      onAbort = () => reject(this.#refusal(effect))
      if (signal.aborted) onAbort()
      else signal.addEventListener('abort', onAbort, { once: true })
    })
    try {
      return await Promise.race([waited, over])
    } finally {
      signal.removeEventListener('abort', onAbort)
      waited.catch(() => {})
    }
  }

  #refusal(effect: string): RefusedError {
    return new RefusedError(
      'ClusterUnreachable',
      `this instance's lease on the destination could neither be renewed nor taken within ${leasePatienceMS / 1_000} seconds, and ` +
        `${this.#command} cannot be stored without it; ${effect}. Check the destination and the way to it, then send ${this.#command} again`,
    )
  }
}

function isHeld({ lease }: SyncSession): boolean {
  if (!lease.held) return false
  try {
    lease.fence()
    return true
  } catch {
    return false
  }
}
