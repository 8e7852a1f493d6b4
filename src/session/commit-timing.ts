import type { Rehearsal } from '../domain/commit-request.ts'

/** How long each step of the current commit attempt takes in this process, in seconds of a monotonic clock. */
export class CommitTiming {
  #began = 0
  #stepBegan = 0
  #step: string | null = null
  #steps: Rehearsal['steps'] = []

  /**
   * The step that this process began last. Null until it begins one, and again when the next attempt begins, the
   * rehearsal ends or writes on the destination are enabled. An abort or a failure does not change it.
   */
  get step(): string | null {
    return this.#step
  }

  /** Begins an attempt with this step. The outage is counted from here, because applications must not write from now on. */
  begin(step: string): void {
    this.#began = performance.now()
    this.#steps = []
    this.#step = null
    this.next(step)
  }

  /** Ends the current step and begins this one. An instance that takes over an attempt has no earlier steps. */
  next(step: string): void {
    if (this.#step === step) return
    if (this.#step === null && this.#began === 0) this.#began = performance.now()
    this.#end()
    this.#step = step
    this.#stepBegan = performance.now()
  }

  /** Called before an attempt begins, and when writes on the destination are enabled. Discards all times. */
  reset(): void {
    this.#steps = []
    this.#step = null
    this.#began = 0
  }

  #end(): void {
    if (this.#step === null) return
    this.#steps.push({ step: this.#step, seconds: rounded((performance.now() - this.#stepBegan) / 1000) })
  }

  /** Ends the attempt and returns its result as a rehearsal. */
  rehearsal(verdict: string): Rehearsal {
    const outageSeconds = this.#began === 0 ? 0 : rounded((performance.now() - this.#began) / 1000)
    this.#end()
    const steps = this.#steps
    this.reset()
    return { at: new Date().toISOString(), steps, outageSeconds, verdict }
  }
}

/** Rounds seconds to milliseconds. */
function rounded(seconds: number): number {
  return Math.round(seconds * 1000) / 1000
}
