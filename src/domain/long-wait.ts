/**
 * Waits for changes that come often, until something ends that may take days. Each `Promise.race` of a promise adds a reaction to
 * it that stays until it is resolved: 664 bytes each, on Node 20, so waiting four times a second for a promise that is pending for
 * days costs hundreds of megabytes. Here the long promise is waited for once.
 */
export class LongWait {
  #over = false
  readonly #waiting = new Set<() => void>()

  /** @param end never unhandled here: that it is rejected ends the waiting and nothing else */
  constructor(end: Promise<unknown>) {
    const ended = (): void => {
      this.#over = true
      for (const wake of this.#waiting) wake()
    }
    end.then(ended, ended)
  }

  /** The long promise is resolved or rejected. */
  get over(): boolean {
    return this.#over
  }

  /** Resolves with the next of these changes, at once when the long promise has ended. */
  until(...changes: Promise<unknown>[]): Promise<void> {
    if (this.#over) return Promise.resolve()
    return new Promise((resolve) => {
      const wake = (): void => {
        this.#waiting.delete(wake)
        resolve()
      }
      this.#waiting.add(wake)
      for (const change of changes) change.then(wake, wake)
    })
  }
}
