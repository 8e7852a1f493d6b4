import { setTimeout as sleep } from 'node:timers/promises'
import { type CommitParts, finishIndexes, prepareToWrite, restoreExpiry } from '../commit/finish-commit.ts'
import { applyLateDeletes, findLateWrites } from '../commit/late-changes.ts'
import { blocksDestination, blocksSource, setWriteBlocking } from '../commit/write-blocking.ts'
import type { Coordination } from '../coordination/coordination.ts'
import type { CommitStep, Stages } from '../coordination/stages.ts'
import { AbortedError, type Team } from '../coordination/team.ts'
import { type ClusterTime, laterOf } from '../domain/cluster-time.ts'
import type { LateWrites } from '../domain/commit-request.ts'
import { FatalError, StoppedError, toFailure } from '../domain/errors.ts'
import type { StartConfiguration } from '../domain/start-request.ts'
import type { Cluster } from '../mongo/cluster.ts'
import { appendNote } from '../mongo/listing.ts'
import { type RetryContext, retry } from '../mongo/retry.ts'
import { CommitTiming } from './commit-timing.ts'
import type { Replication } from './replication.ts'
import type { SharedReplication } from './shared-replication.ts'
import type { Verification } from './verification.ts'
import type { WorkRuns } from './work-runs.ts'

const verifierPollMS = 50
/** For so long the source is asked what came too late; applications write on the destination meanwhile. */
const lateWritesLimitMS = 30_000
/** So many take a while to apply, and more expire meanwhile: they are looked for again before the verifier comes to them. */
const manyExpired = 10_000

/** By the names of `lastRehearsal.steps`. */
const stepNames: Record<string, string> = {
  commitPoint: 'the commit point on the source',
  applyEvents: 'changes to be applied',
  prepare: 'definitions and indexes to be prepared on the destination',
  verify: 'the comparison of both clusters',
  lastCheck: 'the last check of the source',
}

/** Which commit a step belongs to. */
interface CommitAt {
  /** This instance was asked for a rehearsal. */
  dryRun: boolean
  /** How many commits had been aborted when it was asked for. */
  abortsBefore: number
  /** Cluster time of the source, as decimal digits. */
  commitPoint: string
}

export interface CommitStepsParts {
  source: Cluster
  destination: Cluster
  configuration: StartConfiguration
  context: RetryContext
  coordination: Coordination
  team: Team
  verification: Verification
  runs: WorkRuns
  replication: SharedReplication
  /** Resolves when this process holds its instance's lease and knows who coordinates. */
  lead: () => Promise<void>
  /** Everything up to this time is on the destination. */
  applied: (time: ClusterTime) => void
  atStep: (step: string) => void
}

/** What each step of a commit does here, whether this instance coordinates or waits; and the repair between two attempts. */
export class CommitSteps {
  readonly #parts: CommitStepsParts
  readonly timing = new CommitTiming()
  /** The source is known to have done nothing between the commit point and this time but let documents expire. */
  #quietUntil: ClusterTime = 0n
  /** The attempt to commit that this instance takes part in. */
  #attempt = 0
  #loadedFor = -1
  /** The attempt and the coordinator's term in which this process issued a verdict; it holds in no other. */
  #verdict: { attempt: number; term: number } | null = null

  constructor(parts: CommitStepsParts) {
    this.#parts = parts
  }

  /** Blocks the source if asked for and fixes the time up to which events are applied; for an instance that does not lead, waits. */
  async commitPoint(abortsBefore: number, left: AbortSignal): Promise<string> {
    // A commit may follow an abort at once: the source must not be unblocked for the abort after it was blocked for this one.
    await this.#parts.replication.whenOpen()
    const signal = AbortSignal.any([left, this.#parts.runs.signal])
    const run = this.#parts.team.commitPoint(() => this.#takeCommitPoint(signal), abortsBefore, signal)
    // An abort waits until this has ended before it unblocks the source for the last time.
    this.#parts.replication.joined(run)
    const { attempt, point } = await run
    this.#attempt = attempt
    return point
  }

  async #takeCommitPoint(signal: AbortSignal): Promise<string> {
    const { source, configuration } = this.#parts
    const context = { ...this.#parts.context, signal }
    this.timing.begin('commitPoint')
    if (blocksSource(configuration)) {
      this.#parts.atStep('blockSource')
      await this.#blockSource(context)
    }
    this.#parts.atStep('commitPoint')
    await retry('taking the commit point', context, () => appendNote(source, 'commit'))
    const point = source.latest.toString()
    // Events are applied until the stream has passed the point; on a quiet source this is what it passes it by.
    await retry('taking the commit point', context, () => appendNote(source, 'after commit'))
    this.timing.next('applyEvents')
    return point
  }

  async #blockSource(context: RetryContext): Promise<void> {
    const { source, destination } = this.#parts
    await retry('blocking writes on the source', context, () => setWriteBlocking(source, true, destination))
  }

  prepareToWrite(commit: Omit<CommitAt, 'commitPoint'>, left: AbortSignal): Promise<void> {
    const { configuration, context, coordination, team, verification, runs } = this.#parts
    return runs.finish(left, async () => {
      runs.renew()
      await this.#parts.lead()
      // Nothing is applied here any more; the instance that finishes the commit takes all of it.
      if (!coordination.leading) await coordination.yieldAll()
      const prepare = async (): Promise<undefined> => {
        await team.alone(runs.signal)
        this.timing.next('prepare')
        const replication = await this.#loadFor(this.#attempt)
        await this.#refuseUntold(replication)
        await retry('following views', context, () => replication.commit.definitions.followUntoldViews())
        await verification.checkDefinitions(configuration, 'heldBack')
        await prepareToWrite(replication.commit)
      }
      await this.#step('prepared', commit, prepare, runs.signal)
    })
  }

  /** Both clusters hold the same, and the source is quiet. Throws FatalError VerificationFailed or SourceWritten. */
  verdict(commit: CommitAt, left: AbortSignal): Promise<void> {
    const { runs } = this.#parts
    const issue = async (): Promise<undefined> => {
      await this.#issueVerdict(BigInt(commit.commitPoint))
    }
    return runs.finish(left, () => this.#step('verified', commit, issue, runs.signal))
  }

  async #issueVerdict(commitPoint: ClusterTime): Promise<void> {
    const { configuration, coordination, team, verification, runs } = this.#parts
    const term = coordination.coordinatorEpoch
    await team.alone(runs.signal)
    this.timing.next('verify')
    await this.#loadFor(this.#attempt)
    this.#parts.applied(commitPoint)
    this.#parts.atStep('verify')
    // Before the verifier reads the last changes: what changes on the destination after that belongs to a reversal.
    this.#parts.atStep('reversePosition')
    await this.finishing.commit.reversePosition?.take()
    const applyLate = async (since: ClusterTime): Promise<number> => {
      const { until, expired } = await applyLateDeletes(this.finishing.commit, since)
      this.#quietUntil = until
      // The verifier holds what expired until it may compare it, and reads no further once it holds too much.
      this.#parts.applied(until)
      return expired
    }
    let since = commitPoint
    while ((await applyLate(since)) >= manyExpired) since = this.#quietUntil
    // An instance that has just been elected starts its verifier beside this.
    while (configuration.verification.enabled && !verification.running) {
      if (runs.signal.aborted) throw new StoppedError()
      await sleep(verifierPollMS)
    }
    await verification.settle(configuration, () => applyLate(this.#quietUntil))
    this.#verdict = { attempt: this.#attempt, term }
  }

  /**
   * The last check of the source, and then the decision: once that is stored, the commit only goes forward. A verdict that a former
   * coordinator issued does not count: what was written on the destination since then was compared by nobody. A rehearsal
   * ends here.
   */
  decide(at: CommitAt, left: AbortSignal): Promise<void> {
    const { configuration, context, coordination, team, verification, runs } = this.#parts
    const { abortsBefore, commitPoint } = at
    const decide = async (): Promise<Partial<Stages>> => {
      await team.alone(runs.signal)
      const term = coordination.coordinatorEpoch
      if (this.#verdict?.attempt !== this.#attempt || this.#verdict.term !== term) {
        await this.#issueVerdict(BigInt(commitPoint))
      }
      this.timing.next('lastCheck')
      const { commit } = this.finishing
      const rehearsed = this.#isRehearsal(at)
      // From the decision on users write on the destination, which is no difference any more.
      // Both are awaited also where one fails: nothing of this step may be under way when the next attempt begins.
      if (!rehearsed) await both(verification.end(), restoreExpiry(commit))
      if (left.aborted) throw new StoppedError()
      await this.#refuseUntold(this.finishing)
      this.#parts.atStep('lastCheck')
      // Once more: a coordinator of an earlier term may have been stopped right before it unblocked the source for an abort.
      if (blocksSource(configuration)) await this.#blockSource({ ...context, signal: runs.signal })
      const { until } = await applyLateDeletes(commit, laterOf(BigInt(commitPoint), this.#quietUntil))
      this.#quietUntil = until
      if (rehearsed) await this.#endRehearsal(abortsBefore, this.#verified())
      this.#parts.atStep('decide')
      // Without write blocking users may have written on the destination all along.
      return { writesHeld: false, quietUntil: until.toString(), lateWrites: null }
    }
    return runs.finish(left, () => this.#step('decided', at, decide, runs.signal))
  }

  /** As this instance was asked, or any other: none of them may open the destination then. */
  #isRehearsal({ dryRun }: Pick<CommitAt, 'dryRun'>): boolean {
    return dryRun || (this.#parts.team.stages.request?.dryRun ?? false)
  }

  #verified(): string {
    return this.#parts.configuration.verification.enabled ? 'equal' : 'not verified'
  }

  /** The decision is stored: users may write on the destination. */
  open(left: AbortSignal): Promise<void> {
    const { configuration, context, destination, team, runs } = this.#parts
    return runs.finish(left, async () => {
      runs.renew()
      await this.#parts.lead()
      const open = async (): Promise<undefined> => {
        if (!blocksDestination(configuration)) return
        this.#parts.atStep('unblock')
        const retrying = { ...context, signal: runs.signal }
        await retry('allowing writes on the destination', retrying, () => setWriteBlocking(destination, false))
        this.#parts.atStep('unblocked')
      }
      await team.step('canWrite', { attempt: this.#attempt, abortsBefore: 0 }, open, runs.signal)
      this.timing.over()
    })
  }

  async #step(
    step: CommitStep,
    at: Omit<CommitAt, 'commitPoint'>,
    work: () => Promise<Partial<Stages> | undefined>,
    signal: AbortSignal,
  ): Promise<void> {
    const { team } = this.#parts
    const worked = async (): Promise<Partial<Stages> | undefined> => {
      try {
        return await work()
      } catch (error) {
        // A rehearsal does not fail: it says what a commit would have failed with, and changes are applied again.
        if (!(error instanceof FatalError) || error.failure === 'LeaseLost' || !this.#isRehearsal(at)) throw error
        return await this.#endRehearsal(at.abortsBefore, error.failure, error.message)
      }
    }
    const { abortsBefore } = at
    await team.step(step, { attempt: this.#attempt, abortsBefore }, worked, signal)
  }

  async #endRehearsal(abortsBefore: number, verdict: string, reason: string | null = null): Promise<never> {
    const lastRehearsal = this.timing.rehearsal(verdict)
    const abortReason = reason && `the rehearsal would have failed with ${verdict}: ${reason}`
    await this.#parts.team.abort(abortsBefore, { lastRehearsal, abortReason })
    throw new AbortedError(abortsBefore)
  }

  /** What the commit waits for now, in words. */
  get waitingFor(): string {
    const { waitingFor } = this.#parts.team
    if (waitingFor.length > 0) return `these instances to get the commit too: ${waitingFor.join(', ')}`
    return stepNames[this.timing.step ?? ''] ?? 'the coordinator'
  }

  /** What the operator should know of the last commit, or of the one that is under way. */
  get warnings(): string[] {
    const { abortReason, lateWrites } = this.#parts.team.stages
    const warnings = abortReason === null ? [] : [abortReason]
    if (lateWrites?.unchecked) {
      warnings.push(
        `the source could not be checked for writes while writes moved to the destination (${lateWrites.unchecked}); see whether it was written after the commit`,
      )
    }
    if (lateWrites && lateWrites.total > 0) {
      const { total, first } = lateWrites
      warnings.push(
        `the source was written while writes moved to the destination: ${total} ${total === 1 ? 'write is' : 'writes are'} not on the ` +
          `destination: ${first.join('; ')}${total > first.length ? '; …' : ''}. Apply them there by hand.`,
      )
    }
    return warnings
  }

  /** Of a source older than 6.0, whose change stream does not tell of every definition. */
  async #refuseUntold({ commit }: Replication): Promise<void> {
    await retry('looking for changed definitions', this.#parts.context, () => commit.definitions.refuseUntold(true))
  }

  finishIndexes(left: AbortSignal): Promise<void> {
    const { team, runs } = this.#parts
    return runs.finish(left, async () => {
      runs.renew()
      await this.#parts.lead()
      const convert = async (): Promise<Partial<Stages>> => {
        const { commit } = await this.#parts.replication.load()
        await both(this.#findLateWrites(commit), finishIndexes(commit))
        return {}
      }
      await team.step('committed', { attempt: this.#attempt, abortsBefore: 0 }, convert, runs.signal)
    })
  }

  /** The source may be shut down by now: what cannot be checked is said, and keeps nothing from being finished. */
  async #findLateWrites(commit: CommitParts): Promise<void> {
    const { team, runs } = this.#parts
    const { quietUntil, lateWrites } = await team.load()
    if (quietUntil === null || lateWrites !== null) return
    const signal = AbortSignal.any([runs.signal, AbortSignal.timeout(lateWritesLimitMS)])
    const parts = { ...commit, context: { ...commit.context, signal } }
    const found = await findLateWrites(parts, BigInt(quietUntil)).catch((error): LateWrites => {
      if (runs.signal.aborted) throw error
      return { total: 0, first: [], unchecked: toFailure(error).error }
    })
    await team.tellLateWrites(found)
  }

  /** Makes what the last verdict named equal again, from the source. Returns how many documents were looked at. */
  async repair(): Promise<number> {
    const { coordination, team, verification, runs } = this.#parts
    let repaired = 0
    // Whatever follows it (a resume, an abort) waits until it has ended.
    await runs.finish(new AbortController().signal, async () => {
      runs.renew()
      await this.#parts.lead()
      // One instance's work: the coordinator's.
      if (!coordination.leading) return
      await team.insistOnOpen()
      const replication = await this.#parts.replication.load()
      await replication.holdBack()
      repaired = await replication.repair(verification.store)
    })
    return repaired
  }

  /** What a commit works on: loaded when it began to finish. */
  get finishing(): Replication {
    const { latest } = this.#parts.replication
    if (!latest) throw new FatalError('InternalError', 'a commit that finishes before it began')
    return latest
  }

  /** Loads once for each attempt to commit: a predecessor in office may have changed what this instance saw last. */
  async #loadFor(attempt: number): Promise<Replication> {
    if (!this.#parts.replication.latest || this.#loadedFor !== attempt) await this.#parts.replication.load()
    this.#loadedFor = attempt
    return this.finishing
  }
}

/** Resolves when both have, and rejects, once both have ended, as the first that failed. */
async function both(...two: [Promise<unknown>, Promise<unknown>]): Promise<void> {
  const failed = (await Promise.allSettled(two)).find(({ status }) => status === 'rejected')
  if (failed) throw (failed as PromiseRejectedResult).reason
}
