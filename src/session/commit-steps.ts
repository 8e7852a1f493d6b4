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
/** For so long the source is asked what came too late; applications write on the destination meanwhile. */
const lateWritesLimitMS = 30_000
/** So many take a while to apply, and more expire meanwhile: they are looked for again before the verifier comes to them. */
const manyExpired = 10_000

/** The steps before the decision in which nothing is applied any more, and which one each follows. */
const stepBefore = { applyAll: null, prepare: 'applyAll', verify: 'prepare', decide: 'verify' } as const

interface Begun {
  abortsBefore: number
  /**
   * This process has not done the step before in this term: another coordinator may have died in the middle of this one, or of what
   * follows it.
   */
  takenOver: boolean
}

/** By the names of `lastRehearsal.steps`. */
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
  /** This instance was asked for a rehearsal. */
  dryRun: () => boolean
  /** Resolves when this process holds its instance's lease and knows who coordinates. */
  lead: () => Promise<void>
  /** Resolves when this process holds its instance's lease; the instance is at work no more than it was. */
  hold: () => Promise<void>
  /** Everything up to this time is on the destination. */
  applied: (time: ClusterTime) => void
  atStep: (step: string) => void
}

/** What the coordinator does at each step of a commit, and the repair between two attempts. */
export class CommitSteps {
  readonly #parts: CommitStepsParts
  readonly timing = new CommitTiming()
  /** The source is known to have done nothing between the commit point and this time but let documents expire. */
  #quietUntil: ClusterTime = 0n
  #loadedFor = ''
  /** The step that this process has done to its end last, in which attempt and term. */
  #done = ''

  constructor(parts: CommitStepsParts) {
    this.#parts = parts
  }

  /** Every instance has got the commit. */
  async gather(left: AbortSignal): Promise<CoordinatorReport> {
    const { replication, team, runs } = this.#parts
    // Its own workers have to be there first: before they are, they ask for what the last attempt had prepared to be undone.
    await unlessLeft(left, replication.whenOpen())
    await team.gathered(AbortSignal.any([left, runs.signal]))
    return { type: 'commit.gathered' }
  }

  /** Blocks the source if asked for and fixes the time up to which events are applied. */
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
    // Events are applied until the stream has passed the point; on a quiet source this is what it passes it by.
    await retry('taking the commit point', context, () => appendOplogNote(source, 'after commit'))
    this.timing.next('applyEvents')
    return point
  }

  async #blockSource(context: RetryContext): Promise<void> {
    const { source, destination } = this.#parts
    await retry('blocking writes on the source', context, () => setWriteBlocking(source, true, destination))
  }

  /** Every instance has applied everything up to the commit point. */
  applyAll(left: AbortSignal): Promise<CoordinatorReport> {
    return this.#finish('applyAll', left, { type: 'commit.applied' }, async () => {})
  }

  /** Restores on the destination what was deferred. */
  prepare(left: AbortSignal): Promise<CoordinatorReport> {
    const { configuration, context, verification } = this.#parts
    return this.#finish('prepare', left, { type: 'commit.prepared' }, async ({ takenOver }) => {
      this.timing.next('prepare')
      const replication = await this.#loadForAttempt()
      if (takenOver) await replication.holdBack()
      await this.#refuseSilentChanges(replication)
      await retry('following views', context, () => replication.commit.definitions.followSilentViews())
      await verification.checkDefinitions(configuration, 'heldBack')
      await prepareToWrite(replication.commit)
    })
  }

  /** Both clusters hold the same, and the source is quiet. Fails with VerificationFailed or SourceWritten. */
  verify(left: AbortSignal): Promise<CoordinatorReport> {
    return this.#finish('verify', left, { type: 'commit.verified' }, (begun) => this.#verify(begun))
  }

  async #verify({ takenOver }: Begun): Promise<void> {
    const { configuration, verification, runs } = this.#parts
    const commitPoint = this.#commitPoint
    this.timing.next('verify')
    const { commit } = await this.#loadForAttempt()
    // `decide` may have restored it, and leads back here in another coordinator's term.
    if (takenOver) await deferExpiry(commit)
    this.#parts.applied(commitPoint)
    this.#parts.atStep('verify')
    // Before the verifier reads the last changes: what changes on the destination after that belongs to a reversal.
    this.#parts.atStep('reversePosition')
    await commit.reversePosition?.take()
    const applyLate = async (since: ClusterTime): Promise<number> => {
      const { until, expired } = await applyLateDeletes(commit, since)
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
  }

  /** The last check of the source, before the decision is stored. A rehearsal ends here. */
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
        // From the decision on users write on the destination, which is no difference any more.
        // Both are awaited also where one fails: nothing of this step may be under way when the next attempt begins.
        if (!rehearsed) await both(verification.end(), restoreExpiry(commit))
        if (left.aborted) throw new StoppedError()
        await this.#refuseSilentChanges(this.finishing)
        this.#parts.atStep('lastCheck')
        // Once more: a coordinator of an earlier term may have been stopped right before it unblocked the source for an abort.
        if (blocksSource(configuration)) await this.#blockSource({ ...context, signal: runs.signal })
        const { until } = await applyLateDeletes(commit, laterOf(this.#commitPoint, this.#quietUntil))
        this.#quietUntil = until
        if (rehearsed) await this.#endRehearsal(abortsBefore, this.#verified())
        this.#parts.atStep('decide')
        decision = { type: 'commit.decided', quietUntil: until.toString() }
      },
    )
  }

  /** As this instance was asked, or any other: none of them may open the destination then. */
  get #isRehearsal(): boolean {
    return this.#parts.dryRun() || (this.#parts.team.sync.context.request?.dryRun ?? false)
  }

  #verified(): string {
    return this.#parts.configuration.verification.enabled ? 'equal' : 'not verified'
  }

  get #commitPoint(): ClusterTime {
    return BigInt(this.#parts.team.sync.context.commitPoint ?? 0)
  }

  /** The decision is stored: users may write on the destination. */
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
   * A step before the decision, after everything before it has ended. A rehearsal does not fail: it says what a commit would have
   * failed with, and changes are applied again.
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
      // Partitions of a coordinator that died were taken by an instance that came late: it may not apply them now, and would never
      // give them back. The attempt begins anew, and that instance takes part in it.
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
   * Takes back what a commit had changed. The source first, where the commit was aborted, for users wait; what is left of the
   * commit may take a while to end, and may have blocked it once more by then.
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
      // Before anything else that may fail.
      if (isAborted) await replication.unblockSource(left)
      const current = await replication.read(left)
      await current.holdBack()
    }
    const run = undo()
    replication.joined(run)
    await run
    return { type: 'commit.undone', aborts }
  }

  /** What the commit waits for now, in words. */
  get waitingFor(): string {
    const { waitingFor } = this.#parts.team
    if (waitingFor.length > 0) return `these instances to get the commit too: ${waitingFor.join(', ')}`
    return stepNames[this.timing.step ?? ''] ?? 'the coordinator'
  }

  /** What the operator should know of the last commit, or of the one that is under way. */
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

  /** Of a source older than 6.0, whose change stream does not tell of every definition. */
  async #refuseSilentChanges({ commit }: Replication): Promise<void> {
    await retry('looking for changed definitions', this.#parts.context, () =>
      commit.definitions.refuseSilentChanges(true),
    )
  }

  /** What is left once users write on the destination. */
  convert(left: AbortSignal): Promise<CoordinatorReport> {
    return this.#afterDecision(left, { type: 'commit.converted' }, async () => {
      const { commit } = await this.#parts.replication.load()
      await both(this.#findLateWrites(commit), finishIndexes(commit))
    })
  }

  /** The source may be shut down by now: what cannot be checked is said, and keeps nothing from being finished. */
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
   * Makes what the last verdict named equal again, from the source. Returns how many documents were reconciled. Throws RefusedError
   * WrongState where another instance coordinates.
   */
  async repair(): Promise<number> {
    const { coordination, team, verification, runs } = this.#parts
    let repaired = 0
    // Whatever follows it (a resume, an abort) waits until it has ended.
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

  /** What a commit works on: loaded when it began to finish. */
  get finishing(): Replication {
    const { latest } = this.#parts.replication
    if (!latest) throw new FatalError('InternalError', 'a commit that finishes before it began')
    return latest
  }

  /** Loads once for each attempt to commit in each term: another coordinator may have changed what this instance saw last. */
  async #loadForAttempt(): Promise<Replication> {
    const { team, runs, replication } = this.#parts
    const { term, attempt } = team.worked
    const wanted = `${attempt} ${term} ${runs.renewals}`
    if (!replication.latest || this.#loadedFor !== wanted) await replication.load()
    this.#loadedFor = wanted
    return this.finishing
  }
}

/** A success would say that the difference is gone, and the operator would send resume. */
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

/** Rejects with StoppedError as soon as the step is left. */
async function unlessLeft(left: AbortSignal, awaited: Promise<void>): Promise<void> {
  const leaving = deferred<void>()
  const leave = (): void => leaving.resolve()
  left.addEventListener('abort', leave, { once: true })
  await Promise.race([awaited, leaving.promise])
  left.removeEventListener('abort', leave)
  if (left.aborted) throw new StoppedError()
}

/** Resolves when both have, and rejects, once both have ended, as the first that failed. */
async function both(...two: [Promise<unknown>, Promise<unknown>]): Promise<void> {
  const failed = (await Promise.allSettled(two)).find(({ status }) => status === 'rejected')
  if (failed) throw (failed as PromiseRejectedResult).reason
}
