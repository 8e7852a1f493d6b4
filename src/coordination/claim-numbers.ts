import type { OwnerToken } from '../domain/owner.ts'

/**
 * Numbers the claims of segments. Within a lease term, each number is higher than all earlier ones, even if the host's
 * clock is set back. A lease term belongs to one `Coordination`, so the highest number is kept in memory.
 */
export class ClaimNumbers {
  #last = 0
  #claimedBy: OwnerToken | null = null

  /** @param notBefore a lower bound, for example the time in ms: instances then usually begin with different numbers */
  next(notBefore = 0): number {
    this.#last = Math.max(this.#last + 1, notBefore)
    return this.#last
  }

  /** Called before a claim is sent. It may take effect even if its reply is lost. */
  claimedBy(token: OwnerToken): void {
    this.#claimedBy = token
  }

  /** True if segments may have been claimed under this token, which identifies a lease term. */
  hasClaimed(token: OwnerToken): boolean {
    return this.#claimedBy === token
  }
}
