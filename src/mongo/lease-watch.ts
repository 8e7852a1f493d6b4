import { Unchanged } from '../domain/unchanged.ts'

/** Duration of a lease in ms. Another process may take over a lease that was not renewed for this long. */
export const leaseMS = 10_000

/** The fields that identify a renewal. Each renewal changes `expiresAt`, and each new lease term changes `epoch`. */
interface Renewal {
  epoch: number
  expiresAt: Date
}

/** Stored as the expiry of a lease that its owner has given back or that other instances have fenced. */
export const givenUp = new Date(0)

/**
 * Measures how long leases have not been renewed, by the monotonic clock of this process. The stored expiry is not
 * sufficient: a clock step on the destination, or a primary whose clock is ahead, would expire the leases of all
 * running instances. An owner counts from the moment before it sends a renewal, and a watcher from the moment after it
 * has read that renewal, so the lease always expires later for the watcher than for the owner. A process that takes
 * over an unrenewed lease must include the observed expiry in its filter, so that its write matches nothing if the
 * owner has renewed the lease in between.
 */
export class LeaseWatch {
  readonly #renewals = new Unchanged()

  /**
   * Returns true if the lease was given up, or if this process has observed the same renewal for `leaseMS`. Must be called
   * for each read of the lease.
   */
  isUnrenewed(name: string, { epoch, expiresAt }: Renewal): boolean {
    if (expiresAt.getTime() === givenUp.getTime()) return true
    return this.#renewals.observe(name, `${epoch} ${expiresAt.getTime()}`).unchangedMS >= leaseMS
  }
}

/**
 * Why an instance has lost its lease. `evicted`: the lease expired, and other instances fenced this one and took over its
 * work. `taken`: another process uses this instance's id.
 */
export type LeaseLoss = 'evicted' | 'taken'

/** Decides which instances are alive, by a store other than the metadata database. */
export interface FailureDetector {
  /**
   * How long a confirmation is valid, in ms. The holder confirms its lease by reading it. A successor waits this long
   * before it writes.
   */
  readonly windowMS: number
  /** Returns true if the store has received a heartbeat of this instance recently. */
  holds(): boolean
  /**
   * Resolves with true if the store has received a heartbeat of that process recently. Throws TransientReplyError when
   * the store does not answer.
   */
  knows(id: string, incarnation: string): Promise<boolean>
}
