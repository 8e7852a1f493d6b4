import { setTimeout as sleep } from 'node:timers/promises'
import { type Failure, FatalError, StoppedError } from '../domain/errors.ts'
import type { PublicState } from '../domain/progress.ts'
import type { Coordination } from './coordination.ts'
import type { Liveness } from './liveness.ts'
import { type CommitStep, hasReached, type StageStore, type Stages } from './stages.ts'

export interface TeamParts {
  coordination: Coordination
  stages: StageStore
  liveness: Liveness
  /** mongosyncID. */
  id: string
}

/** The coordinator has begun another attempt to commit, or given the present one up. */
export class RenewedError extends Error {
  constructor() {
    super('another attempt to commit has begun')
    this.name = 'RenewedError'
  }
}

/** The others have committed while this instance was away. */
export class PassedError extends Error {
  constructor() {
    super('the sync is committed')
    this.name = 'PassedError'
  }
}

const waitMS = 250

/**
 * What is done once for all: whoever coordinates does it, everybody else waits until it is done. When the coordinator dies
 * half-way, its successor is among those who wait, and does it again from its beginning: every step may be repeated.
 */
export class Team {
  readonly #parts: TeamParts
  /** The instances that a commit waits for, for whoever wonders. */
  waitingFor: string[] = []

  constructor(parts: TeamParts) {
    this.#parts = parts
  }

  get #leading(): boolean {
    return this.#parts.coordination.leading
  }

  /** The first step of a sync. */
  initialised(work: () => Promise<void>, signal: AbortSignal): Promise<void> {
    return this.#once('initialised', work, signal)
  }

  /** The first step after a reversal. */
  adapted(work: () => Promise<void>, signal: AbortSignal): Promise<void> {
    return this.#once('adapted', work, signal)
  }

  async #once(what: 'initialised' | 'adapted', work: () => Promise<void>, signal: AbortSignal): Promise<void> {
    for (;;) {
      if ((await this.#parts.stages.load())[what]) return
      if (this.#leading) {
        await work()
        return await this.#tell({ [what]: true })
      }
      await this.#wait(signal)
    }
  }

  /** Before anything is applied. Throws PassedError where writes are allowed on the destination by now. */
  async insistOnOpen(): Promise<void> {
    if (hasReached(await this.#parts.stages.load(), 'canWrite')) throw new PassedError()
  }

  /**
   * Before anything is applied by an instance that knows of a commit: what an attempt that is over had restored on the
   * destination is held back again, by the coordinator. An attempt that others are still at is left alone.
   */
  async reopen(holdBack: () => Promise<void>, signal: AbortSignal): Promise<void> {
    for (;;) {
      const stages = await this.#parts.stages.load()
      if (hasReached(stages, 'canWrite')) return
      if (this.#leading) {
        // Whoever leads is here, so nobody is at the attempt any more.
        await this.#tell({ abandoned: true, heldBack: false })
        await holdBack()
        return await this.#tell({ heldBack: true })
      }
      if (!isOver(stages) || stages.heldBack) return
      await this.#wait(signal)
    }
  }

  /** Resolves with the commit point of a new attempt, or of one that is under way. Throws the failure of one that ends meanwhile. */
  async commitPoint(
    takePoint: () => Promise<string>,
    signal: AbortSignal,
  ): Promise<{ attempt: number; point: string }> {
    let failuresBefore: number | null = null
    for (;;) {
      const stages = await this.#parts.stages.load()
      failuresBefore ??= stages.failures
      if (hasReached(stages, 'canWrite')) throw new PassedError()
      // An attempt may begin and fail between two looks.
      if (stages.failures > failuresBefore) throwFailure(stages)
      if (stages.attempt > 0 && stages.commitPoint && !isOver(stages) && !this.#leading) {
        this.waitingFor = []
        return { attempt: stages.attempt, point: stages.commitPoint }
      }
      // Also asked where another leads, for whoever wonders there.
      if ((await this.allAre('COMMITTING')) && this.#leading) {
        const point = await takePoint()
        const attempt = stages.attempt + 1
        await this.#tell({
          attempt,
          commitPoint: point,
          step: 'point',
          failure: null,
          abandoned: false,
          heldBack: false,
        })
        return { attempt, point }
      }
      await this.#wait(signal)
    }
  }

  /** Throws RenewedError when the attempt is given up, or the failure it has ended with meanwhile. */
  async step(step: CommitStep, attempt: number, work: () => Promise<void>, signal: AbortSignal): Promise<void> {
    let failuresBefore: number | null = null
    for (;;) {
      const stages = await this.#parts.stages.load()
      failuresBefore ??= stages.failures
      if (stages.attempt > attempt && !hasReached(stages, 'canWrite')) throw new RenewedError()
      if (hasReached(stages, step)) return
      // Also for whoever leads by now: what an attempt that is given up had prepared is held back again.
      if (stages.abandoned) throw new RenewedError()
      if (this.#leading) {
        await work()
        return await this.#tell({ step, failure: null })
      }
      // Before writes are allowed a failure ends the attempt, whether or not this instance had come to the step by then.
      if (stages.failures > failuresBefore || !hasReached(stages, 'canWrite')) throwFailure(stages)
      await this.#wait(signal)
    }
  }

  /**
   * Before the coordinator finishes a commit: all others have given back what they apply, and nobody can begin anew, for whoever
   * finishes owns every partition. One that comes only now is waited for: it gets the commit too.
   */
  async alone(signal: AbortSignal): Promise<void> {
    const { coordination } = this.#parts
    coordination.takeWork(true)
    try {
      while (!coordination.hasEverything) {
        this.waitingFor = coordination.otherOwners
        await this.#wait(signal)
      }
    } finally {
      coordination.takeWork(false)
      this.waitingFor = []
    }
  }

  /** The coordinator's commit has failed: so has everybody's. */
  async failed(failure: Failure): Promise<void> {
    if (!this.#leading) return
    const stages = await this.#parts.stages.load()
    if (isOver(stages)) return
    await this.#tell({ failure, failures: stages.failures + 1, heldBack: false })
  }

  /** The coordinator has taken a commit point, and nothing has gone wrong with it so far. */
  async isCommitting(): Promise<boolean> {
    const stages = await this.#parts.stages.load()
    return stages.attempt > 0 && !isOver(stages)
  }

  async hashed(hashed: boolean): Promise<void> {
    if (this.#leading) await this.#tell({ hashed })
  }

  /** Every instance that is there has got the command that leads to this state. */
  async allAre(state: PublicState): Promise<boolean> {
    const { coordination, liveness, id } = this.#parts
    const seen = await liveness.instances().catch((error) => {
      if (error instanceof FatalError) throw error
      return null // it does not answer now; a commit can wait
    })
    if (!seen) return false
    // Who is not heard of but has a lease still works on what it owns.
    const there = new Set(coordination.members)
    // One that was stopped is heard of for a while; a commit does not wait for it. (After one nobody has a lease any more.)
    const hasLeft = (one: string): boolean => state === 'COMMITTING' && coordination.hasLeft(one)
    for (const one of seen) if (one.alive && !hasLeft(one.id)) there.add(one.id)
    for (const one of seen) if (one.alive && one.progress.state === state) there.delete(one.id)
    there.delete(id)
    this.waitingFor = [...there].sort()
    return this.waitingFor.length === 0
  }

  async #tell(fields: Partial<Stages>): Promise<void> {
    await this.#parts.stages.set(fields)
    this.#parts.liveness.notify()
  }

  async #wait(signal: AbortSignal): Promise<void> {
    const waking = new AbortController()
    const paused = sleep(waitMS, undefined, { signal: AbortSignal.any([signal, waking.signal]) }).catch(() => {})
    await Promise.race([paused, this.#parts.coordination.changed()])
    waking.abort()
    if (signal.aborted) throw new StoppedError()
  }
}

function throwFailure({ failure }: Stages): void {
  if (failure) throw new FatalError(failure.error, failure.errorDescription)
}

/** The present attempt has ended without being a commit. */
function isOver(stages: Stages): boolean {
  return !hasReached(stages, 'canWrite') && (stages.abandoned || stages.failure !== null)
}
