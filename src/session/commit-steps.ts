import { setTimeout as sleep } from 'node:timers/promises'
import type { CoordinatorReport } from '../../machines/sync-context.ts'
import { type CommitParts, deferExpiry, finishIndexes, prepareToWrite, restoreExpiry } from '../commit/finish-commit.ts'
import { applyLateDeletes, findLateWrites } from '../commit/late-changes.ts'
import { blocksDestination, blocksSource, setWriteBlocking } from '../commit/write-blocking.ts'
import type { Coordination } from '../coordination/coordination.ts'
import type { Peers } from '../coordination/peers.ts'
import { type ClusterTime, laterOf } from '../domain/cluster-time.ts'
import type { LateWrites } from '../domain/commit-request.ts'
import { deferred } from '../domain/deferred.ts'
import { FatalError, RefusedError, StoppedError, toFailure } from '../domain/errors.ts'
import type { StartConfiguration } from '../domain/start-request.ts'
import type { Cluster } from '../mongo/cluster.ts'
import { appendOplogNote } from '../mongo/oplog-note.ts'
import { type RetryContext, retry } from '../mongo/retry.ts'
import { undoing } from './commit-readiness.ts'
import { CommitTiming } from './commit-timing.ts'
import type { Replication } from './replication.ts'
import type { SharedReplication } from './shared-replication.ts'
import type { Verification } from './verification.ts'
import type { WorkRuns } from './work-runs.ts'

const verifierPollMS = 50
/**
 * Time limit of the search for late writes on the source, ms. Applications already write on the destination during it.
 */
const lateWritesLimitMS = 30_000
/**
 * Applying this many expired documents takes a while, in which more expire. The search then repeats before the verifier
 * runs.
 */
const manyExpired = 10_000

/** The steps before the decision in which changes are no longer applied, each with the step before it. */
const stepBefore = { applyAll: null, prepare: 'applyAll', verify: 'prepare', decide: 'verify' } as const

interface Begun {
  abortsBefore: number
  /**
   * This process did not do the previous step in this term. Another coordinator may have died during this step or a
   * later one.
   */
  takenOver: boolean
}

/** What a commit waits for in each step. The keys are the step names of `lastRehearsal.steps`. */
const stepNames: Record<string, string> = {
  commitPoint: 'the commit point on the source',
  applyEvents: 'changes to be applied',
  prepare: 'definitions and indexes to be prepared on the destination',
  verify: 'the comparison of both clusters',
  lastCheck: 'the last check of the source',
}

export interface CommitStepsParts {
  source: Cluster
  destination: Cluster
  configuration: StartConfiguration
  context: RetryContext
  coordination: Coordination
  team: Peers
  verification: Verification
  runs: WorkRuns
  replication: SharedReplication
  /** True when this instance was asked for a rehearsal. */
  dryRun: () => boolean
  /** Resolves when this process holds its instance's lease and knows who coordinates. */
  lead: () => Promise<void>
  /**
   * Resolves when this process holds its instance's lease. It does not change whether the instance counts as at work.
   */
  hold: () => Promise<void>
  /** Called when every change up to this time is on the destination. */
  applied: (time: ClusterTime) => void
  atStep: (step: string) => void
}

/** The coordinator's work in each step of a commit, and the repair between two attempts. */
export class CommitSteps {
  readonly #parts: CommitStepsParts
  readonly timing = new CommitTiming()
  /** Between the commit timestamp and this time, the only changes on the source were documents that expired. */
  #quietUntil: ClusterTime = 0n
  #loadedFor = ''
  /** The step that this process completed last, with its attempt and term. */
  #done = ''

  constructor(parts: CommitStepsParts) {
    this.#parts = parts
  }

  /** Waits until every instance has received the commit. */
  async gather(left: AbortSignal): Promise<CoordinatorReport> {
    const { replication, team, runs } = this.#parts
    // This instance's own workers must run first: until then they ask that the preparation of the last attempt is
    // undone.
    await unlessLeft(left, replication.whenOpen())
    await team.gathered(AbortSignal.any([left, runs.signal]))
    return { type: 'commit.gathered' }
  }

  /** Blocks writes on the source if requested, and takes the commit timestamp, up to which events are applied. */
  async takePoint(left: AbortSignal): Promise<CoordinatorReport> {
    const { replication, runs } = this.#parts
    await unlessLeft(left, replication.whenOpen())
    const run = this.#takePoint(AbortSignal.any([left, runs.signal]))
    // An abort waits until this has ended before it unblocks the source for the last time.
    replication.joined(run)
    return { type: 'commit.pointTaken', commitPoint: await run }
  }

  async #takePoint(signal: AbortSignal): Promise<string> {
    const { source, configuration } = this.#parts
    const context = { ...this.#parts.context, signal }
    this.timing.begin('commitPoint')
    if (blocksSource(configuration)) {
      this.#parts.atStep('blockSource')
      await this.#blockSource(context)
    }
    this.#parts.atStep('commitPoint')
    await retry('taking the commit point', context, () => appendOplogNote(source, 'commit'))
    const point = source.latest.toString()
    // Events are applied until the stream has passed the commit timestamp. On a quiet source, this no-op is the next
    // event.
    await retry('taking the commit point', context, () => appendOplogNote(source, 'after commit'))
    this.timing.next('applyEvents')
    return point
  }

  async #blockSource(context: RetryContext): Promise<void> {
    const { source, destination } = this.#parts
    await retry('blocking writes on the source', context, () => setWriteBlocking(source, true, destination))
  }

  /** Waits until every instance has applied all changes up to the commit timestamp. */
  applyAll(left: AbortSignal): Promise<CoordinatorReport> {
    return this.#finish('applyAll', left, { type: 'commit.applied' }, async () => {})
  }

  /** Restores the deferred options on the destination. */
  prepare(left: AbortSignal): Promise<CoordinatorReport> {
    const { configuration, context, verification } = this.#parts
    return this.#finish('prepare', left, { type: 'commit.prepared' }, async ({ takenOver }) => {
      this.timing.next('prepare')
      const replication = await this.#loadForAttempt()
      if (takenOver) await replication.holdBack()
      await this.#refuseSilentChanges(replication)
      await retry('following views', context, () => replication.commit.definitions.followSilentViews())
      await verification.checkDefinitions(configuration, 'deferred')
      await prepareToWrite(replication.commit)
    })
  }

  /** Verifies that both clusters are equal and the source is quiet. Fails with VerificationFailed or SourceWritten. */
  verify(left: AbortSignal): Promise<CoordinatorReport> {
    return this.#finish('verify', left, { type: 'commit.verified' }, (begun) => this.#verify(begun))
  }

  async #verify({ takenOver }: Begun): Promise<void> {
    const { configuration, verification, runs } = this.#parts
    const commitPoint = this.#commitPoint
    this.timing.next('verify')
    const { commit } = await this.#loadForAttempt()
    // `decide` may have restored the expiry, and a new coordinator's term leads back from `decide` to this step.
    if (takenOver) await deferExpiry(commit)
    this.#parts.applied(commitPoint)
    this.#parts.atStep('verify')
    // Taken before the verifier reads the last changes: later changes on the destination belong to a reversal.
    this.#parts.atStep('reversePosition')
    await commit.reversePosition?.take()
    const applyLate = async (since: ClusterTime): Promise<number> => {
      const { until, expired } = await applyLateDeletes(commit, since)
      this.#quietUntil = until
      // The verifier keeps expired documents until it may compare them, and stops reading when it keeps too many.
      this.#parts.applied(until)
      return expired
    }
    let since = commitPoint
    while ((await applyLate(since)) >= manyExpired) since = this.#quietUntil
    // An instance that was just elected starts its verifier in parallel to this step.
    while (configuration.verification.enabled && !verification.running) {
      if (runs.signal.aborted) throw new StoppedError()
      await sleep(verifierPollMS)
    }
    await verification.settle(configuration, () => applyLate(this.#quietUntil))
  }

  /** Checks the source once more before the decision is stored. A rehearsal ends here. */
  decide(left: AbortSignal): Promise<CoordinatorReport> {
    const { configuration, context, verification, runs } = this.#parts
    let decision: CoordinatorReport | null = null
    return this.#finish(
      'decide',
      left,
      () => decision as CoordinatorReport,
      async ({ abortsBefore }) => {
        this.timing.next('lastCheck')
        await this.#loadForAttempt()
        const { commit } = this.finishing
        const rehearsed = this.#isRehearsal
        // The verifier ends here, because from the decision on users write on the destination. Both are awaited even
        // when one fails: nothing of this step may be under way when the next attempt begins.
        if (!rehearsed) await both(verification.end(), restoreExpiry(commit))
        if (left.aborted) throw new StoppedError()
        await this.#refuseSilentChanges(this.finishing)
        this.#parts.atStep('lastCheck')
        // Block again: a delayed write of an earlier coordinator may have unblocked the source for an abort.
        if (blocksSource(configuration)) await this.#blockSource({ ...context, signal: runs.signal })
        const { until } = await applyLateDeletes(commit, laterOf(this.#commitPoint, this.#quietUntil))
        this.#quietUntil = until
        if (rehearsed) await this.#endRehearsal(abortsBefore, this.#verified())
        this.#parts.atStep('decide')
        decision = { type: 'commit.decided', quietUntil: until.toString() }
      },
    )
  }

  /**
   * True when this or any other instance was asked for a rehearsal: then none of them may enable writes on the
   * destination.
   */
  get #isRehearsal(): boolean {
    return this.#parts.dryRun() || (this.#parts.team.sync.context.request?.dryRun ?? false)
  }

  #verified(): string {
    return this.#parts.configuration.verification.enabled ? 'equal' : 'not verified'
  }

  get #commitPoint(): ClusterTime {
    return BigInt(this.#parts.team.sync.context.commitPoint ?? 0)
  }

  /** Enables user writes on the destination. The decision is already stored. */
  async open(left: AbortSignal): Promise<CoordinatorReport> {
    const { configuration, context, destination, runs } = this.#parts
    const opened = await this.#afterDecision(left, { type: 'commit.opened' }, async () => {
      if (!blocksDestination(configuration)) return
      this.#parts.atStep('unblock')
      const retrying = { ...context, signal: runs.signal }
      await retry('allowing writes on the destination', retrying, () => setWriteBlocking(destination, false))
      this.#parts.atStep('unblocked')
    })
    this.timing.over()
    return opened
  }

  /**
   * Runs a step before the decision, after all earlier work has ended. When the step of a rehearsal fails, the
   * rehearsal ends with the failure as its verdict, and changes are applied again.
   */
  async #finish(
    step: keyof typeof stepBefore,
    left: AbortSignal,
    report: CoordinatorReport | (() => CoordinatorReport),
    work: (begun: Begun) => Promise<void>,
  ): Promise<CoordinatorReport> {
    const { coordination, team, runs } = this.#parts
    const { aborts } = team.sync.context
    let isShared = false
    await runs.finish(left, async () => {
      runs.renew()
      await this.#parts.lead()
      // An instance that joined late has taken the partitions of a coordinator that died. It may not apply their events
      // now and would never give them back, so a new attempt begins, in which that instance takes part.
      isShared = step !== 'applyAll' && !coordination.hasEverything && coordination.otherOwners.length > 0
      if (isShared) return
      await team.alone(runs.signal)
      const { term, attempt } = team.worked
      const takenOver = this.#done !== `${stepBefore[step]} ${attempt} ${term}`
      this.#done = ''
      try {
        await work({ abortsBefore: aborts, takenOver })
        this.#done = `${step} ${attempt} ${term}`
      } catch (error) {
        if (!(error instanceof FatalError) || error.failure === 'LeaseLost' || !this.#isRehearsal) throw error
        await this.#endRehearsal(aborts, error.failure, error.message)
      }
    })
    if (isShared) return { type: 'commit.renewed' }
    return typeof report === 'function' ? report() : report
  }

  async #afterDecision(
    left: AbortSignal,
    report: CoordinatorReport,
    work: () => Promise<void>,
  ): Promise<CoordinatorReport> {
    const { runs } = this.#parts
    await runs.finish(left, async () => {
      runs.renew()
      await this.#parts.lead()
      await work()
    })
    return report
  }

  async #endRehearsal(abortsBefore: number, verdict: string, failed: string | null = null): Promise<never> {
    const { team } = this.#parts
    const rehearsal = this.timing.rehearsal(verdict)
    const reason = failed && `the rehearsal would have failed with ${verdict}: ${failed}`
    await team.abort(abortsBefore, { reason, rehearsal })
    throw new StoppedError()
  }

  /**
   * Undoes what a commit changed. After an abort it unblocks the source first, because users wait for it. The rest of
   * the commit may take a while to end and may block the source again, so the source is unblocked once more afterwards.
   */
  async undo(left: AbortSignal): Promise<CoordinatorReport> {
    const { replication, runs, team } = this.#parts
    const { ended } = runs
    const isAborted = team.sync.matches('undoing')
    const { aborts } = team.sync.context
    const undo = async (): Promise<void> => {
      await this.#parts.hold()
      if (isAborted) await replication.unblockSource(left)
      await ended
      if (left.aborted) throw new StoppedError()
      // Unblock before any other step that may fail.
      if (isAborted) await replication.unblockSource(left)
      const current = await replication.read(left)
      await current.holdBack()
    }
    const run = undo()
    replication.joined(run)
    await run
    return { type: 'commit.undone', aborts }
  }

  /** Describes what the commit waits for now. */
  get waitingFor(): string {
    const { waitingFor } = this.#parts.team
    if (waitingFor.length > 0) return `these instances to get the commit too: ${waitingFor.join(', ')}`
    return stepNames[this.timing.step ?? ''] ?? 'the coordinator'
  }

  /** Warnings about the last commit or the one that is under way. */
  get warnings(): string[] {
    const { abortReason, lateWrites } = this.#parts.team.sync.context
    const warnings = abortReason === null ? [] : [abortReason]
    if (this.#parts.team.sync.matches('undoing')) warnings.push(undoing)
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

  /**
   * A change stream of a source older than 6.0 does not emit every definition change; this fails when it missed one.
   */
  async #refuseSilentChanges({ commit }: Replication): Promise<void> {
    await retry('looking for changed definitions', this.#parts.context, () =>
      commit.definitions.refuseSilentChanges(true),
    )
  }

  /** Does the work that remains once users write on the destination. */
  convert(left: AbortSignal): Promise<CoordinatorReport> {
    return this.#afterDecision(left, { type: 'commit.converted' }, async () => {
      const { commit } = await this.#parts.replication.load()
      await both(this.#findLateWrites(commit), finishIndexes(commit))
    })
  }

  /**
   * Searches for late writes. The source may be shut down by now: a failed check is reported and does not stop the
   * commit.
   */
  async #findLateWrites(commit: CommitParts): Promise<void> {
    const { team, runs } = this.#parts
    const { quietUntil, lateWrites } = (await team.load()).context
    if (quietUntil === null || lateWrites !== null) return
    const signal = AbortSignal.any([runs.signal, AbortSignal.timeout(lateWritesLimitMS)])
    const parts = { ...commit, context: { ...commit.context, signal } }
    const found = await findLateWrites(parts, BigInt(quietUntil)).catch((error): LateWrites => {
      if (runs.signal.aborted) throw error
      return { total: 0, first: [], unchecked: toFailure(error).error }
    })
    await team.report({ type: 'lateWrites.found', lateWrites: found })
  }

  /**
   * Reconciles from the source what the last verdict named. Returns how many documents were reconciled. Throws
   * RefusedError WrongState when another instance coordinates or the commit is decided.
   */
  async repair(): Promise<number> {
    const { coordination, team, verification, runs } = this.#parts
    let repaired = 0
    // The command that follows (a resume or an abort) waits until the repair has ended.
    await runs.finish(new AbortController().signal, async () => {
      runs.renew()
      await this.#parts.hold()
      if (!coordination.leading) throw coordinatedElsewhere(coordination)
      if ((await team.load()).hasTag('decided')) throw decidedElsewhere()
      const replication = await this.#parts.replication.load()
      await replication.holdBack()
      repaired = await replication.repair(verification.store)
    })
    return repaired
  }

  /** The replication that a commit works on. It was loaded when the commit began to finish. */
  get finishing(): Replication {
    const { latest } = this.#parts.replication
    if (!latest) throw new FatalError('InternalError', 'a commit that finishes before it began')
    return latest
  }

  /**
   * Loads once for each commit attempt in each term, because another coordinator may have changed what this instance
   * last read.
   */
  async #loadForAttempt(): Promise<Replication> {
    const { team, runs, replication } = this.#parts
    const { term, attempt } = team.worked
    const wanted = `${attempt} ${term} ${runs.renewals}`
    if (!replication.latest || this.#loadedFor !== wanted) await replication.load()
    this.#loadedFor = wanted
    return this.finishing
  }
}

/**
 * The repair is refused, because after a success the operator would expect the difference to be gone and send resume.
 */
function coordinatedElsewhere({ id, coordinatorID }: Coordination): RefusedError {
  const there = coordinatorID === null || coordinatorID === id ? 'the coordinator' : `the coordinator, ${coordinatorID}`
  return new RefusedError(
    'WrongState',
    `repair is carried out by ${there}; nothing was changed here. Send it to the instance that tandem instances shows as the coordinator`,
  )
}

function decidedElsewhere(): RefusedError {
  return new RefusedError(
    'WrongState',
    'the commit was decided by another instance since: send resume, which ends it here too',
  )
}

/** Resolves with `awaited`; rejects with StoppedError as soon as the step is left. */
async function unlessLeft(left: AbortSignal, awaited: Promise<void>): Promise<void> {
  const leaving = deferred<void>()
  const leave = (): void => leaving.resolve()
  left.addEventListener('abort', leave, { once: true })
  await Promise.race([awaited, leaving.promise])
  left.removeEventListener('abort', leave)
  if (left.aborted) throw new StoppedError()
}

/** Resolves when both promises have. If one fails, rejects with the first failure once both have ended. */
async function both(...two: [Promise<unknown>, Promise<unknown>]): Promise<void> {
  const failed = (await Promise.allSettled(two)).find(({ status }) => status === 'rejected')
  if (failed) throw (failed as PromiseRejectedResult).reason
}
