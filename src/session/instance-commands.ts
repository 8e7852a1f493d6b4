import pLimit from 'p-limit'
import { waitFor } from 'xstate'
import { asRefusal } from '../checks/check.ts'
import type { AuditEntry, CommandCall, ReceivedCommand } from '../domain/audit-entry.ts'
import type { CollectionsPage, CollectionsReport } from '../domain/collection-figures.ts'
import { type CommitRequest, plainCommit } from '../domain/commit-request.ts'
import { swapConfiguration } from '../domain/direction.ts'
import { RefusedError, toFailure } from '../domain/errors.ts'
import type { FilterRequest } from '../domain/filter-request.ts'
import type { CheckOptions, Finding } from '../domain/finding.ts'
import type { Instance, RepairReport } from '../domain/instance.ts'
import type { InstancesReport } from '../domain/instances.ts'
import type { Journal } from '../domain/journal.ts'
import type { Limits, LimitsReport } from '../domain/limits.ts'
import type { Mismatch } from '../domain/mismatch.ts'
import type { NamespaceName } from '../domain/namespace.ts'
import type { GivenCommand, PeerAnswers } from '../domain/peer-command.ts'
import type { Progress } from '../domain/progress.ts'
import type { StartConfiguration } from '../domain/start-request.ts'
import { warningsOfStart } from '../domain/start-warnings.ts'
import type { AuditStore } from '../mongo/audit-store.ts'
import { checkReverse } from '../reverse/check-reverse.ts'
import { abortCommit, abortWithOthers, commitToAbort } from './abort-commit.ts'
import { leased, storedForAll, UnderWay, wrongState } from './admit-command.ts'
import { beginSync, findReachable, sameConfiguration } from './begin-sync.ts'
import { changeFilter, refuseFilter } from './change-filter.ts'
import { CommandRecords } from './command-records.ts'
import { untilReadyToCommit } from './commit-readiness.ts'
import { convergeIfLost } from './converge-if-lost.ts'
import { convergeInstead } from './converge-instead.ts'
import { convergeMissing } from './converge-missing.ts'
import { LeasePatience } from './lease-patience.ts'
import { findBeside, refuseBeside } from './other-syncs.ts'
import { repair } from './repair.ts'
import { idleProgress, publicState } from './report-progress.ts'
import { resync } from './resync.ts'
import { findEverything, readClusters } from './start-checks.ts'
import type { SyncInstance } from './sync-instance.ts'

/** Added to a refusal when the command has already taken effect in this instance. */
const storedLater = 'it has taken effect in this instance, and is stored in the next lease term'

/** The failures whose cause may be a collection that somebody has dropped on the destination. */
const missingAfter = new Set<string | undefined>(['DestinationConflict', 'VerificationFailed'])

/** The connection to both clusters. The instance exists once they have answered. */
export interface Connection {
  /** The store of received commands; null before the sync exists. */
  readonly audit: AuditStore | null
  /** Why the instance cannot start; null while nothing prevents it. */
  readonly failure: unknown
  /** Throws RefusedError while the instance is connecting or cannot start. */
  connected(): SyncInstance
  /** Waits for a limited time for an instance that is connecting. */
  whenConnected(): Promise<SyncInstance>
}

/** The instance behind the API. It defines in which state each command is accepted, and why a command is refused. */
export class InstanceCommands implements Instance {
  readonly #connection: Connection
  readonly #records: CommandRecords
  readonly #underWay = new UnderWay()
  readonly #limitChanges = pLimit(1)

  /** @param id mongosyncID */
  constructor(connection: Connection, id: string, journal: Journal) {
    this.#connection = connection
    this.#records = new CommandRecords(connection, id, journal)
  }

  progress(): Progress {
    const { failure } = this.#connection
    if (failure) return { ...idleProgress, state: 'FAILED', failure: toFailure(failure) }
    return this.#connection.connected().progress()
  }

  async instances(): Promise<InstancesReport> {
    return await (await this.#connection.whenConnected()).instances()
  }

  /** Empty before a sync is started. */
  async collections(page: CollectionsPage): Promise<CollectionsReport> {
    const sync = await this.#connection.whenConnected()
    const { session } = sync
    if (!session) return { collections: [], total: 0 }
    try {
      const { state, canWrite, canCommit, mismatches } = sync.progress()
      const situation = JSON.stringify([state, canCommit, mismatches])
      return await session.collections.report(page, canWrite === true, situation)
    } catch (error) {
      throw asRefusal(error, 'collections')
    }
  }

  limits(): LimitsReport {
    return this.#connection.connected().throttle.report
  }

  /** Applies one change at a time. A change that cannot be stored is undone. */
  async limit(limits: Partial<Limits>): Promise<LimitsReport> {
    const sync = await this.#connection.whenConnected()
    const patience = await leased(sync, 'limits', 'COMMITTED')
    await this.#limitChanges(async () => {
      const { actor, throttle } = sync
      const before = throttle.limits
      actor.send({ type: 'sync.limit', limits: { ...before, ...limits } })
      try {
        await patience.bounded(sync.storing, 'the limits are unchanged')
        sync.refuseTakenOver()
      } catch (error) {
        actor.send({ type: 'sync.limit', limits: before })
        throw error
      }
    })
    return sync.throttle.report
  }

  async start(configuration: StartConfiguration): Promise<string[]> {
    const sync = await this.#connection.whenConnected()
    const { inherited, parts } = sync
    const warnings = warningsOfStart(configuration, parts.clusters[configuration.source].before6)
    if (inherited && sameConfiguration(inherited, configuration)) return warnings
    const started = { type: 'sync.start', configuration } as const
    if (!sync.actor.getSnapshot().can(started) || this.#underWay.has('start')) throw wrongState(sync, 'start', 'IDLE')
    await this.#underWay.during('start', async () => {
      try {
        const [source, destination] = [parts.clusters[configuration.source], parts.clusters[configuration.destination]]
        // The clusters are read during `findStored`. The result, or an error, matters only when no sync is stored yet.
        const reading = readClusters(configuration, source, destination)
        reading.catch(() => {})
        const stored = await findReachable(parts)
        await sync.join(
          stored ? { record: stored, filters: null } : await beginSync(await reading, parts),
          configuration,
        )
      } catch (error) {
        throw asRefusal(error)
      }
    })
    return warnings
  }

  async check(configuration: StartConfiguration, options: CheckOptions): Promise<Finding[]> {
    const { clusters, context, transportRisks } = (await this.#connection.whenConnected()).parts
    try {
      const [source, destination] = [clusters[configuration.source], clusters[configuration.destination]]
      const found = await findEverything(configuration, source, destination, options)
      const beside = await findBeside(configuration, { source, destination, context }, found)
      return [...found, ...beside, ...transportRisks()]
    } catch (error) {
      throw asRefusal(error, 'check')
    }
  }

  async pause(): Promise<void> {
    const sync = await this.#connection.whenConnected()
    const { actor } = sync
    const paused = { type: 'sync.pause' } as const
    const refuseOtherStates = (): void => {
      if (!actor.getSnapshot().can(paused)) throw wrongState(sync, 'pause', 'RUNNING')
    }
    refuseOtherStates()
    await leased(sync, 'pause')
    refuseOtherStates()
    actor.send(paused)
    await waitFor(actor, (now) => publicState(now) !== 'RUNNING', { timeout: Number.POSITIVE_INFINITY })
    await new LeasePatience('pause', sync).bounded(sync.storing, storedLater)
    if (publicState(actor.getSnapshot()) !== 'PAUSED') throw wrongState(sync, 'pause', 'RUNNING')
  }

  async resume(): Promise<void> {
    const sync = await this.#connection.whenConnected()
    const { actor } = sync
    const resumed = { type: 'sync.resume' } as const
    const refuseOtherStates = (): void => {
      if (!actor.getSnapshot().can(resumed)) throw wrongState(sync, 'resume', 'PAUSED or FAILED')
      this.#refuseDuringRepair('resume')
    }
    refuseOtherStates()
    const patience = await leased(sync, 'resume')
    refuseOtherStates()
    const { session } = sync
    const { failure, reversing } = actor.getSnapshot().context
    const isKnownLost = failure?.error === 'OplogWindowLost'
    // The oplog may have rolled over since the failure, or while the sync was paused.
    if ((isKnownLost || sync.state === 'PAUSED') && !reversing && session) {
      await storedForAll(sync, 'resume', patience, (until) => convergeIfLost(session, isKnownLost, until))
      refuseOtherStates()
    } else if (missingAfter.has(failure?.error) && !reversing && session) {
      const accepted = failure?.error === 'VerificationFailed' ? 'repair' : 'abort'
      await storedForAll(sync, 'resume', patience, (until) => convergeMissing(session, accepted, until))
      refuseOtherStates()
    }
    actor.send(resumed)
    await patience.bounded(sync.storing, storedLater)
  }

  async commit(request: CommitRequest): Promise<void> {
    const sync = await this.#connection.whenConnected()
    const { actor, state, session } = sync
    const committed = { type: 'sync.commit', abortsBefore: 0, commitUntil: null, dryRun: false } as const
    if (state !== 'RUNNING' || !session || this.#underWay.has('commit')) throw wrongState(sync, 'commit', 'RUNNING')
    if (!actor.getSnapshot().can(committed)) {
      throw new RefusedError(
        'CannotCommit',
        'the initial copy and its first verification have not ended; wait until progress shows canCommit true',
      )
    }
    const patience = new LeasePatience('commit', sync)
    const isJoined = await this.#underWay.during('commit', async () => {
      try {
        await untilReadyToCommit(sync)
        if (!actor.getSnapshot().can(committed)) throw wrongState(sync, 'commit', 'RUNNING')
        session.runs.latest?.events?.expedite(true)
        // The request is stored for all instances before any of them acts on it.
        const { signal } = sync.parts.context
        const { convergences } = actor.getSnapshot().context
        const ask = (until: AbortSignal) => session.peers.request(request, convergences, until)
        const abortsBefore = await patience.withLease(sync, signal, ask)
        if (!actor.getSnapshot().can(committed)) {
          // While this instance waited for its lease, it joined the commit of the others, which is the requested one.
          if (sync.state === 'COMMITTING' || sync.state === 'COMMITTED') return true
          throw wrongState(sync, 'commit', 'RUNNING')
        }
        const commitUntil = request.maxSeconds === null ? null : Date.now() + request.maxSeconds * 1_000
        actor.send({ type: 'sync.commit', abortsBefore, commitUntil, dryRun: request.dryRun })
        return false
      } catch (error) {
        session.runs.latest?.events?.expedite(false)
        throw asRefusal(error, 'commit')
      }
    })
    if (!isJoined) await patience.bounded(sync.storing, storedLater)
  }

  async abort(): Promise<void> {
    await this.#abort(null)
  }

  /** @param named see `abortCommit` */
  async #abort(named: number | null): Promise<void> {
    const sync = await this.#connection.whenConnected()
    this.#refuseDuringRepair('abort')
    await abortCommit(sync, named)
  }

  async reverse(): Promise<void> {
    const sync = await this.#connection.whenConnected()
    const { session, actor } = sync
    const reversed = { type: 'sync.reverse' } as const
    if (!actor.getSnapshot().can(reversed) || !session || this.#underWay.has('reverse')) {
      throw wrongState(sync, 'reverse', 'COMMITTED')
    }
    await this.#underWay.during('reverse', async () => {
      try {
        const { source, destination, record, context } = session
        await checkReverse({ record, source, destination, context })
        const swapped = swapConfiguration(record.configuration)
        await refuseBeside(swapped, { source: destination, destination: source, context })
        await sync.leadAgain(session)
        sync.actor.send(reversed)
      } catch (error) {
        throw asRefusal(error, 'reverse')
      }
    })
    await new LeasePatience('reverse', sync).bounded(sync.storing, storedLater)
  }

  async sendToAll(given: GivenCommand): Promise<PeerAnswers> {
    const sync = await this.#connection.whenConnected()
    try {
      const abortsBefore = given.command === 'abort' ? await commitToAbort(sync) : undefined
      return await sync.commands.give({ ...given, ...(abortsBefore !== undefined && { abortsBefore }) })
    } catch (error) {
      throw asRefusal(error)
    }
  }

  /** The differences of the last verdict; empty before the first verdict and after a verdict without differences. */
  async mismatches(): Promise<{ mismatches: Mismatch[]; total: number }> {
    const { session } = await this.#connection.whenConnected()
    if (!session) return { mismatches: [], total: 0 }
    try {
      const { mismatches, total } = await session.verification.store.readVerdict()
      const { names } = session.destination
      return {
        mismatches: (mismatches as Mismatch[]).map((one) => ({ ...one, ...names.differing(one.namespace) })),
        total,
      }
    } catch (error) {
      throw asRefusal(error, 'mismatches')
    }
  }

  /**
   * Repairs the differences that the last verdict lists: writes the source's state to the destination. A following
   * `resume` commits again, unless collections have to be converged: the commit is then aborted. Throws RefusedError
   * WrongState when another instance coordinates, because only the coordinator's writes of definitions are fenced by its
   * term.
   */
  async repair(): Promise<RepairReport> {
    const sync = await this.#connection.whenConnected()
    const { actor, state, session } = sync
    const failure = actor.getSnapshot().context.failure
    if (state !== 'FAILED' || failure?.error !== 'VerificationFailed' || !session || this.#underWay.has('repair')) {
      throw new RefusedError(
        'WrongState',
        `repair is accepted in FAILED after VerificationFailed; the state is ${state}${failure ? ` (${failure.error})` : ''}`,
      )
    }
    return await this.#underWay.during('repair', async () => {
      try {
        const patience = await leased(sync, 'repair')
        // After the lease was taken again, this instance must first read which instance coordinates.
        await patience.withLease(sync, sync.parts.context.signal, () => session.coordination.start())
        const { documents, unrepaired } = await repair(session)
        if (unrepaired.size > 0) await convergeInstead(sync, session, unrepaired)
        return { repairedDocuments: documents, convergingCollections: unrepaired.size }
      } catch (error) {
        throw asRefusal(error, 'repair')
      }
    })
  }

  /** Any instance accepts the request, which is stored for all instances. */
  async resync(namespaces: readonly NamespaceName[]): Promise<void> {
    const sync = await this.#connection.whenConnected()
    const { state, session } = sync
    if (state !== 'RUNNING' || !session) throw wrongState(sync, 'resync', 'RUNNING')
    await storedForAll(sync, 'resync', new LeasePatience('resync', sync), (until) => resync(session, namespaces, until))
  }

  /**
   * Any instance accepts the request, which is stored for all instances. If a selected namespace has made the sync
   * FAILED, the operator can exclude it with a new filter.
   */
  async filter(request: FilterRequest): Promise<void> {
    const sync = await this.#connection.whenConnected()
    const { state, session } = sync
    const isAccepted = state === 'RUNNING' || state === 'PAUSED' || state === 'FAILED'
    if (!isAccepted || !session) throw wrongState(sync, 'filter', 'RUNNING, PAUSED or FAILED')
    this.#refuseDuringRepair('filter')
    try {
      // This check runs before the limited wait for the lease, because it can take longer for a large catalog.
      await refuseFilter(session, request)
    } catch (error) {
      throw asRefusal(error, 'filter')
    }
    await storedForAll(sync, 'filter', new LeasePatience('filter', sync), (until) =>
      changeFilter(session, request, until),
    )
  }

  #refuseDuringRepair(command: string): void {
    if (!this.#underWay.has('repair')) return
    throw new RefusedError('WrongState', `a repair is under way; send ${command} when it has ended`)
  }

  /**
   * Performs a command from another instance as if it had arrived through this instance's own API.
   * @param sender the instance that passed it on, as the command's record names it; null if the record names none
   */
  async perform(given: GivenCommand, sender: string | null): Promise<void> {
    await this.#records.passedOn(given, sender, () => this.#perform(given))
  }

  async #perform({ command, request, filter, abortsBefore }: GivenCommand): Promise<void> {
    if (command === 'commit') return await this.commit(request ?? plainCommit)
    if (command === 'filter') {
      if (!filter) throw new RefusedError('InvalidRequest', 'filter: was sent without a filter')
      return await this.filter(filter)
    }
    if (command !== 'abort') return await this[command]()
    await abortWithOthers(await this.#connection.whenConnected(), abortsBefore, (named) => this.#abort(named))
  }

  async audit(): Promise<AuditEntry[]> {
    return await this.#records.read()
  }

  async commandReceived(call: ReceivedCommand): Promise<void> {
    await this.#records.received(call)
  }

  commandAnswered(call: CommandCall, admitted: boolean): void {
    this.#records.answered(call, admitted)
  }

  /** Ends the audit trail within a second. The connection closes the instance. */
  async close(): Promise<void> {
    await this.#records.close()
  }
}
