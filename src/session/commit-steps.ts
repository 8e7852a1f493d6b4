import { setTimeout as sleep } from 'node:timers/promises'
import type { SyncStep } from '../../machines/sync.ts'
import type { CoordinatorReport } from '../../machines/sync-context.ts'
import { type CommitParts, deferExpiry, prepareToWrite, refuseDropped, restoreExpiry } from '../commit/finish-commit.ts'
import { applyLateDeletes } from '../commit/late-changes.ts'
import { blocksSource, setWriteBlocking } from '../commit/write-blocking.ts'
import { type BothCatalogs, readBothCatalogs } from '../definitions/both-catalogs.ts'
import type { SilentChanges } from '../definitions/silent-definitions.ts'
import { type ClusterTime, laterOf } from '../domain/cluster-time.ts'
import { deferred } from '../domain/deferred.ts'
import { errorDetails } from '../domain/error-details.ts'
import { errorStack } from '../domain/error-text.ts'
import { type Failure, FatalError, StoppedError, toFailure, UnfollowedError } from '../domain/errors.ts'
import { both } from '../domain/in-parallel.ts'
import { notLost } from '../domain/not-lost.ts'
import { appendOplogNote } from '../mongo/oplog-note.ts'
import { type RetryContext, retry } from '../mongo/retry.ts'
import { CommitTiming } from './commit-timing.ts'
import { abortReason } from './converge-unfollowed.ts'
import type { Replication } from './replication.ts'
import type { SyncSession } from './sync-session.ts'

const verifierPollMS = 50
const none = Promise.resolve(null)
/**
 * Applying the deletes of this many expired documents takes so long that more documents expire meanwhile. The search is
 * then repeated before the verifier runs.
 */
const manyExpired = 10_000

/**
 * The steps before the decision whose work begins when no instance applies changes any more, each with its predecessor.
 */
const stepBefore = { applyAll: null, prepare: 'applyAll', verify: 'prepare', decide: 'verify' } as const

interface StepStart {
  abortsBefore: number
  /**
   * This process did not perform the previous step in this term. Another coordinator may have died during this step or
   * a later one.
   */
  takenOver: boolean
}

/** What a commit waits for in each step. The keys are the step names of `lastRehearsal.steps`. */
const stepNames: Record<string, string> = {
  commitPoint: 'the commit timestamp of the source',
  applyEvents: 'changes to be applied',
  prepare: 'definitions and indexes to be prepared on the destination',
  verify: 'the comparison of both clusters',
  lastCheck: 'the last check of the source',
}

/** The coordinator's work in each step of a commit until it is decided. */
export class CommitSteps {
  readonly #session: SyncSession
  readonly timing = new CommitTiming()
  /** Between the commit timestamp and this time, the only changes on the source were deletes of expired documents. */
  #quietUntil: ClusterTime = 0n
  #loadedFor = ''
  /** The step that this process completed last, with its attempt and term. */
  #done = ''

  constructor(session: SyncSession) {
    this.#session = session
  }

  /** Waits until every instance has received the commit. */
  gather(signal: AbortSignal, dryRun: boolean): Promise<CoordinatorReport> {
    const { peers, runs } = this.#session
    this.timing.reset()
    return this.#rehearsing('gather', dryRun, async () => {
      // This instance's own workers must run first. While they start, they report `commit.renewed` if the state accepts
      // it. The state of this step does not, but in the next state that report would begin another attempt.
      await unlessAborted(signal, runs.whenOpen())
      await peers.gathered(AbortSignal.any([signal, runs.signal]))
      return { type: 'commit.gathered' }
    })
  }

  /** Blocks writes on the source if requested, and takes the commit timestamp, up to which events are applied. */
  takeCommitTimestamp(signal: AbortSignal, dryRun: boolean): Promise<CoordinatorReport> {
    const { runs } = this.#session
    return this.#rehearsing('takeCommitTimestamp', dryRun, async () => {
      await unlessAborted(signal, runs.whenOpen())
      const run = this.#takeCommitTimestamp(AbortSignal.any([signal, runs.signal]))
      // After an abort, the coordinator waits for the end of this run and then unblocks the source once more.
      runs.awaitBeforeNext(run)
      return { type: 'commit.timestampTaken', commitTimestamp: await run }
    })
  }

  async #takeCommitTimestamp(signal: AbortSignal): Promise<string> {
    const { source, record, runs } = this.#session
    const context = { ...this.#session.context, signal }
    this.timing.beginAttempt('commitPoint')
    if (blocksSource(record.configuration)) {
      this.#session.atStep('blockSource')
      await this.#blockSource(context)
    }
    this.#session.atStep('commitPoint')
    await retry('taking the commit timestamp', context, () => appendOplogNote(source, 'commit'))
    const timestamp = source.latest.toString()
    // Events are applied until the stream has passed the commit timestamp. On a quiet source, this no-op is the next
    // event. The timestamp is stored meanwhile.
    runs.awaitBeforeNext(
      retry('passing the commit timestamp', { ...context, signal: runs.signal }, () =>
        appendOplogNote(source, 'after commit'),
      ),
    )
    this.timing.beginStep('applyEvents')
    return timestamp
  }

  async #blockSource(context: RetryContext): Promise<void> {
    const { source, destination } = this.#session
    await retry('blocking writes on the source', context, () => setWriteBlocking(source, true, destination))
  }

  /** Waits until every instance has applied all changes up to the commit timestamp. */
  applyAll(signal: AbortSignal, dryRun: boolean): Promise<CoordinatorReport> {
    return this.#finish('applyAll', { signal, dryRun }, async () => ({ type: 'commit.applied' }))
  }

  /** Makes the definitions of both clusters equal, restores capped collections and prepares unique indexes. */
  prepare(signal: AbortSignal, dryRun: boolean): Promise<CoordinatorReport> {
    const { record, context, verification } = this.#session
    return this.#finish('prepare', { signal, dryRun }, async ({ takenOver, abortsBefore }) => {
      this.timing.beginStep('prepare')
      // Before the catalogs are read, the preparation of an earlier coordinator must be undone, and views that changed
      // without an event must be followed.
      const changesFirst = takenOver || this.#session.source.before6
      const [replication, early] = await both(this.#loadForAttempt(), changesFirst ? none : this.#readCatalogs())
      if (takenOver) await replication.undoPreparation()
      await this.#followSilentChanges(replication, abortsBefore)
      await retry('following views', context, () => replication.commit.definitions.followSilentViews())
      const catalogs = early ?? (await this.#readCatalogs())
      await verification.checkDefinitions(record.configuration, catalogs)
      try {
        await prepareToWrite(replication.commit, catalogs)
      } catch (error) {
        if (!(error instanceof UnfollowedError)) throw error
        // The coordinator finds these collections again while changes are applied, and then requests their convergence.
        await this.#abortFor(error.collections, abortsBefore)
      }
      return { type: 'commit.prepared' }
    })
  }

  #readCatalogs(): Promise<BothCatalogs> {
    return retry('reading the definitions of both clusters', this.#session.context, () =>
      readBothCatalogs(this.#session, this.#session.selection),
    )
  }

  /** Verifies that both clusters are equal and the source is quiet. Fails with VerificationFailed or SourceWritten. */
  verify(signal: AbortSignal, dryRun: boolean): Promise<CoordinatorReport> {
    return this.#finish('verify', { signal, dryRun }, (start) => this.#verify(start))
  }

  async #verify({ takenOver }: StepStart): Promise<CoordinatorReport> {
    const { record, figures, verification, runs } = this.#session
    const { configuration } = record
    const commitTimestamp = this.#commitTimestamp
    this.timing.beginStep('verify')
    const { commit } = await this.#loadForAttempt()
    // `decide` may have restored the expiry, and a new coordinator goes back from `decide` to this step.
    if (takenOver) await deferExpiry(commit)
    figures.applied(commitTimestamp)
    this.#session.atStep('verify')
    // The position is taken before the verifier reads the last changes, so that a reversal includes all later changes
    // on the destination.
    this.#session.atStep('reversePosition')
    await commit.reversePosition?.take()
    const applyLate = async (since: ClusterTime): Promise<number> => {
      const { until, expired } = await applyLateDeletes(commit, since)
      this.#quietUntil = until
      // The verifier compares an expired document only once its delete is applied. It stops reading while too many
      // documents wait for this.
      figures.applied(until)
      return expired
    }
    let since = commitTimestamp
    while ((await applyLate(since)) >= manyExpired) since = this.#quietUntil
    // A commit begins only when everything is copied. If this instance has just started again, its copy may have been
    // stopped before it reported its end, and the verifier must not wait for that report.
    verification.copied()
    // An instance that was just elected starts its verifier in parallel with this step.
    while (configuration.verification.enabled && !verification.running) {
      if (runs.signal.aborted) throw new StoppedError()
      await sleep(verifierPollMS)
    }
    await verification.issueVerdict(configuration, () => applyLate(this.#quietUntil))
    return { type: 'commit.verified' }
  }

  /** Checks the source once more before the decision is stored. A rehearsal ends here. */
  decide(signal: AbortSignal, dryRun: boolean): Promise<CoordinatorReport> {
    const { record, context, verification, runs, otherSyncs } = this.#session
    return this.#finish('decide', { signal, dryRun }, async ({ abortsBefore }) => {
      this.timing.beginStep('lastCheck')
      await this.#loadForAttempt()
      const { commit } = runs.finishing
      const rehearsed = this.#isRehearsal(dryRun)
      // The verifier ends here, because users write on the destination from the decision on. Both operations are
      // awaited even when one fails, because no work of this step may be under way when the next attempt begins.
      if (!rehearsed) await both(verification.end(), restoreExpiry(commit))
      if (signal.aborted) throw new StoppedError()
      await this.#refuseSilentChanges(runs.finishing)
      this.#session.atStep('lastCheck')
      // Block again, because a delayed command of an earlier coordinator may have unblocked the source for an abort.
      if (blocksSource(record.configuration)) await this.#blockSource({ ...context, signal: runs.signal })
      // The verifier has compared what is on the destination, so only a commit without it needs this.
      if (!record.configuration.verification.enabled) await refuseDropped(commit)
      const { until } = await applyLateDeletes(commit, laterOf(this.#commitTimestamp, this.#quietUntil))
      this.#quietUntil = until
      if (rehearsed) await this.#endRehearsal(abortsBefore, this.#verified())
      await otherSyncs.check({ ...context, signal: runs.signal })
      this.#session.atStep('decide')
      return { type: 'commit.decided', quietUntil: until.toString() }
    })
  }

  /**
   * True when the commit that this instance has received is a rehearsal, or the stored request is one. In that case no
   * instance may enable writes on the destination.
   */
  #isRehearsal(dryRun: boolean): boolean {
    return dryRun || (this.#session.peers.sync.context.request?.dryRun ?? false)
  }

  #verified(): string {
    return this.#session.record.configuration.verification.enabled ? 'equal' : 'not verified'
  }

  get #commitTimestamp(): ClusterTime {
    return BigInt(this.#session.peers.sync.context.commitTimestamp ?? 0)
  }

  /** Runs a step that precedes the decision, after all earlier work has ended. */
  async #finish(
    step: keyof typeof stepBefore,
    { signal, dryRun }: { signal: AbortSignal; dryRun: boolean },
    work: (start: StepStart) => Promise<CoordinatorReport>,
  ): Promise<CoordinatorReport> {
    const { coordination, peers, runs } = this.#session
    const { aborts } = peers.sync.context
    let report: CoordinatorReport = { type: 'commit.renewed' }
    const run = async (): Promise<void> => {
      await this.#session.joinElection()
      // An instance that joined late has taken over the partitions of a coordinator that died. It may not apply their
      // events now and would never give them back. A new attempt therefore begins, in which that instance takes part.
      if (step !== 'applyAll' && !coordination.hasEverything && coordination.otherOwners.length > 0) return
      await peers.alone(runs.signal)
      const { term, attempt } = peers.worked
      const takenOver = this.#done !== `${stepBefore[step]} ${attempt} ${term}`
      this.#done = ''
      report = await work({ abortsBefore: aborts, takenOver })
      this.#done = `${step} ${attempt} ${term}`
    }
    await runs.finish(signal, () => this.#rehearsing(step, dryRun, run))
    return report
  }

  /**
   * Runs a step before the decision. When a step of a rehearsal fails, for any reason but the loss of the lease, the
   * rehearsal ends with the failure as its verdict, and changes are applied again.
   */
  async #rehearsing<T>(step: SyncStep, dryRun: boolean, work: () => Promise<T>): Promise<T> {
    const { aborts } = this.#session.peers.sync.context
    try {
      return await work()
    } catch (error) {
      const isReplaced = error instanceof FatalError && error.failure === 'LeaseLost'
      if (error instanceof StoppedError || isReplaced || !this.#isRehearsal(dryRun)) throw error
      const failure = toFailure(error)
      const stack = errorStack(error)
      const details = errorDetails(failure.error, error)
      this.#session.context.journal?.('rehearsal failed', { ...failure, ...details, step, ...(stack && { stack }) })
      return await this.#endRehearsal(aborts, failure.error, failure.errorDescription)
    }
  }

  async #endRehearsal(abortsBefore: number, verdict: string, failed: string | null = null): Promise<never> {
    const { peers } = this.#session
    const rehearsal = this.timing.rehearsal(verdict)
    await peers.abort(abortsBefore, { reason: failed && rehearsalReason(verdict, failed), rehearsal })
    throw new StoppedError()
  }

  /**
   * Ends a rehearsal because this instance has failed in it, whether or not it coordinates. The instance then applies
   * changes again. If the cause remains, it fails again, and the source accepts writes meanwhile.
   */
  async failRehearsal(abortsBefore: number, { error, errorDescription }: Failure): Promise<void> {
    const { peers, coordination } = this.#session
    // Only the coordinator knows how long the steps took.
    const timing = coordination.leading ? this.timing : new CommitTiming()
    const reason = rehearsalReason(error, errorDescription)
    await peers.abort(abortsBefore, { reason, rehearsal: timing.rehearsal(error) })
  }

  /** Describes what the commit waits for now. */
  get waitingFor(): string {
    const { waitingFor } = this.#session.peers
    if (waitingFor.length > 0) return `instances that have not received the commit yet: ${waitingFor.join(', ')}`
    return stepNames[this.timing.step ?? ''] ?? 'the coordinator'
  }

  /**
   * Reconciles definitions that changed without an event, because a source older than 6.0 does not emit every change.
   * Aborts the commit if the documents of a collection may have no events, because it must then be converged.
   */
  async #followSilentChanges({ commit }: Replication, abortsBefore: number): Promise<void> {
    const { unknown, changed } = await this.#silentChanges(commit)
    if (unknown.size > 0) await this.#abortFor(unknown, abortsBefore)
    for (const database of changed.keys()) await commit.definitions.reconcile(database, 'all', 'refused')
  }

  async #abortFor(collections: ReadonlyMap<string, string>, abortsBefore: number): Promise<never> {
    await this.#session.peers.abort(abortsBefore, { reason: abortReason([...collections.values()].join(', ')) })
    throw new StoppedError()
  }

  /** Throws FatalError UnsupportedChange when a definition changed without an event after it was compared. */
  async #refuseSilentChanges({ commit }: Replication): Promise<void> {
    const { unknown, changed } = await this.#silentChanges(commit)
    const [found = null] = [...[...unknown.values()].map((name) => `${name} was created`), ...changed.values()]
    if (found === null) return
    throw new FatalError(
      'UnsupportedChange',
      `${found} on the source after the commit timestamp. Stop all writes on the source, then send resume. ${notLost.progress}`,
    )
  }

  #silentChanges(commit: CommitParts): Promise<SilentChanges> {
    return retry('checking for changed definitions', this.#session.context, () =>
      commit.definitions.silentChanges(true),
    )
  }

  /**
   * Loads the stored state once for each commit attempt in each term, because another coordinator may have changed it
   * since this instance last read it.
   */
  async #loadForAttempt(): Promise<Replication> {
    const { peers, runs } = this.#session
    const { term, attempt } = peers.worked
    const wanted = `${attempt} ${term} ${runs.renewals}`
    if (!runs.latest || this.#loadedFor !== wanted) await this.#session.load()
    this.#loadedFor = wanted
    return runs.finishing
  }
}

function rehearsalReason(verdict: string, failed: string): string {
  return `the rehearsal would have failed with ${verdict}: ${failed}`
}

/** Resolves with `awaited`; rejects with StoppedError as soon as the step is left. */
async function unlessAborted(signal: AbortSignal, awaited: Promise<void>): Promise<void> {
  const leaving = deferred<void>()
  const leave = (): void => leaving.resolve()
  signal.addEventListener('abort', leave, { once: true })
  await Promise.race([awaited, leaving.promise])
  signal.removeEventListener('abort', leave)
  if (signal.aborted) throw new StoppedError()
}
