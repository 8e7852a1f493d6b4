import { isStop, StoppedError } from './errors.ts'

/**
 * Work of actors. XState stops an actor whose state is left, but does not await what it was doing. What is tracked here
 * can be awaited.
 */
export class TrackedWork {
  readonly #stopped: AbortSignal
  readonly #underWay = new Set<Promise<unknown>>()
  /** The first failure; null while there is none. Work that was told to stop has not failed. */
  failure: unknown = null

  /** @param stopped no work is started once this signal is aborted */
  constructor(stopped: AbortSignal) {
    this.#stopped = stopped
  }

  /** Starts work. Rejects with StoppedError when no work may be started any more. */
  run<T>(work: () => Promise<T>): Promise<T> {
    const run = this.#stopped.aborted ? Promise.reject(new StoppedError()) : work()
    this.#underWay.add(run)
    const ended = (): void => void this.#underWay.delete(run)
    run.then(ended, (error) => {
      ended()
      if (!isStop(error)) this.failure ??= error
    })
    return run
  }

  /** Resolves when nothing is under way, whether it succeeded or failed. */
  async ended(): Promise<void> {
    while (this.#underWay.size > 0) await Promise.allSettled(this.#underWay)
  }
}
