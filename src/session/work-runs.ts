import { FatalError, StoppedError } from '../domain/errors.ts'
import type { Replication } from './replication.ts'

/** A worker that shares a replication. */
export type Worker = 'copy' | 'events'

/** A period in which the machine replicates. */
interface Replicating {
  opened: Promise<Replication>
  workers: Set<Worker>
  /** Null until `opened` has resolved. */
  current: Replication | null
}

/**
 * The runs of one sync in this process: the replication that both workers share, and the steps of a commit. Runs that
 * the machine has left are stopped, and awaited before a new run begins.
 */
export class WorkRuns {
  /** The replication that was loaded last, whether or not it is running. */
  latest: Replication | null = null
  #replicating: Replicating | null = null
  readonly #stopped: AbortSignal
  #abort = new AbortController()
  /** Runs of the current replication. The next replication begins only when they have ended. */
  #running: Promise<unknown>[] = []
  #ended: Promise<unknown> = Promise.resolve()
  /** Number of times that `signal` was replaced. Work that was created before the last replacement stays stopped. */
  renewals = 0

  /** @param stopped aborted when this process stops all work */
  constructor(stopped: AbortSignal) {
    this.#stopped = stopped
  }

  /** Aborted when the current runs are to stop. */
  get signal(): AbortSignal {
    return AbortSignal.any([this.#stopped, this.#abort.signal])
  }

  /** Resolves when every run has ended that belongs to a state that the machine has left. */
  get ended(): Promise<unknown> {
    return this.#ended
  }

  /** True while the machine replicates. */
  get isOpen(): boolean {
    return this.#replicating !== null
  }

  /** The promise of the current replication; null while the machine does not replicate. */
  get opened(): Promise<Replication> | null {
    return this.#replicating?.opened ?? null
  }

  /** The workers that share the current replication. */
  get workers(): ReadonlySet<Worker> {
    return this.#replicating?.workers ?? new Set()
  }

  /** The replication that is running; null until the former one has ended and this one may begin. */
  get current(): Replication | null {
    return this.#replicating?.current ?? null
  }

  /** `latest`, for a commit and the verifier, which begin only after a replication was loaded. */
  get finishing(): Replication {
    if (!this.latest) throw new FatalError('InternalError', 'a commit or the verifier began without a replication')
    return this.latest
  }

  /** Resolves when the changes of a former commit are undone and both workers may begin. */
  async whenOpen(): Promise<void> {
    await this.#replicating?.opened
  }

  /** Returns the replication that both workers share. The first worker's call opens it after all earlier runs have ended. */
  replicate(worker: Worker, open: (signal: AbortSignal) => Promise<Replication>): Promise<Replication> {
    if (this.#replicating) {
      this.#replicating.workers.add(worker)
      return this.#replicating.opened
    }
    // `#ended` must be read now. Once this replication is left, `#ended` also waits for its workers, which wait for `opened`.
    const opened = this.#ended.then(() => {
      if (this.#replicating?.opened !== opened) throw new StoppedError() // the machine left it before it began
      return open(this.#renewed())
    })
    const replicating: Replicating = { opened, workers: new Set([worker]), current: null }
    const setPresent = (replication: Replication): void => {
      replicating.current = replication
    }
    opened.then(setPresent, () => {}) // the workers report a failure
    this.#replicating = replicating
    return opened
  }

  /** Replaces an aborted signal, so that work that begins now is not stopped. */
  #renewed(): AbortSignal {
    if (this.#abort.signal.aborted) {
      this.#abort = new AbortController()
      this.renewals += 1
    }
    return this.signal
  }

  stop(): void {
    this.#abort.abort()
  }

  /** The next replication, or step of a commit, begins only when this run has ended. */
  awaitBeforeNext(run: Promise<unknown>): void {
    this.#running.push(run.catch(() => {}))
  }

  /** Called when the machine no longer replicates. Stops all runs, which are awaited before new ones begin. */
  leaveReplication(): void {
    this.#replicating = null
    this.stop()
    this.#ended = Promise.all(this.#running).then(() => {
      if (this.latest) this.latest.events = null
    })
    this.#running = []
  }

  /**
   * Runs a step of a commit after all earlier runs have ended. When the machine leaves the step (the verifier may fail
   * in parallel), the step is stopped, and awaited before a new run begins. A step that is left before it begins does
   * not run, and the call rejects with StoppedError.
   */
  finish(signal: AbortSignal, step: (signal: AbortSignal) => Promise<void>): Promise<void> {
    let over = false
    const begin = (): Promise<void> => {
      if (signal.aborted) throw new StoppedError()
      return step(this.#renewed())
    }
    const run = this.#ended.then(begin).finally(() => {
      over = true
    })
    // The machine also leaves a step that has ended. That must not stop the next step.
    const leave = (): void => {
      if (!over) this.#abort.abort()
    }
    signal.addEventListener('abort', leave, { once: true })
    this.#ended = run.catch(() => {})
    return run
  }
}
