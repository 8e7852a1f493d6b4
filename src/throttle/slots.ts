import { StoppedError } from '../domain/errors.ts'

/**
 * Limits how many operations run at the same time, first come, first served. The limit may change while callers wait.
 */
export class Slots {
  readonly #limit: () => number
  readonly #waiting: (() => void)[] = []
  #taken = 0

  constructor(limit: () => number) {
    this.#limit = limit
  }

  /** Runs `work` when a slot is free. Rejects with StoppedError when `signal` is aborted first. */
  async run<T>(signal: AbortSignal, work: () => Promise<T>): Promise<T> {
    while (this.#taken >= this.#limit()) await this.#freeSlot(signal)
    if (signal.aborted) {
      this.changed() // this caller was woken and must not start: the next one takes its turn
      throw new StoppedError()
    }
    this.#taken += 1
    try {
      return await work()
    } finally {
      this.#taken -= 1
      this.changed()
    }
  }

  /** Wakes as many waiting callers as there are free slots. Must be called when the limit has changed. */
  changed(): void {
    for (let free = this.#limit() - this.#taken; free > 0; free -= 1) this.#waiting.shift()?.()
  }

  #freeSlot(signal: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      const stop = (): void => {
        this.#waiting.splice(this.#waiting.indexOf(wake), 1)
        reject(new StoppedError())
      }
      const wake = (): void => {
        signal.removeEventListener('abort', stop)
        resolve()
      }
      if (signal.aborted) return reject(new StoppedError())
      signal.addEventListener('abort', stop, { once: true })
      this.#waiting.push(wake)
    })
  }
}
