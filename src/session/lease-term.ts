import type { RetryContext } from '../mongo/retry.ts'

/**
 * The lease term in which a session works. Terms do not overlap: when the lease is lost, all work that was begun under
 * it ends before the next term begins.
 */
export class LeaseTerm {
  /**
   * Context of writes under the lease. A write is not retried once the lease is lost, because the next lease term
   * begins only after the writes of the last term have ended.
   */
  readonly context: RetryContext
  readonly #stopped: AbortSignal
  #lost = new AbortController()
  /** Aborted when the lease is lost or the process stops. */
  #signal: AbortSignal

  /** @param process the context of work that does not depend on the lease */
  constructor(process: RetryContext) {
    this.#stopped = process.signal
    const signal = (): AbortSignal => this.#signal
    this.#signal = AbortSignal.any([this.#stopped, this.#lost.signal])
    this.context = {
      ...process,
      get signal() {
        return signal()
      },
    }
  }

  /** True while the lease is lost and the next term has not begun. */
  get isOver(): boolean {
    return this.#lost.signal.aborted
  }

  end(): void {
    this.#lost.abort()
  }

  /** Begins the next term if the last one is over. */
  begin(): void {
    if (!this.isOver) return
    this.#lost = new AbortController()
    this.#signal = AbortSignal.any([this.#stopped, this.#lost.signal])
  }
}
