import type { LeaseView } from '../domain/owner.ts'
import { TransientReplyError } from '../mongo/errors.ts'
import { type HostMoment, hostClocks } from '../mongo/host-clocks.ts'
import type { FailureDetector } from '../mongo/lease-watch.ts'
import type { Liveness } from './liveness.ts'

/**
 * How long a read of the metadata database confirms a lease, ms. A successor waits for the same time before it writes.
 */
const windowMS = 3_000
/**
 * An instance counts as expired when its newest heartbeat has been missing or older than `ttlMS` for this long, ms. An
 * instance that has just taken its lease needs this time to send its first heartbeat.
 */
const silenceMS = 1_500

/**
 * Decides which instances are alive when a liveness store other than the metadata database (Redis) is configured.
 * Leases are then not renewed by writes: an instance whose heartbeats arrive reads whether it still holds its lease. If
 * the store loses data or answers wrongly, the worst result is that an instance is replaced. The metadata database then
 * fences the replaced instance.
 */
export class StoreFailureDetector implements FailureDetector {
  readonly windowMS = windowMS
  readonly #liveness: Liveness
  #acknowledgedAt: HostMoment | null = null
  readonly #silentSince = new Map<string, number>()

  constructor(liveness: Liveness) {
    this.#liveness = liveness
  }

  /**
   * Call it when the store has acknowledged a heartbeat that this instance sent at `sentAt`, in the order of sending.
   */
  acknowledged(sentAt: HostMoment): void {
    this.#acknowledgedAt = sentAt
  }

  holds(): boolean {
    return this.#acknowledgedAt !== null && hostClocks.longestSince(this.#acknowledgedAt) < this.#liveness.ttlMS
  }

  async knows(id: string, incarnation: string): Promise<boolean> {
    const rows = await this.#rows()
    return rows.some((row) => row.alive && row.id === id && row.incarnation === incarnation)
  }

  /** Returns the leases with `expired` set from the heartbeats in the store instead of the last renewal. */
  async judge(leases: LeaseView[], self: string): Promise<LeaseView[]> {
    const rows = await this.#rows()
    const now = performance.now()
    return leases.map((lease) => {
      const key = `${lease.id} ${lease.incarnation}`
      const isAlive = rows.some((row) => row.alive && row.id === lease.id && row.incarnation === lease.incarnation)
      if (isAlive || lease.id === self) this.#silentSince.delete(key)
      else if (!this.#silentSince.has(key)) this.#silentSince.set(key, now)
      const silentSince = this.#silentSince.get(key)
      const silent = silentSince !== undefined && now - silentSince > silenceMS
      // An evicted instance that sends heartbeats again takes a new lease term. Until it does, its lease counts as
      // expired, so that the eviction is completed.
      return { ...lease, expired: silent || lease.evicted }
    })
  }

  async #rows(): Promise<Awaited<ReturnType<Liveness['instances']>>> {
    try {
      return await this.#liveness.instances()
    } catch (error) {
      throw new TransientReplyError(error instanceof Error ? error.message : 'the liveness store does not answer')
    }
  }
}
