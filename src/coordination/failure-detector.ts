import type { LeaseView } from '../domain/owner.ts'
import { TransientReplyError } from '../mongo/errors.ts'
import { type HostMoment, hostClocks } from '../mongo/host-clocks.ts'
import type { FailureDetector } from '../mongo/lease.ts'
import type { Liveness } from './liveness.ts'

/** How long a look at the metadata database confirms a lease; its successor waits as long before it writes. */
const windowMS = 3_000
/** An instance that has just taken its lease is not heard of yet. */
const silenceMS = 1_500

/**
 * Who is alive, where a liveness store other than the metadata database decides it (Redis). Leases are then not renewed by
 * writing: an instance that is heard of looks whether its lease is still its own. When the store forgets or lies, the worst it
 * can do is to have an instance replaced, and then the metadata database keeps the two apart.
 */
export class StoreFailureDetector implements FailureDetector {
  readonly windowMS = windowMS
  readonly #liveness: Liveness
  #heardAt: HostMoment | null = null
  readonly #silentSince = new Map<string, number>()

  constructor(liveness: Liveness) {
    this.#liveness = liveness
  }

  /** A beat of this instance, sent at this moment, has been acknowledged; beats come in the order in which they were sent. */
  heard(sentAt: HostMoment): void {
    this.#heardAt = sentAt
  }

  holds(): boolean {
    return this.#heardAt !== null && hostClocks.longestSince(this.#heardAt) < this.#liveness.ttlMS
  }

  async knows(id: string, incarnation: string): Promise<boolean> {
    const rows = await this.#rows()
    return rows.some((row) => row.alive && row.id === id && row.incarnation === incarnation)
  }

  /** The leases with `expired` as the store has it, rather than by the time they were last written. */
  async judge(leases: LeaseView[], self: string): Promise<LeaseView[]> {
    const rows = await this.#rows()
    const now = performance.now()
    return leases.map((lease) => {
      const key = `${lease.id} ${lease.incarnation}`
      const heard = rows.some((row) => row.alive && row.id === lease.id && row.incarnation === lease.incarnation)
      if (heard || lease.id === self) this.#silentSince.delete(key)
      else if (!this.#silentSince.has(key)) this.#silentSince.set(key, now)
      const silentSince = this.#silentSince.get(key)
      const silent = silentSince !== undefined && now - silentSince > silenceMS
      // One that is heard of again takes a lease of its next life; until then somebody has to settle this one.
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
