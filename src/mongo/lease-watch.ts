/** A lease not renewed for this long may be taken over. */
export const leaseMS = 10_000

/** What a lease is known by from one renewal to the next. */
interface Renewal {
  epoch: number
  expiresAt: Date
}

/** Stored in place of an expiry by the owner itself, which has given its lease back, or by who has buried it. */
export const givenUp = new Date(0)

/**
 * How long leases have stood unrenewed, as this process has seen it by its own monotonic clock. The expiry that is stored with a lease is
 * not enough to end it: a step of the destination's clock, or a primary whose clock is ahead, would end the leases of all who live.
 * An owner counts from before a renewal is sent, a watcher from after it was read, so the watcher is always the later one; and whoever
 * acts on what was seen must name it in the filter of what it writes, so that a renewal that comes in between wins.
 */
export class LeaseWatch {
  readonly #seen = new Map<string, { renewal: string; since: number }>()

  /** To be told of each read of that lease. */
  isUnrenewed(name: string, { epoch, expiresAt }: Renewal): boolean {
    if (expiresAt.getTime() === givenUp.getTime()) return true
    const renewal = `${epoch} ${expiresAt.getTime()}`
    const now = performance.now()
    const seen = this.#seen.get(name)
    if (seen?.renewal === renewal) return now - seen.since >= leaseMS
    this.#seen.set(name, { renewal, since: now })
    return false
  }
}
