import { setTimeout as sleep } from 'node:timers/promises'
import { waitFor } from 'xstate'
import { asRefusal } from '../checks/check.ts'
import type { CollectionsPage, CollectionsReport } from '../domain/collection-figures.ts'
import { type CommitRequest, plainCommit } from '../domain/commit-request.ts'
import { RefusedError, StoppedError } from '../domain/errors.ts'
import type { Finding } from '../domain/finding.ts'
import type { Instance } from '../domain/instance.ts'
import { type InstancesReport, totalsOf } from '../domain/instances.ts'
import type { Limits, LimitsReport } from '../domain/limits.ts'
import type { Mismatch } from '../domain/mismatch.ts'
import type { PeerAnswers, PeerCommand } from '../domain/peer-command.ts'
import type { Progress, PublicState } from '../domain/progress.ts'
import type { StartConfiguration } from '../domain/start-request.ts'
import type { AuditStore } from '../mongo/audit-store.ts'
import type { GivenCommand } from '../mongo/command-store.ts'
import type { SyncRecord } from '../mongo/metadata.ts'
import { checkReverse } from '../reverse/check-reverse.ts'
import { beginSync, reachBoth, sameConfiguration } from './begin-sync.ts'
import { DrivenSync, type DrivenSyncParts } from './driven-sync.ts'
import { rowOf } from './heartbeat-publisher.ts'
import { LeasePatience } from './lease-patience.ts'
import { publicState } from './report-progress.ts'
import { findEverything } from './start-checks.ts'
import type { SyncWork } from './sync-work.ts'

/** Added to a refusal when the command has already taken effect in this instance. */
const storedLater = 'it has begun here, and is stored with the next lease'

/** How long a commit waits for a refusal that passes by itself, and how often it checks, ms. */
const readinessPatienceMS = 3_000
const readinessPollMS = 20

/** The instance behind the API. It defines in which state each command is accepted, and why it is refused otherwise. */
export class SyncInstance implements Omit<Instance, 'audit' | 'commandReceived' | 'commandAnswered'> {
  readonly #parts: DrivenSyncParts
  readonly #sync: DrivenSync
  #starting = false
  #reversing = false
  #repairing = false
  #committing = false
  #limiting: Promise<unknown> = Promise.resolve()

  constructor(parts: DrivenSyncParts) {
    this.#parts = parts
    this.#sync = new DrivenSync(parts, (given) => this.#perform(given))
  }

  /** Continues the sync that a predecessor of this instance began. */
  restore(record: SyncRecord): Promise<void> {
    return this.#sync.restore(record)
  }

  /** The store of received commands; null before the sync exists. */
  get audit(): AuditStore | null {
    return this.#sync.audit
  }

  progress(): Progress {
    return this.#sync.progress()
  }

  async instances(): Promise<InstancesReport> {
    if (this.#sync.work) return await this.#sync.instances()
    // This instance is not started, but others may be, and their rows can be read.
    try {
      await reachBoth(this.#parts.clusters)
      const stored = await this.#parts.findStored()
      const destination = stored && this.#parts.clusters[stored.configuration.destination]
      const rows = destination ? (await this.#parts.liveness(destination).instances()).map(rowOf) : []
      return { instances: rows, totals: totalsOf(rows) }
    } catch (error) {
      throw asRefusal(error, 'instances')
    }
  }

  /** Empty before a sync is started. */
  async collections(page: CollectionsPage): Promise<CollectionsReport> {
    const { work } = this.#sync
    if (!work) return { collections: [], total: 0 }
    try {
      return await work.collections.report(page, this.progress().canWrite === true)
    } catch (error) {
      throw asRefusal(error, 'collections')
    }
  }

  limits(): LimitsReport {
    return this.#sync.throttle.report
  }

  /** Applies one change at a time. A change that cannot be stored is undone. */
  async limit(limits: Partial<Limits>): Promise<LimitsReport> {
    const patience = await this.#leased('limits', 'COMMITTED')
    const turn = this.#limiting.then(() => this.#limit(limits, patience))
    this.#limiting = turn.catch(() => {})
    await turn
    return this.limits()
  }

  async #limit(limits: Partial<Limits>, patience: LeasePatience): Promise<void> {
    const { actor, throttle } = this.#sync
    const before = throttle.limits
    actor.send({ type: 'sync.limit', limits: { ...before, ...limits } })
    try {
      await patience.bounded(this.#sync.storing, 'the limits are as they were')
      this.#sync.refuseTakenOver()
    } catch (error) {
      actor.send({ type: 'sync.limit', limits: before })
      throw error
    }
  }

  async start(configuration: StartConfiguration): Promise<void> {
    const { inherited } = this.#sync
    if (inherited && sameConfiguration(inherited, configuration)) return
    const started = { type: 'sync.start', configuration } as const
    if (!this.#sync.actor.getSnapshot().can(started) || this.#starting) throw this.#wrongState('start', 'IDLE')
    this.#starting = true
    try {
      await reachBoth(this.#parts.clusters)
      const stored = await this.#parts.findStored()
      await this.#sync.join(stored ?? (await beginSync(configuration, this.#parts)), configuration)
    } catch (error) {
      throw asRefusal(error)
    } finally {
      this.#starting = false
    }
  }

  async check(configuration: StartConfiguration): Promise<Finding[]> {
    const { clusters } = this.#parts
    try {
      const [source, destination] = [clusters[configuration.source], clusters[configuration.destination]]
      const found = await findEverything(configuration, source, destination)
      return [...found, ...this.#parts.transportRisks()]
    } catch (error) {
      throw asRefusal(error, 'check')
    }
  }

  async pause(): Promise<void> {
    const { actor } = this.#sync
    const paused = { type: 'sync.pause' } as const
    const insist = (): void => {
      if (!actor.getSnapshot().can(paused)) throw this.#wrongState('pause', 'RUNNING')
    }
    insist()
    await this.#leased('pause')
    insist()
    actor.send(paused)
    await waitFor(actor, (now) => publicState(now) !== 'RUNNING', { timeout: Number.POSITIVE_INFINITY })
    await new LeasePatience('pause').bounded(this.#sync.storing, storedLater)
    if (publicState(actor.getSnapshot()) !== 'PAUSED') throw this.#wrongState('pause', 'RUNNING')
  }

  async resume(): Promise<void> {
    const { actor } = this.#sync
    const resumed = { type: 'sync.resume' } as const
    const insist = (): void => {
      if (!actor.getSnapshot().can(resumed)) throw this.#wrongState('resume', 'PAUSED or FAILED')
      if (this.#repairing) throw new RefusedError('WrongState', 'a repair is under way; send resume when it has ended')
    }
    insist()
    const patience = await this.#leased('resume')
    insist()
    actor.send(resumed)
    await patience.bounded(this.#sync.storing, storedLater)
  }

  async commit(request: CommitRequest): Promise<void> {
    const { actor, state, work } = this.#sync
    const committed = { type: 'sync.commit', abortsBefore: 0, commitUntil: null, dryRun: false } as const
    if (state !== 'RUNNING' || !work || this.#committing) throw this.#wrongState('commit', 'RUNNING')
    if (!actor.getSnapshot().can(committed)) {
      throw new RefusedError(
        'CannotCommit',
        'the initial copy and its first verification have not ended; wait until progress shows canCommit true',
      )
    }
    this.#committing = true
    const patience = new LeasePatience('commit')
    try {
      await this.#untilReadyToCommit()
      if (!actor.getSnapshot().can(committed)) throw this.#wrongState('commit', 'RUNNING')
      work.replication.latest?.events?.expedite(true)
      // The request is stored for all instances before any of them acts on it.
      const abortsBefore = await this.#withLease(patience, (until) => work.team.request(request, until))
      if (!actor.getSnapshot().can(committed)) {
        // While it waited for its lease, this instance joined the commit of the others, which is the requested one.
        if (this.#sync.state === 'COMMITTING' || this.#sync.state === 'COMMITTED') return
        throw this.#wrongState('commit', 'RUNNING')
      }
      const commitUntil = request.maxSeconds === null ? null : Date.now() + request.maxSeconds * 1_000
      actor.send({ type: 'sync.commit', abortsBefore, commitUntil, dryRun: request.dryRun })
    } catch (error) {
      work.replication.latest?.events?.expedite(false)
      throw asRefusal(error, 'commit')
    } finally {
      this.#committing = false
    }
    await patience.bounded(this.#sync.storing, storedLater)
  }

  /**
   * Waits for a refusal that passes within moments: instances receive the same command one after another, and the
   * events of a partition that changes its owner in between are read again. Throws RefusedError CannotCommit when the
   * refusal does not pass.
   */
  async #untilReadyToCommit(): Promise<void> {
    const began = performance.now()
    for (;;) {
      const refusal = this.#sync.refusalOfCommit
      if (!refusal) return
      if (!refusal.passesSoon || performance.now() - began > readinessPatienceMS) {
        throw new RefusedError('CannotCommit', refusal.reason)
      }
      await sleep(readinessPollMS)
    }
  }

  async abort(): Promise<void> {
    const { actor, work } = this.#sync
    const snapshot = actor.getSnapshot()
    const { abortsBefore } = snapshot.context
    this.#sync.refuseTakenOver()
    if (!work || !snapshot.can({ type: 'sync.abort' })) {
      throw this.#wrongState('abort', 'COMMITTING before canWrite, and in FAILED after a commit has failed before that')
    }
    if (this.#repairing) throw new RefusedError('WrongState', 'a repair is under way; send abort when it has ended')
    const patience = new LeasePatience('abort')
    let isAborted: boolean
    try {
      isAborted = await this.#withLease(patience, (until) => work.team.abort(abortsBefore, { until }))
    } catch (error) {
      throw asRefusal(error, 'abort')
    }
    if (!isAborted) {
      throw new RefusedError(
        'WrongState',
        'the commit is decided and can only be completed; wait until progress shows canWrite',
      )
    }
    actor.send({ type: 'sync.seen', sync: work.team.view })
    await patience.bounded(this.#sync.storing, storedLater)
  }

  async reverse(): Promise<void> {
    const { work } = this.#sync
    const reversed = { type: 'sync.reverse' } as const
    if (!this.#sync.actor.getSnapshot().can(reversed) || !work || this.#reversing) {
      throw this.#wrongState('reverse', 'COMMITTED')
    }
    this.#reversing = true
    try {
      const { source, destination } = work.record.configuration
      const { clusters, context } = this.#parts
      await checkReverse({
        record: work.record,
        source: clusters[source],
        destination: clusters[destination],
        context,
      })
      await this.#sync.leadAgain(work)
      this.#sync.actor.send(reversed)
    } catch (error) {
      throw asRefusal(error, 'reverse')
    } finally {
      this.#reversing = false
    }
    await new LeasePatience('reverse').bounded(this.#sync.storing, storedLater)
  }

  async sendToAll(command: PeerCommand, request?: CommitRequest): Promise<PeerAnswers> {
    try {
      return await this.#sync.commands.give({ command, ...(request && { request }) })
    } catch (error) {
      throw asRefusal(error)
    }
  }

  /** What the last verdict found different; empty before the first and after one without differences. */
  async mismatches(): Promise<{ mismatches: Mismatch[]; total: number }> {
    const { work } = this.#sync
    if (!work) return { mismatches: [], total: 0 }
    const { mismatches, total } = await work.verification.store.loadVerdict()
    return { mismatches: mismatches as Mismatch[], total }
  }

  /**
   * Reconciles from the source what the last verdict named. A following `resume` commits again. Throws RefusedError
   * WrongState when another instance coordinates, because only the coordinator's writes of definitions are fenced by
   * its term.
   */
  async repair(): Promise<number> {
    const { actor, state, work } = this.#sync
    const failure = actor.getSnapshot().context.failure
    if (state !== 'FAILED' || failure?.error !== 'VerificationFailed' || this.#repairing) {
      throw new RefusedError(
        'WrongState',
        `repair is accepted in FAILED after VerificationFailed; the state is ${state}${failure ? ` (${failure.error})` : ''}`,
      )
    }
    this.#repairing = true
    try {
      const patience = await this.#leased('repair')
      const { commit, coordination } = work as SyncWork
      // After the lease was taken again, the coordinator must be read first.
      await this.#withLease(patience, () => coordination.start())
      return await commit.repair()
    } catch (error) {
      throw asRefusal(error, 'repair')
    } finally {
      this.#repairing = false
    }
  }

  close(): Promise<void> {
    return this.#sync.close()
  }

  /** Performs a command from another instance as if it had arrived through this instance's own API. */
  async #perform({ command, request }: GivenCommand): Promise<void> {
    if (command === 'commit') return await this.commit(request ?? plainCommit)
    if (command !== 'abort') return await this[command]()
    const { context } = this.#sync.actor.getSnapshot()
    // An abort is stored for all instances, so this one may have followed it already.
    if (this.#sync.state !== 'RUNNING' || !context.commitAborted) await this.abort()
  }

  /**
   * Runs the action under the lease. If the lease is lost in the meantime, as when Redis was away, the next lease term
   * repeats it.
   */
  async #withLease<T>(patience: LeasePatience, action: (until: AbortSignal) => Promise<T>): Promise<T> {
    for (;;) {
      await this.#sync.held(patience)
      try {
        return await patience.bounded(action(patience.signal), 'whether it was stored shows in progress')
      } catch (error) {
        if (!(error instanceof StoppedError) || this.#parts.context.signal.aborted) throw error
      }
    }
  }

  /**
   * Makes sure that this instance holds its lease before a command changes its stored context; takes the lease if it
   * has none.
   * @param except a state in which an instance holds no lease
   * @returns the rest of the time for which the command waits
   */
  async #leased(command: string, except?: PublicState): Promise<LeasePatience> {
    const patience = new LeasePatience(command)
    this.#sync.refuseTakenOver()
    if (this.#sync.state === 'IDLE' || this.#sync.state === except) return patience
    try {
      await this.#sync.held(patience)
    } catch (error) {
      throw asRefusal(error, command)
    }
    this.#sync.refuseTakenOver()
    return patience
  }

  #wrongState(command: string, expected: string): RefusedError {
    return new RefusedError('WrongState', `${command} is accepted in ${expected}; the state is ${this.#sync.state}`)
  }
}
