import { setTimeout as sleep } from 'node:timers/promises'
import { unreachableText } from '../domain/error-text.ts'
import { RefusedError, StoppedError } from '../domain/errors.ts'
import { leaseMS } from '../mongo/lease-watch.ts'
import type { SyncSession } from './sync-session.ts'

/**
 * How long a command waits for the lease, ms: twice the duration of a lease. An unrenewed lease expires after that
 * duration, and the work under it may take as long to end. The sum is less than the 30 s for which the sender of a
 * command to all instances waits, so that the sender receives the refusal.
 */
const leasePatienceMS = 2 * leaseMS
const retryMS = 200

export interface LeasedSync extends LeaseInUse {
  /**
   * The session of the current direction. A reversal replaces it and releases the lease of the former session
   * permanently. Null when the sync no longer exists.
   */
  readonly session: SyncSession | null
  /** Resolves when the work of all states that the machine has left has ended. The lease is taken only afterwards. */
  readonly ended: Promise<unknown>
  /** Throws when another process has taken over the lease, because this process must not take it back. */
  refuseTakenOver(): void
}

/** The part of the sync that the text of a refusal needs. */
export interface LeaseInUse {
  readonly session: {
    readonly lease: { readonly trouble: unknown }
    /** Null without Redis. */
    readonly failureDetector: { holds(): boolean } | null
  } | null
}

/** Limits how long one command waits for work that requires its instance's lease. Afterwards the command is refused. */
export class LeasePatience {
  readonly #command: string
  readonly #patienceMS: number
  readonly #sync: LeaseInUse
  /** Aborted when the time limit has passed. */
  readonly signal: AbortSignal

  /**
   * @param command the command's name in the API
   * @param sync the sync whose lease the command needs
   * @param patienceMS the time limit
   */
  constructor(command: string, sync: LeaseInUse, patienceMS = leasePatienceMS) {
    this.#command = command
    this.#patienceMS = patienceMS
    this.#sync = sync
    this.signal = AbortSignal.timeout(patienceMS)
  }

  /**
   * Resolves when this process may write under its lease; takes the lease if it has none. Throws RefusedError
   * ClusterUnreachable when the time limit passes first. Nothing was changed in that case.
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
      if (!isDone()) await sleep(retryMS)
    }
  }

  /**
   * Runs the action under the lease. If the lease is lost in the meantime, for example because Redis did not answer,
   * the action is repeated in the next lease term.
   * @param stopped aborted when this process stops
   */
  async withLease<T>(sync: LeasedSync, stopped: AbortSignal, action: (until: AbortSignal) => Promise<T>): Promise<T> {
    for (;;) {
      await this.held(sync)
      try {
        return await this.bounded(action(this.signal), 'progress shows whether it was stored')
      } catch (error) {
        if (!(error instanceof StoppedError) || stopped.aborted) throw error
      }
    }
  }

  /**
   * Waits for the promise. Throws RefusedError ClusterUnreachable when the time limit passes first.
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
    const { session } = this.#sync
    const trouble = session?.lease.trouble ?? null
    const isRedisSilent = session?.failureDetector?.holds() === false
    const reasons = [
      ...(isRedisSilent ? ['Redis (--redis) does not answer, and a lease is kept only while it does.'] : []),
      ...(trouble === null ? [] : [`${unreachableText(trouble)}.`]),
    ]
    const toCheck = isRedisSilent && trouble === null ? 'Redis' : 'the destination'
    return new RefusedError(
      'ClusterUnreachable',
      `this instance's lease on the destination could neither be renewed nor taken within ${this.#patienceMS / 1_000} seconds, and ` +
        `${[`${this.#command} cannot be stored without it; ${effect}.`, ...reasons].join(' ')} Check ${toCheck} and the network path to it, then send ${this.#command} again`,
      { cause: trouble },
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
