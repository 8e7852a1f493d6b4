import { waitFor } from 'xstate'
import type { Instance } from '../api/instance.ts'
import { asRefusal } from '../checks/check.ts'
import { rowOf } from '../coordination/pulse.ts'
import type { CollectionsPage, CollectionsReport } from '../domain/collection-figures.ts'
import { RefusedError } from '../domain/errors.ts'
import type { Finding } from '../domain/finding.ts'
import { type InstancesReport, totalsOf } from '../domain/instances.ts'
import type { Limits, LimitsReport } from '../domain/limits.ts'
import type { Progress } from '../domain/progress.ts'
import type { StartConfiguration } from '../domain/start-request.ts'
import type { TeamAnswers, TeamCommand } from '../domain/team-command.ts'
import type { AuditStore } from '../mongo/audit-store.ts'
import type { SyncRecord } from '../mongo/metadata.ts'
import { checkReverse } from '../reverse/check-reverse.ts'
import type { Mismatch } from '../verify/difference.ts'
import { beginSync, reachBoth, sameConfiguration } from './begin-sync.ts'
import { DrivenSync, type DrivenSyncParts } from './driven-sync.ts'
import { publicState } from './report-progress.ts'
import { findEverything } from './start-checks.ts'
import type { SyncWork } from './sync-work.ts'

/** The instance behind the API: in which state each command is accepted, and what it refuses. */
export class SyncInstance implements Omit<Instance, 'audit' | 'recordCommand'> {
  readonly #parts: DrivenSyncParts
  readonly #sync: DrivenSync
  #starting = false
  #reversing = false
  #repairing = false

  constructor(parts: DrivenSyncParts) {
    this.#parts = parts
    this.#sync = new DrivenSync(parts, (command) => this[command]())
  }

  /** Goes on with the sync that a predecessor of this instance began. */
  restore(record: SyncRecord): Promise<void> {
    return this.#sync.restore(record)
  }

  /** Where commands are written down; null before there is a sync. */
  get audit(): AuditStore | null {
    return this.#sync.audit
  }

  progress(): Progress {
    return this.#sync.progress()
  }

  async instances(): Promise<InstancesReport> {
    if (this.#sync.work) return await this.#sync.instances()
    // Not started, but others may be: they are seen from here as well.
    try {
      await reachBoth(this.#parts.clusters)
      const standing = await this.#parts.findStored()
      const destination = standing && this.#parts.clusters[standing.configuration.destination]
      const rows = destination ? (await this.#parts.liveness(destination).instances()).map(rowOf) : []
      return { instances: rows, totals: totalsOf(rows) }
    } catch (error) {
      throw asRefusal(error, 'instances')
    }
  }

  /** None before a sync is started. */
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

  async limit(limits: Partial<Limits>): Promise<LimitsReport> {
    const { actor, throttle } = this.#sync
    actor.send({ type: 'sync.limit', limits: { ...throttle.limits, ...limits } })
    await this.#sync.storing
    return this.limits()
  }

  async start(configuration: StartConfiguration): Promise<void> {
    const { inherited } = this.#sync
    if (inherited && sameConfiguration(inherited, configuration)) return
    if (this.#sync.state !== 'IDLE' || this.#starting) throw this.#wrongState('start', 'IDLE')
    this.#starting = true
    try {
      await reachBoth(this.#parts.clusters)
      const standing = await this.#parts.findStored()
      await this.#sync.join(standing ?? (await beginSync(configuration, this.#parts)), configuration)
    } catch (error) {
      throw asRefusal(error)
    } finally {
      this.#starting = false
    }
  }

  async check(configuration: StartConfiguration): Promise<Finding[]> {
    const { clusters } = this.#parts
    try {
      return await findEverything(configuration, clusters[configuration.source], clusters[configuration.destination])
    } catch (error) {
      throw asRefusal(error, 'check')
    }
  }

  async pause(): Promise<void> {
    const { actor } = this.#sync
    const snapshot = actor.getSnapshot()
    if (this.#sync.state !== 'RUNNING' || snapshot.context.pauseRequested) throw this.#wrongState('pause', 'RUNNING')
    actor.send({ type: 'sync.pause' })
    await waitFor(actor, (now) => publicState(now) !== 'RUNNING', { timeout: Number.POSITIVE_INFINITY })
    await this.#sync.storing
    if (publicState(actor.getSnapshot()) !== 'PAUSED') throw this.#wrongState('pause', 'RUNNING')
  }

  async resume(): Promise<void> {
    const { actor, state } = this.#sync
    if (state !== 'PAUSED' && state !== 'FAILED') throw this.#wrongState('resume', 'PAUSED or FAILED')
    if (actor.getSnapshot().context.failure?.error === 'LeaseLost') {
      throw new RefusedError('WrongState', 'another instance has taken over; stop it and restart this one')
    }
    if (this.#repairing) throw new RefusedError('WrongState', 'a repair is under way; send resume when it has ended')
    actor.send({ type: 'sync.resume' })
    await this.#sync.storing
  }

  async commit(): Promise<void> {
    const { actor, state } = this.#sync
    if (state !== 'RUNNING') throw this.#wrongState('commit', 'RUNNING')
    if (!actor.getSnapshot().hasTag('canCommit')) {
      throw new RefusedError(
        'CannotCommit',
        'the initial copy and its first verification have not ended; wait until progress shows canCommit true',
      )
    }
    actor.send({ type: 'sync.commit' })
    await this.#sync.storing
  }

  async reverse(): Promise<void> {
    const { work, state } = this.#sync
    if (state !== 'COMMITTED' || !work || this.#reversing) throw this.#wrongState('reverse', 'COMMITTED')
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
      this.#sync.actor.send({ type: 'sync.reverse' })
    } catch (error) {
      throw asRefusal(error, 'reverse')
    } finally {
      this.#reversing = false
    }
    await this.#sync.storing
  }

  async sendToAll(command: TeamCommand): Promise<TeamAnswers> {
    try {
      return await this.#sync.commands.give(command)
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

  /** Reconciles what the last verdict named from the source; `resume` then commits anew. */
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
      return await (work as SyncWork).commit.repair()
    } catch (error) {
      throw asRefusal(error, 'repair')
    } finally {
      this.#repairing = false
    }
  }

  close(): Promise<void> {
    return this.#sync.close()
  }

  #wrongState(command: string, expected: string): RefusedError {
    return new RefusedError('WrongState', `${command} is accepted in ${expected}; the state is ${this.#sync.state}`)
  }
}
