/**
 * Numbers the claims of segments. Within a lease term, each number is higher than all earlier ones, even if the host's
 * clock is set back. A lease term belongs to one `Coordination`, so the highest number is kept in memory.
 */
export class ClaimNumbers {
  #last = 0

  /** @param notBefore a lower bound, for example the time in ms: instances then usually begin with different numbers */
  next(notBefore = 0): number {
    this.#last = Math.max(this.#last + 1, notBefore)
    return this.#last
  }
}
