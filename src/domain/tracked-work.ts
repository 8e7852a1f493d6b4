import { isStop, StoppedError } from './errors.ts'

/**
 * Tracks the work of actors, so that its end can be awaited. When a state is exited, XState stops the actors of that
 * state but does not wait for their work.
 */
export class TrackedWork {
  readonly #stopped: AbortSignal
  readonly #running = new Set<Promise<unknown>>()
  /** The first failure; null while there is none. Work that was stopped on request has not failed. */
  failure: unknown = null

  /** @param stopped when this signal is aborted, no further work is started */
  constructor(stopped: AbortSignal) {
    this.#stopped = stopped
  }

  /** Starts work. Rejects with StoppedError once the signal is aborted. */
  run<T>(work: () => Promise<T>): Promise<T> {
    const run = this.#stopped.aborted ? Promise.reject(new StoppedError()) : work()
    this.#running.add(run)
    const ended = (): void => void this.#running.delete(run)
    run.then(ended, (error) => {
      ended()
      if (!isStop(error)) this.failure ??= error
    })
    return run
  }

  /** Resolves when all tracked work has ended, whether it succeeded or failed. */
  async ended(): Promise<void> {
    while (this.#running.size > 0) await Promise.allSettled(this.#running)
  }
}
