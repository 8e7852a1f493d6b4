/** Limits the bytes that a direction of a link carries. All connections through the link share the limit. */
export class LinkPace {
  readonly #bytesPerMS: number
  /** Time by `performance.now()` at which the link has carried everything that was sent. */
  #freeAtMS = 0

  constructor(bytesPerSecond: number) {
    this.#bytesPerMS = bytesPerSecond / 1_000
  }

  /** Adds bytes to the link. Returns when the last of them has left the sender, by `performance.now()`. */
  carry(bytes: number, nowMS = performance.now()): number {
    this.#freeAtMS = Math.max(this.#freeAtMS, nowMS) + bytes / this.#bytesPerMS
    return this.#freeAtMS
  }
}
