import { waitFor } from 'xstate'
import { asRefusal } from '../checks/check.ts'
import type { AuditEntry, CommandCall, ReceivedCommand } from '../domain/audit-entry.ts'
import type { CollectionsPage, CollectionsReport } from '../domain/collection-figures.ts'
import { type CommitRequest, plainCommit } from '../domain/commit-request.ts'
import { errorText } from '../domain/error-text.ts'
import { RefusedError, toFailure } from '../domain/errors.ts'
import type { Finding } from '../domain/finding.ts'
import { InTurn } from '../domain/in-turn.ts'
import type { Instance } from '../domain/instance.ts'
import type { InstancesReport } from '../domain/instances.ts'
import type { Journal } from '../domain/journal.ts'
import type { Limits, LimitsReport } from '../domain/limits.ts'
import type { Mismatch } from '../domain/mismatch.ts'
import type { PeerAnswers, PeerCommand } from '../domain/peer-command.ts'
import type { Progress, PublicState } from '../domain/progress.ts'
import type { StartConfiguration } from '../domain/start-request.ts'
import type { AuditStore } from '../mongo/audit-store.ts'
import type { GivenCommand } from '../mongo/command-store.ts'
import { isTransient } from '../mongo/errors.ts'
import { checkReverse } from '../reverse/check-reverse.ts'
import { beginSync, reachBoth, sameConfiguration } from './begin-sync.ts'
import { CommandTrail } from './command-trail.ts'
import { untilReadyToCommit } from './commit-readiness.ts'
import { LeasePatience } from './lease-patience.ts'
import { repair } from './repair.ts'
import { idleProgress, publicState } from './report-progress.ts'
import { findEverything } from './start-checks.ts'
import type { SyncInstance } from './sync-instance.ts'

/** Added to a refusal when the command has already taken effect in this instance. */
const storedLater = 'it has begun here, and is stored with the next lease'

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

/** The instance behind the API. It defines in which state each command is accepted, and why it is refused otherwise. */
export class InstanceCommands implements Instance {
  readonly #connection: Connection
  readonly #journal: Journal
  /** mongosyncID. */
  readonly #id: string
  readonly #trail: CommandTrail
  readonly #underWay = new UnderWay()
  readonly #limitChanges = new InTurn()

  constructor(connection: Connection, id: string, journal: Journal) {
    this.#connection = connection
    this.#journal = journal
    this.#id = id
    this.#trail = new CommandTrail(connection, (error) => journal('audit not stored', { error: errorText(error) }))
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
      return await session.collections.report(page, sync.progress().canWrite === true)
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
    await this.#limitChanges.run(async () => {
      const { actor, throttle } = sync
      const before = throttle.limits
      actor.send({ type: 'sync.limit', limits: { ...before, ...limits } })
      try {
        await patience.bounded(sync.storing, 'the limits are as they were')
        sync.refuseTakenOver()
      } catch (error) {
        actor.send({ type: 'sync.limit', limits: before })
        throw error
      }
    })
    return sync.throttle.report
  }

  async start(configuration: StartConfiguration): Promise<void> {
    const sync = await this.#connection.whenConnected()
    const { inherited, parts } = sync
    if (inherited && sameConfiguration(inherited, configuration)) return
    const started = { type: 'sync.start', configuration } as const
    if (!sync.actor.getSnapshot().can(started) || this.#underWay.has('start')) throw wrongState(sync, 'start', 'IDLE')
    await this.#underWay.during('start', async () => {
      try {
        await reachBoth(parts.clusters)
        const stored = await parts.findStored()
        await sync.join(stored ?? (await beginSync(configuration, parts)), configuration)
      } catch (error) {
        throw asRefusal(error)
      }
    })
  }

  async check(configuration: StartConfiguration): Promise<Finding[]> {
    const { clusters, transportRisks } = (await this.#connection.whenConnected()).parts
    try {
      const [source, destination] = [clusters[configuration.source], clusters[configuration.destination]]
      const found = await findEverything(configuration, source, destination)
      return [...found, ...transportRisks()]
    } catch (error) {
      throw asRefusal(error, 'check')
    }
  }

  async pause(): Promise<void> {
    const sync = await this.#connection.whenConnected()
    const { actor } = sync
    const paused = { type: 'sync.pause' } as const
    const insist = (): void => {
      if (!actor.getSnapshot().can(paused)) throw wrongState(sync, 'pause', 'RUNNING')
    }
    insist()
    await leased(sync, 'pause')
    insist()
    actor.send(paused)
    await waitFor(actor, (now) => publicState(now) !== 'RUNNING', { timeout: Number.POSITIVE_INFINITY })
    await new LeasePatience('pause').bounded(sync.storing, storedLater)
    if (publicState(actor.getSnapshot()) !== 'PAUSED') throw wrongState(sync, 'pause', 'RUNNING')
  }

  async resume(): Promise<void> {
    const sync = await this.#connection.whenConnected()
    const { actor } = sync
    const resumed = { type: 'sync.resume' } as const
    const insist = (): void => {
      if (!actor.getSnapshot().can(resumed)) throw wrongState(sync, 'resume', 'PAUSED or FAILED')
      this.#refuseDuringRepair('resume')
    }
    insist()
    const patience = await leased(sync, 'resume')
    insist()
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
    const patience = new LeasePatience('commit')
    const isJoined = await this.#underWay.during('commit', async () => {
      try {
        await untilReadyToCommit(sync)
        if (!actor.getSnapshot().can(committed)) throw wrongState(sync, 'commit', 'RUNNING')
        session.runs.latest?.events?.expedite(true)
        // The request is stored for all instances before any of them acts on it.
        const { signal } = sync.parts.context
        const abortsBefore = await patience.withLease(sync, signal, (until) => session.team.request(request, until))
        if (!actor.getSnapshot().can(committed)) {
          // While it waited for its lease, this instance joined the commit of the others, which is the requested one.
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
    const sync = await this.#connection.whenConnected()
    const { actor, session } = sync
    const snapshot = actor.getSnapshot()
    const { abortsBefore } = snapshot.context
    sync.refuseTakenOver()
    if (!session || !snapshot.can({ type: 'sync.abort' })) {
      throw wrongState(sync, 'abort', 'COMMITTING before canWrite, and in FAILED after a commit has failed before that')
    }
    this.#refuseDuringRepair('abort')
    const patience = new LeasePatience('abort')
    const { signal } = sync.parts.context
    let isAborted: boolean
    try {
      isAborted = await patience.withLease(sync, signal, (until) => session.team.abort(abortsBefore, { until }))
    } catch (error) {
      throw asRefusal(error, 'abort')
    }
    if (!isAborted) {
      throw new RefusedError(
        'WrongState',
        'the commit is decided and can only be completed; wait until progress shows canWrite',
      )
    }
    actor.send({ type: 'sync.seen', sync: session.team.view })
    await patience.bounded(sync.storing, storedLater)
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
        await sync.leadAgain(session)
        sync.actor.send(reversed)
      } catch (error) {
        throw asRefusal(error, 'reverse')
      }
    })
    await new LeasePatience('reverse').bounded(sync.storing, storedLater)
  }

  async sendToAll(command: PeerCommand, request?: CommitRequest): Promise<PeerAnswers> {
    const { commands } = await this.#connection.whenConnected()
    try {
      return await commands.give({ command, ...(request && { request }) })
    } catch (error) {
      throw asRefusal(error)
    }
  }

  /** What the last verdict found different; empty before the first and after one without differences. */
  async mismatches(): Promise<{ mismatches: Mismatch[]; total: number }> {
    const { session } = await this.#connection.whenConnected()
    if (!session) return { mismatches: [], total: 0 }
    const { mismatches, total } = await session.verification.store.loadVerdict()
    return { mismatches: mismatches as Mismatch[], total }
  }

  /**
   * Reconciles from the source what the last verdict named. A following `resume` commits again. Throws RefusedError
   * WrongState when another instance coordinates, because only the coordinator's writes of definitions are fenced by
   * its term.
   */
  async repair(): Promise<number> {
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
        // After the lease was taken again, the coordinator must be read first.
        await patience.withLease(sync, sync.parts.context.signal, () => session.coordination.start())
        return await repair(session)
      } catch (error) {
        throw asRefusal(error, 'repair')
      }
    })
  }

  #refuseDuringRepair(command: string): void {
    if (!this.#underWay.has('repair')) return
    throw new RefusedError('WrongState', `a repair is under way; send ${command} when it has ended`)
  }

  /** Performs a command from another instance as if it had arrived through this instance's own API. */
  async perform({ command, request }: GivenCommand): Promise<void> {
    if (command === 'commit') return await this.commit(request ?? plainCommit)
    if (command !== 'abort') return await this[command]()
    const { state, actor } = await this.#connection.whenConnected()
    // An abort is stored for all instances, so this one may have followed it already.
    if (state !== 'RUNNING' || !actor.getSnapshot().context.commitAborted) await this.abort()
  }

  async audit(): Promise<AuditEntry[]> {
    try {
      return await this.#trail.read()
    } catch (error) {
      if (!isTransient(error)) throw error
      throw new RefusedError(
        'ClusterUnreachable',
        'the destination, which stores the audit trail, does not answer; try again',
      )
    }
  }

  async commandReceived(call: ReceivedCommand): Promise<void> {
    await this.#record({ ...call, outcome: 'received', error: null, mongosyncID: this.#id }, true)
  }

  commandAnswered(call: CommandCall, admitted: boolean): void {
    void this.#record({ ...call, mongosyncID: this.#id }, admitted)
  }

  async #record(entry: AuditEntry, admitted: boolean): Promise<void> {
    const { time, mongosyncID: _id, ...rest } = entry
    // A log line has its own time.
    this.#journal('audit', { received: time, ...rest })
    if (admitted) await this.#trail.add(entry)
  }

  /** Ends the audit trail. The instance itself is closed with its connection. */
  close(): void {
    this.#trail.close()
  }
}

/** The commands that this instance is carrying out. Each of them is carried out once at a time. */
class UnderWay {
  readonly #commands = new Set<string>()

  has(command: string): boolean {
    return this.#commands.has(command)
  }

  async during<T>(command: string, work: () => Promise<T>): Promise<T> {
    this.#commands.add(command)
    try {
      return await work()
    } finally {
      this.#commands.delete(command)
    }
  }
}

/**
 * Makes sure that this instance holds its lease before a command changes its stored context; takes the lease if it has
 * none.
 * @param except a state in which an instance holds no lease
 * @returns the rest of the time for which the command waits
 */
async function leased(sync: SyncInstance, command: string, except?: PublicState): Promise<LeasePatience> {
  const patience = new LeasePatience(command)
  sync.refuseTakenOver()
  if (sync.state === 'IDLE' || sync.state === except) return patience
  try {
    await patience.held(sync)
  } catch (error) {
    throw asRefusal(error, command)
  }
  sync.refuseTakenOver()
  return patience
}

function wrongState({ state }: SyncInstance, command: string, expected: string): RefusedError {
  return new RefusedError('WrongState', `${command} is accepted in ${expected}; the state is ${state}`)
}
