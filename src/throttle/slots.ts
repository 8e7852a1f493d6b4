import pLimit from 'p-limit'
import { StoppedError } from '../domain/errors.ts'

/**
 * Limits how many operations run at the same time, first come, first served. The limit may change while callers wait.
 */
export class Slots {
  readonly #limit: () => number
  readonly #queue = pLimit(1)

  constructor(limit: () => number) {
    this.#limit = limit
  }

  /** Runs `work` when a slot is free. Rejects with StoppedError when `signal` is aborted first. */
  run<T>(signal: AbortSignal, work: () => Promise<T>): Promise<T> {
    this.changed()
    return new Promise((resolve, reject) => {
      const stop = (): void => reject(new StoppedError())
      if (signal.aborted) return stop()
      // p-limit supports no signals: a stopped caller rejects at once, and its queue entry later ends without work.
      signal.addEventListener('abort', stop, { once: true })
      this.#queue(async () => {
        signal.removeEventListener('abort', stop)
        if (signal.aborted) throw new StoppedError()
        return await work()
      }).then(resolve, reject)
    })
  }

  /** Must be called when the limit has changed, so that waiting callers take the new slots. */
  changed(): void {
    this.#queue.concurrency = this.#limit()
  }
}
