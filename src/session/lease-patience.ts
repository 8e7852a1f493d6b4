import { setTimeout as sleep } from 'node:timers/promises'
import { RefusedError } from '../domain/errors.ts'
import { leaseMS } from '../mongo/lease-watch.ts'
import type { SyncWork } from './sync-work.ts'

/**
 * How long a command waits for the lease, in milliseconds: twice as long as a lease lasts, once for the time after which one that
 * nobody renews is free, and once for what was under way by it to end. It is less than the 30 s that a command to all instances is
 * waited for, so that the refusal is what is answered there.
 */
const leasePatienceMS = 2 * leaseMS
const askAgainMS = 200

export interface LeasedSync {
  /** Of the present direction: a reversal replaces it, and gives the former one's lease back for good. Null when there is no sync any more. */
  work: () => SyncWork | null
  /** Resolves when everything that was left has ended: no lease is taken before. */
  ended: () => Promise<unknown>
  /** Throws where another process has the lease for good: it is not taken from that one. */
  insist: () => void
}

/** How long one command waits for what can only be done by its instance's lease. After that it is refused. */
export class LeasePatience {
  readonly #command: string
  /** Aborted when it is over. */
  readonly signal = AbortSignal.timeout(leasePatienceMS)

  /** @param command as the API calls it */
  constructor(command: string) {
    this.#command = command
  }

  /**
   * Resolves when this process may write by its lease; takes the lease where it has none. Throws RefusedError ClusterUnreachable when
   * the patience is over before: nothing was changed then.
   */
  async held({ work, ended, insist }: LeasedSync): Promise<void> {
    const take = async (): Promise<void> => {
      await ended()
      insist()
      // What has ended may have been a reversal.
      await work()?.hold()
    }
    const isDone = (): boolean => {
      const present = work()
      return present === null || isHeld(present)
    }
    while (!isDone()) {
      insist()
      const lease = work()?.lease
      await this.bounded(lease?.held ? lease.verify() : take(), 'nothing was changed')
      if (!isDone()) await sleep(askAgainMS)
    }
  }

  /**
   * The same promise, for as long as the patience lasts.
   * @param effect what is known then, for the refusal
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

function isHeld({ lease }: SyncWork): boolean {
  if (!lease.held) return false
  try {
    lease.fence()
    return true
  } catch {
    return false
  }
}
