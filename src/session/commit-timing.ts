import type { Rehearsal } from '../domain/commit-request.ts'

/** Measures the steps of the current commit attempt that this process performs, by its monotonic clock. */
export class CommitTiming {
  #began = 0
  #stepBegan = 0
  #step: string | null = null
  #steps: Rehearsal['steps'] = []

  /**
   * The step of the attempt that this process began last. Null before the first step and after `reset` or `rehearsal`. A
   * failure or an abort of the commit changes it only once this process undoes the commit.
   */
  get step(): string | null {
    return this.#step
  }

  /** Begins an attempt with this step. The outage begins now, because applications must not write from now on. */
  beginAttempt(step: string): void {
    this.#began = performance.now()
    this.#steps = []
    this.#step = null
    this.beginStep(step)
  }

  /**
   * Ends the current step and begins this one, unless it is the current one already. If this process has taken over the
   * attempt of another coordinator, it knows no earlier steps, and its measurement of the outage begins now.
   */
  beginStep(step: string): void {
    if (this.#step === step) return
    if (this.#step === null && this.#began === 0) this.#began = performance.now()
    this.#endStep()
    this.#step = step
    this.#stepBegan = performance.now()
  }

  /**
   * Discards all times. Called before an attempt begins, when a commit is undone, and when users can write on the
   * destination.
   */
  reset(): void {
    this.#steps = []
    this.#step = null
    this.#began = 0
  }

  #endStep(): void {
    if (this.#step === null) return
    this.#steps.push({ step: this.#step, seconds: rounded((performance.now() - this.#stepBegan) / 1000) })
  }

  /**
   * Ends the attempt and returns its steps, its outage so far and the verdict. `outageSeconds` is 0 if this process has
   * performed no step.
   */
  rehearsal(verdict: string): Rehearsal {
    const outageSeconds = this.#began === 0 ? 0 : rounded((performance.now() - this.#began) / 1000)
    this.#endStep()
    const steps = this.#steps
    this.reset()
    return { at: new Date().toISOString(), steps, outageSeconds, verdict }
  }
}

/** Rounds seconds to milliseconds. */
function rounded(seconds: number): number {
  return Math.round(seconds * 1000) / 1000
}
