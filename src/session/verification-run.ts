import { deferred } from '../domain/deferred.ts'
import { TrackedWork } from '../domain/tracked-work.ts'
import type { Verifier } from '../verify/verifier.ts'

/** Receives the events of a run. */
export interface RunObserver {
  /** The run was stopped. */
  stopped: () => void
  /** Everything has been compared once. */
  scanned: () => void
  /** A commit has requested a verdict, or that request has succeeded or failed. */
  verdict: (what: 'requested' | 'ended') => void
}

/** One run of the verification. It begins when this instance coordinates, and ends when it is stopped. */
export class VerificationRun {
  readonly observer: RunObserver
  readonly #stop = new AbortController()
  readonly #ended = deferred<void>()
  readonly work = new TrackedWork(this.#stop.signal)
  readonly earlier: Promise<void>
  /**
   * Resolves with the verifier that runs. A new promise replaces it when an oplog no longer holds that verifier's
   * position, because another verifier then follows.
   */
  ready = deferred<Verifier>()
  failure: unknown = null
  #closing: Promise<void> | null = null

  constructor(earlier: Promise<void>, observer: RunObserver) {
    this.earlier = earlier
    this.observer = observer
  }

  get stopped(): AbortSignal {
    return this.#stop.signal
  }

  /** Resolves when all work has ended and no more can begin. */
  get ended(): Promise<void> {
    return this.#ended.promise
  }

  /** Stops the run. Resolves when it has ended. */
  close(): Promise<void> {
    if (this.#closing) return this.#closing
    this.#stop.abort()
    this.#closing = Promise.all([this.work.ended(), this.earlier]).then(() => this.#ended.resolve())
    this.observer.stopped()
    return this.#closing
  }
}
