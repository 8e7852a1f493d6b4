import type { PublicState } from '../domain/progress.ts'
import type { SyncWork } from './sync-work.ts'

export interface RestingLeaseParts {
  state: () => PublicState
  /** Resolves when everything that was left has ended. */
  ended: () => Promise<unknown>
}

/** The lease of an instance with nothing under way: kept while it is PAUSED or FAILED, given back once it is COMMITTED. */
export class RestingLease {
  readonly #parts: RestingLeaseParts
  #resigning: Promise<void> | null = null

  constructor(parts: RestingLeaseParts) {
    this.#parts = parts
  }

  /** There is nothing to begin anew when the lease is lost. */
  get isResting(): boolean {
    return ['PAUSED', 'FAILED', 'COMMITTED'].includes(this.#parts.state())
  }

  /** Resolves when it is given back, if that has begun. */
  get resigning(): Promise<void> | null {
    return this.#resigning
  }

  /** @param storing resolves when that it is COMMITTED is stored, which takes the lease */
  committed(work: () => SyncWork | null, storing: Promise<void>): void {
    this.#resigning ??= storing.then(() => work()?.resign()).catch(() => {})
  }

  /** Others have buried it: it makes itself known again, and may have to store yet what it has come to. */
  buried(work: SyncWork): void {
    const { state, ended } = this.#parts
    const held = ended()
      .then(() => work.hold())
      .catch(() => {})
    if (state() !== 'COMMITTED') return
    const begun = this.#resigning
    this.#resigning = held
      .then(() => begun)
      // Not what a reversal has taken meanwhile.
      .then(() => (state() === 'COMMITTED' ? work.resign() : undefined))
      .catch(() => {})
  }

  /** The sync goes on the other way round, with another lease. */
  turned(): void {
    this.#resigning = null
  }
}
