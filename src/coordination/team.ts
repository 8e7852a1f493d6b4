import { setTimeout as sleep } from 'node:timers/promises'
import { type CommitRequest, type LateWrites, plainCommit } from '../domain/commit-request.ts'
import { type Failure, FatalError, RefusedError, StoppedError } from '../domain/errors.ts'
import type { PublicState } from '../domain/progress.ts'
import type { Coordination } from './coordination.ts'
import type { Liveness } from './liveness.ts'
import { type CommitStep, hasReached, isDecided, type StageStore, type Stages } from './stages.ts'

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

/** The commit was aborted: by the operator, by its time limit, or because it was a rehearsal. */
export class AbortedError extends Error {
  /** How many commits had been aborted before it. */
  readonly abortsBefore: number
  constructor(abortsBefore: number) {
    super('the commit was aborted')
    this.name = 'AbortedError'
    this.abortsBefore = abortsBefore
  }
}

/** The commit is decided: nothing may be applied on the destination any more, and what is left of the commit is done. */
export class PassedError extends Error {
  constructor() {
    super('the commit is decided')
    this.name = 'PassedError'
  }
}

/** Takes back what a commit has changed. Both may be repeated. */
export interface UndoCommit {
  /** What was prepared on the destination is held back again, and the destination is blocked where it was. */
  holdBack: () => Promise<void>
  /** Users may write on the source again, where the commit had blocked it. */
  unblockSource: () => Promise<void>
}

const waitMS = 250
/** For so long a request binds the other instances though none is COMMITTING yet. */
const requestPatienceMS = 10_000

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

  load(): Promise<Stages> {
    return this.#parts.stages.load()
  }

  /** What the check after unblocking found, for the warnings of every instance. */
  async tellLateWrites(lateWrites: LateWrites): Promise<void> {
    await this.#tell({ lateWrites })
  }

  get #term(): number {
    return this.#parts.coordination.coordinatorEpoch
  }

  /** What is stored of the commit, as this instance loaded it last. */
  get stages(): Stages {
    return this.#parts.stages.latest
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

  /** Before anything is applied. Throws PassedError where the commit is decided by now. */
  async insistOnOpen(): Promise<void> {
    if (isDecided(await this.#parts.stages.load())) throw new PassedError()
  }

  /**
   * Before anything is applied by an instance that knows of a commit, or while an abort has not been undone: what the attempt
   * that is over had changed is undone by the coordinator. An attempt that others are still at is left alone.
   * @param commitBegun this instance had begun a commit that is not finished
   */
  async reopen(commitBegun: boolean, undo: UndoCommit, signal: AbortSignal): Promise<void> {
    for (;;) {
      const stages = await this.#parts.stages.load()
      if (isDecided(stages)) return
      const { aborts } = stages
      const isAborted = aborts > stages.abortsUndone
      if (!commitBegun && !isAborted) return
      if (this.#leading) {
        // The coordinator is here, so no instance works on the attempt any more.
        if (isDecided(await this.#parts.stages.abandon())) return
        this.#parts.liveness.notify()
        if (isAborted) await undo.unblockSource()
        await undo.holdBack()
        return await this.#tell({ heldBack: true, abortsUndone: aborts })
      }
      if (!isAborted && (!isOver(stages) || stages.heldBack)) return
      await this.#wait(signal)
    }
  }

  /**
   * Stores what the commit is asked for, before any instance acts on it. Throws RefusedError ConfigurationMismatch when another
   * instance was asked for a different commit.
   * @returns how many commits have been aborted so far: an abort that follows is of this one
   */
  async request(request: CommitRequest): Promise<number> {
    const { stages, liveness, id } = this.#parts
    const [seen, { request: known }] = await Promise.all([liveness.instances().catch(() => null), stages.load()])
    const others = seen?.filter((one) => one.alive && one.id !== id)
    // An instance may have stored it and died, or been refused, before it began the commit. Where there are others it may also just
    // be beginning: a rehearsal that another instance takes for a commit would open the destination.
    const isUnused = others?.every((one) => one.progress.state !== 'COMMITTING') ?? false
    const isOld = known !== null && Math.abs(Date.now() - known.at) > requestPatienceMS
    const replaces = isUnused && (others?.length === 0 || isOld) ? known : null
    const { request: stored, aborts } = await stages.request(request, replaces)
    if (stored && (stored.dryRun !== request.dryRun || stored.maxSeconds !== request.maxSeconds)) {
      throw new RefusedError(
        'ConfigurationMismatch',
        `the commit that is under way has dryRun ${stored.dryRun} and maxSeconds ${stored.maxSeconds}; send the same to every instance, or abort it first and send this one again after ${requestPatienceMS / 1_000} seconds`,
      )
    }
    return aborts
  }

  /**
   * Aborts the commit that this instance takes part in. May be repeated.
   * @param abortsBefore what `request` had returned
   * @returns false when it is too late: the commit is decided
   */
  async abort(abortsBefore: number, fields: Parameters<StageStore['abort']>[1] = {}): Promise<boolean> {
    const stages = await this.#parts.stages.abort(abortsBefore, fields)
    this.#parts.liveness.notify()
    return stages.aborts > abortsBefore
  }

  /**
   * A release before the decision was stored unblocked the destination while `verified` was the last step on record. One that died right
   * after that has let users write there: the commit is decided, and only goes forward. Throws PassedError then.
   * @param isOpened whether users can write on the destination
   */
  async adoptOpened(isOpened: () => Promise<boolean>): Promise<void> {
    const { step, term, abandoned, failure } = await this.#parts.stages.load()
    if (step !== 'verified' || term > 0 || abandoned || failure || !this.#leading) return
    if (!(await isOpened())) return
    await this.#tell({ step: 'decided' })
    throw new PassedError()
  }

  /** Where the coordinator is to undo an abort: the source first, for users wait, and the step that is under way may take long. */
  async unblockAborted(unblockSource: () => Promise<void>): Promise<void> {
    const { aborts, abortsUndone } = await this.#parts.stages.load()
    if (this.#leading && aborts > abortsUndone) await unblockSource()
  }

  /** Resolves with true when the commit is aborted, and with false when it is decided, is not under way any more, or `signal` aborts. */
  async aborted(abortsBefore: number, signal: AbortSignal): Promise<boolean> {
    while (!signal.aborted) {
      const stages = await this.#parts.stages.load()
      if (stages.aborts > abortsBefore) return true
      if (isDecided(stages)) return false
      await this.#wait(signal).catch(() => {})
    }
    return false
  }

  /**
   * Resolves with the commit point of a new attempt, or of one that is under way. Throws the failure of one that ends meanwhile,
   * and AbortedError.
   */
  async commitPoint(
    takePoint: () => Promise<string>,
    abortsBefore: number,
    signal: AbortSignal,
  ): Promise<{ attempt: number; point: string }> {
    let failuresBefore: number | null = null
    for (;;) {
      const stages = await this.#parts.stages.load()
      failuresBefore ??= stages.failures
      if (isDecided(stages)) throw new PassedError()
      if (stages.aborts > abortsBefore) throw new AbortedError(abortsBefore)
      // An attempt may begin and fail between two reads.
      if (stages.failures > failuresBefore) throwFailure(stages)
      if (stages.attempt > 0 && stages.commitPoint && !isOver(stages) && !this.#leading) {
        this.waitingFor = []
        return { attempt: stages.attempt, point: stages.commitPoint }
      }
      // Also asked where another instance leads, for its warnings.
      const isUndone = stages.aborts === stages.abortsUndone
      if ((await this.allAre('COMMITTING')) && this.#leading && isUndone) {
        const point = await takePoint()
        const attempt = stages.attempt + 1
        const begun = await this.#parts.stages.begin({ attempt, term: this.#term }, abortsBefore, point)
        this.#parts.liveness.notify()
        if (begun.attempt === attempt && begun.term === this.#term) return { attempt, point }
      }
      await this.#wait(signal)
    }
  }

  /**
   * Does a step of the commit, or waits until the coordinator has done it. Throws RenewedError when the attempt is given up,
   * AbortedError when the commit is, or the failure that it has ended with meanwhile.
   * @param work what the coordinator does; returns what is stored together with the step
   */
  async step(
    step: CommitStep,
    { attempt, abortsBefore }: { attempt: number; abortsBefore: number },
    work: () => Promise<Partial<Stages> | undefined>,
    signal: AbortSignal,
  ): Promise<void> {
    let failuresBefore: number | null = null
    for (;;) {
      const stages = await this.#parts.stages.load()
      failuresBefore ??= stages.failures
      const decided = isDecided(stages)
      if (!decided && stages.aborts > abortsBefore) throw new AbortedError(abortsBefore)
      if (!decided && stages.attempt > attempt) throw new RenewedError()
      if (hasReached(stages, step)) return
      // Also for a coordinator that was elected since: what an attempt that is given up had prepared is held back again.
      if (!decided && stages.abandoned) throw new RenewedError()
      if (this.#leading) {
        const owner = { attempt: decided ? stages.attempt : attempt, term: this.#term }
        // A verdict holds only in the term in which it was reached, and so does every step before the decision.
        if (!decided && stages.term !== owner.term) await this.#parts.stages.takeOver(owner)
        const fields = await work()
        const advanced = await this.#parts.stages.advance(owner, step, fields)
        this.#parts.liveness.notify()
        // Not so where it was aborted, or taken over, before it could be stored.
        if (hasReached(advanced, step) && advanced.attempt === owner.attempt && !isOver(advanced)) return
      } else if (stages.failures > failuresBefore || !decided) {
        // Before the decision a failure ends the attempt, whether or not this instance had come to the step by then.
        throwFailure(stages)
      }
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
    await this.#parts.stages.fail(stages, failure)
    this.#parts.liveness.notify()
  }

  /** The commit that the others are at, if the coordinator has taken its commit point and nothing has gone wrong with it so far. */
  async joinable(): Promise<{ abortsBefore: number; request: CommitRequest } | null> {
    const stages = await this.#parts.stages.load()
    // An aborted commit takes its request with it; one of an earlier version has none.
    const hasNone = stages.request === null && stages.aborts > 0
    if (stages.attempt === 0 || hasNone || isOver(stages)) return null
    return { abortsBefore: stages.aborts, request: stages.request ?? plainCommit }
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
  return !isDecided(stages) && (stages.abandoned || stages.failure !== null)
}
