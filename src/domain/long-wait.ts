/**
 * Waits repeatedly for the next change while a long promise is pending, which may be for days. Each `Promise.race` adds
 * a reaction to each of its promises. On Node 20, a reaction takes 664 bytes and stays until the promise ends. A race
 * with the long promise four times a second would therefore take hundreds of megabytes. LongWait adds only one reaction
 * to the long promise.
 */
export class LongWait {
  #over = false
  readonly #waiting = new Set<() => void>()

  /** @param end the long promise; a rejection ends the wait and is handled here */
  constructor(end: Promise<unknown>) {
    const ended = (): void => {
      this.#over = true
      for (const wake of this.#waiting) wake()
    }
    end.then(ended, ended)
  }

  /** True once the long promise is resolved or rejected. */
  get over(): boolean {
    return this.#over
  }

  /** Resolves when the first of these changes or the long promise ends, or at once if the long promise has ended. */
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
