import { StoppedError } from '../domain/errors.ts'

/**
 * The runs of one sync in this process. Runs that the machine has left are stopped, and awaited before a new one
 * begins.
 */
export class WorkRuns {
  readonly #stopped: AbortSignal
  #abort = new AbortController()
  /** Runs of the current replication. The next replication begins only when they have ended. */
  #running: Promise<unknown>[] = []
  #ended: Promise<unknown> = Promise.resolve()
  /** Number of renewals. What was built before the last renewal is stopped for good. */
  renewals = 0

  /** @param stopped aborted when this process stops all work */
  constructor(stopped: AbortSignal) {
    this.#stopped = stopped
  }

  /** Aborted when the current runs are to stop. */
  get signal(): AbortSignal {
    return AbortSignal.any([this.#stopped, this.#abort.signal])
  }

  /** Resolves when all runs that were left have ended. */
  get ended(): Promise<unknown> {
    return this.#ended
  }

  /** Replaces an aborted signal, so that work that begins now is not stopped. */
  renew(): void {
    if (!this.#abort.signal.aborted) return
    this.#abort = new AbortController()
    this.renewals += 1
  }

  stop(): void {
    this.#abort.abort()
  }

  /** Adds a worker's run to the current replication. */
  joined(run: Promise<unknown>): void {
    this.#running.push(run.catch(() => {}))
  }

  /** The machine leaves the current replication; `over` is called when all its runs have ended. */
  left(over: () => void): void {
    this.#ended = Promise.all(this.#running).then(over)
    this.#running = []
  }

  /**
   * Runs a step of a commit after all earlier runs have ended. When the machine leaves the step (the verifier may fail
   * in parallel), the step is stopped, and awaited before a new run begins. If it is left before it begins, it does not
   * begin.
   */
  finish(left: AbortSignal, step: () => Promise<void>): Promise<void> {
    let over = false
    const begin = (): Promise<void> => {
      if (left.aborted) throw new StoppedError()
      return step()
    }
    const run = this.#ended.then(begin).finally(() => {
      over = true
    })
    // The machine also leaves a step that has ended, which must not stop the next one.
    const leave = (): void => {
      if (!over) this.#abort.abort()
    }
    left.addEventListener('abort', leave, { once: true })
    this.#ended = run.catch(() => {})
    return run
  }
}
