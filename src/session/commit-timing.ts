import type { Rehearsal } from '../domain/commit-request.ts'

/** How long each step of the present attempt to commit takes here, in seconds of a monotonic clock. */
export class CommitTiming {
  #began = 0
  #stepBegan = 0
  #step: string | null = null
  #steps: Rehearsal['steps'] = []

  /** The present step; null while no attempt is under way here. */
  get step(): string | null {
    return this.#step
  }

  /** An attempt begins, with this step: from here on applications have to stand still. */
  begin(step: string): void {
    this.#began = performance.now()
    this.#steps = []
    this.#step = null
    this.next(step)
  }

  /** The present step has ended, and this one begins. An instance that takes over an attempt knows of none before. */
  next(step: string): void {
    if (this.#step === step) return
    if (this.#step === null && this.#steps.length === 0 && this.#began === 0) this.#began = performance.now()
    this.#end()
    this.#step = step
    this.#stepBegan = performance.now()
  }

  /** The attempt has come to its end. */
  over(): void {
    this.#end()
    this.#step = null
    this.#began = 0
  }

  #end(): void {
    if (this.#step === null) return
    this.#steps.push({ step: this.#step, seconds: rounded((performance.now() - this.#stepBegan) / 1000) })
  }

  /** What the attempt came to, as a rehearsal. Ends it. */
  rehearsal(verdict: string): Rehearsal {
    const outageSeconds = rounded((performance.now() - this.#began) / 1000)
    this.over()
    return { at: new Date().toISOString(), steps: this.#steps, outageSeconds, verdict }
  }
}

/** To milliseconds. */
function rounded(seconds: number): number {
  return Math.round(seconds * 1000) / 1000
}
