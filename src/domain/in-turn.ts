/** Runs works one after another, in the order in which they are given. A work that fails does not stop the next one. */
export class InTurn {
  #last: Promise<unknown> = Promise.resolve()

  /** Resolves or rejects as the work does. */
  run<T>(work: () => Promise<T>): Promise<T> {
    const run = this.#last.then(work)
    this.#last = run.catch(() => {})
    return run
  }

  /** Resolves when every work given so far has ended. */
  get idle(): Promise<unknown> {
    return this.#last
  }
}
