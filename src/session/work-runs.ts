import { StoppedError } from '../domain/errors.ts'

/** What of one sync is under way in this process: what is left is told to stop, and awaited before anything new begins. */
export class WorkRuns {
  readonly #stopped: AbortSignal
  #abort = new AbortController()
  /** Runs of the last replication: a new one begins only when they have ended. */
  #running: Promise<unknown>[] = []
  #ended: Promise<unknown> = Promise.resolve()
  /** What was built before the last renewal has been told to stop for good. */
  renewals = 0

  /** @param stopped aborted when this process gives everything up */
  constructor(stopped: AbortSignal) {
    this.#stopped = stopped
  }

  /** Aborted when what is under way is told to stop. */
  get signal(): AbortSignal {
    return AbortSignal.any([this.#stopped, this.#abort.signal])
  }

  /** Resolves when everything that was left has ended. */
  get ended(): Promise<unknown> {
    return this.#ended
  }

  /** What begins now has not been told to stop. */
  renew(): void {
    if (!this.#abort.signal.aborted) return
    this.#abort = new AbortController()
    this.renewals += 1
  }

  stop(): void {
    this.#abort.abort()
  }

  /** A worker's run belongs to the present replication until it leaves. */
  joined(run: Promise<unknown>): void {
    this.#running.push(run.catch(() => {}))
  }

  /** The present replication is left; `over` is called when all runs of it have ended. */
  left(over: () => void): void {
    this.#ended = Promise.all(this.#running).then(over)
    this.#running = []
  }

  /**
   * A step of a commit, after everything before it has ended. When the machine leaves it (the verifier may fail beside it)
   * it is told to stop, and awaited before anything new begins; left before it began, it does not begin.
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
    // A step that has ended is left as well; what comes next must not be stopped for that.
    const leave = (): void => {
      if (!over) this.#abort.abort()
    }
    left.addEventListener('abort', leave, { once: true })
    this.#ended = run.catch(() => {})
    return run
  }
}
