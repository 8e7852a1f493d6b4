import type { InstanceContext } from '../../machines/instance-context.ts'
import type { ObservedInstance } from '../coordination/liveness.ts'
import type { PeerCommands } from '../coordination/peer-commands.ts'
import { InTurn } from '../domain/in-turn.ts'
import { type InstanceRow, type InstancesReport, totalsOf } from '../domain/instances.ts'
import type { Progress, PublicState } from '../domain/progress.ts'
import { hostClocks } from '../mongo/host-clocks.ts'
import type { RetryContext } from '../mongo/retry.ts'
import { commitWarnings } from './commit-report.ts'
import type { CurrentSession } from './current-session.ts'
import type { SyncSession } from './sync-session.ts'

export interface HeartbeatPublisherParts {
  /** mongosyncID. */
  id: string
  incarnation: string
  current: CurrentSession
  /** Reports this instance's own progress. */
  reporter: { progress(): Progress }
  /** Polled for commands that were passed on to this instance. */
  commands: Pick<PeerCommands, 'poll'>
  context: RetryContext
}

const heartbeatMS = 1_000
const lostForSeconds = 24 * 60 * 60
/** States in which an instance may coordinate. */
const atWork: PublicState[] = ['RUNNING', 'COMMITTING', 'REVERSING']
/** States in which lag is reported. Only in these is the source asked for its cluster time. */
const withLag: PublicState[] = ['RUNNING', 'COMMITTING']

/**
 * Publishes this instance's heartbeat and reads those of the others, for what `progress` and `instances` show of all
 * instances.
 */
export class HeartbeatPublisher {
  readonly #parts: HeartbeatPublisherParts
  #timer: NodeJS.Timeout | null = null
  #state: PublicState = 'IDLE'
  /** The rows of all instances as of the last read. */
  #seen: ObservedInstance[] = []
  readonly #heartbeats = new InTurn()
  #again = false
  #aside: Promise<void> | null = null
  readonly #key = Symbol('heartbeat')
  /** Bytes copied by lost instances. The coordinator reports them. */
  orphanedBytes = 0

  constructor(parts: HeartbeatPublisherParts) {
    this.#parts = parts
  }

  /** Resolves when the first heartbeat is published, so that the other instances know this one. */
  async start(): Promise<void> {
    if (this.#timer) return
    this.#timer = setInterval(() => {
      this.#publishSoon()
      this.#parts.commands.poll()
      if (withLag.includes(this.#state)) this.#parts.current.session?.figures.keepTime()
    }, heartbeatMS)
    this.#timer.unref()
    this.#publishSoon()
    await this.#heartbeats.idle
  }

  stop(): void {
    if (this.#timer) clearInterval(this.#timer)
    this.#timer = null
    this.#parts.context.monitor.end(this.#key)
  }

  /** The machine has changed its state: publishes it now. */
  transition(state: PublicState, context: InstanceContext): void {
    if (state === this.#state) return
    this.#state = state
    const work = this.#parts.current.session
    if (!work) return
    if (state === 'RUNNING') work.figures.forgetTime()
    work.alerts.entered(state)
    if (state === 'PAUSED' || state === 'FAILED') this.#rest(work, state, context)
    else work.coordination.engage(atWork.includes(state))
    if (!this.#timer) return
    this.#publishSoon()
    this.#heartbeats.idle.then(() => work.coordination.notify()).catch(() => {})
  }

  /**
   * This instance rests, and another one may lead. The coordinator role is given up only after this instance's work
   * (such as a plan of the copy or a change of definitions) has ended and the failure of a commit is stored for all. A
   * coordinator whose commit has failed keeps the role: a successor would retry the commit, which nobody requested.
   */
  #rest(work: SyncSession, state: PublicState, { commitRequested, reversing, failure }: InstanceContext): void {
    const reported =
      state === 'FAILED' && commitRequested && failure
        ? work.team.failed(failure).catch((error) => this.#parts.context.onRetry?.('reporting the failure', error))
        : null
    // The verifier must end too: its last writes must not come after the first ones of the next coordinator's verifier.
    // A pause or the end of a commit has stopped it already. Another stop here could end the verifier of a resume that
    // came since.
    const isStopped = state === 'PAUSED' || commitRequested || reversing !== null
    const verified = isStopped ? work.verification.ended : work.verification.stop()
    void Promise.allSettled([reported, work.ended, verified]).then(() => {
      const keepsCoordinatorRole = state === 'FAILED' && commitRequested && work.coordination.leading
      if (this.#state === state && !keepsCoordinatorRole) work.coordination.engage(false)
    })
  }

  /**
   * The progress of the coordinator when it is another instance: it verifies, and it knows what a commit waits for.
   * Else null.
   */
  get coordinator(): Progress | null {
    const coordinator = this.#parts.current.session?.coordination
    if (!coordinator || coordinator.leading) return null
    return this.#seen.find(({ id }) => id === coordinator.coordinatorID)?.progress ?? null
  }

  /**
   * How many instances of the sync are alive, this one included, and how many were lost within the last day. Older ones
   * are not counted.
   */
  get instances(): { alive: number; lost: number } {
    const others = this.#seen.filter(({ id }) => id !== this.#parts.id)
    const lost = others.filter(({ alive, lastSeenSeconds }) => !alive && lastSeenSeconds < lostForSeconds)
    return { alive: 1 + others.filter(({ alive }) => alive).length, lost: lost.length }
  }

  get warnings(): string[] {
    const work = this.#parts.current.session
    if (!work) return []
    const others = this.#seen.filter(({ id, alive }) => alive && id !== this.#parts.id)
    const warnings: string[] = []
    const waiting = new Set(work.figures.barrierWaitsFor)
    for (const one of others) {
      const holdsUp = one.partitions.some((partition) => waiting.has(partition))
      if (holdsUp && one.progress.state === 'PAUSED') {
        warnings.push(`a change of definitions waits for instance ${one.id}, which is paused; resume it`)
      } else if (holdsUp && one.progress.state === 'FAILED') {
        warnings.push(
          `a change of definitions waits for instance ${one.id}, which has failed; fix the cause and resume it`,
        )
      }
    }
    if (this.#state === 'PAUSED' && others.some(({ progress }) => progress.state === 'RUNNING')) {
      warnings.push('this instance is paused while others run: it holds up every change of definitions, and the commit')
    }
    const command = { COMMITTING: 'commit', REVERSING: 'reversal' }[this.#state as string]
    if (command && work.team.waitingFor.length > 0) {
      warnings.push(`the ${command} waits until these instances have got it too: ${work.team.waitingFor.join(', ')}`)
    }
    return [...warnings, ...commitWarnings(work.team.sync)]
  }

  /** The other instances as of their last heartbeats, and this one as it is now. */
  async report(): Promise<InstancesReport> {
    await this.#readInstances().catch(() => {}) // otherwise the rows that were read last are reported
    const rows = this.#seen.filter(({ id }) => id !== this.#parts.id).map(rowOf)
    const work = this.#parts.current.session
    if (work) rows.push(this.#own(work))
    rows.sort((one, other) => (one.mongosyncID < other.mongosyncID ? -1 : 1))
    return { instances: rows, totals: totalsOf(rows) }
  }

  #own(work: SyncSession): InstanceRow {
    return {
      mongosyncID: this.#parts.id,
      coordinator: work.coordination.leading || work.coordination.coordinatorID === this.#parts.id,
      status: 'alive',
      lastSeenSeconds: 0,
      partitions: [...work.coordination.held.keys()].sort((one, other) => one - other),
      progress: this.#parts.reporter.progress(),
    }
  }

  /** Publishes one heartbeat at a time. The next one reports what changes in the meantime. */
  #publishSoon(): void {
    if (this.#again) return
    this.#again = true
    void this.#heartbeats.run(async () => {
      this.#again = false
      const { monitor, onRetry } = this.#parts.context
      try {
        await this.#publish()
        monitor.end(this.#key)
      } catch (error) {
        const what = this.#parts.current.session?.failureDetector ? 'reaching Redis' : 'publishing the heartbeat'
        monitor.begin(this.#key, what, error instanceof Error ? error.message : String(error))
        onRetry?.(what, error)
      }
    })
  }

  async #publish(): Promise<void> {
    const work = this.#parts.current.session
    if (!work || this.#parts.context.signal.aborted) return
    const { coordinator, partitions, progress } = this.#own(work)
    const { id, incarnation } = this.#parts
    const sentAt = hostClocks.now()
    await work.liveness.publish({ id, incarnation, coordinator, partitions, progress })
    work.failureDetector?.heard(sentAt)
    await this.#readInstances()
    // Not awaited: these reads wait while the destination is unreachable, and heartbeats must continue.
    this.#aside ??= this.#reportOthers(work)
      .catch((error) => this.#parts.context.onRetry?.('reading the progress of the other instances', error))
      .finally(() => {
        this.#aside = null
      })
  }

  async #reportOthers(work: SyncSession): Promise<void> {
    await work.figures.readOthers()
    const rests = this.#state === 'PAUSED' || this.#state === 'FAILED'
    if (rests && this.#seen.length > 1) await work.figures.countCopied()
    await this.#countOrphaned(work)
  }

  async #readInstances(): Promise<void> {
    const work = this.#parts.current.session
    if (work) this.#seen = await work.liveness.instances()
  }

  async #countOrphaned(work: SyncSession): Promise<void> {
    const alive = new Set(this.#seen.filter((one) => one.alive).map(({ id }) => id))
    if (!work.coordination.leading || this.#seen.length === alive.size) {
      this.orphanedBytes = 0
      return
    }
    let orphaned = 0
    for (const [id, bytes] of await work.figures.bytesByInstance()) if (!alive.has(id)) orphaned += bytes
    this.orphanedBytes = orphaned
  }
}

export function rowOf(one: ObservedInstance): InstanceRow {
  const { collectionCopy } = one.progress
  // The coordinator reports the bytes that a lost instance copied.
  const copied = collectionCopy && !one.alive ? { ...collectionCopy, estimatedCopiedBytes: 0 } : collectionCopy
  return {
    mongosyncID: one.id,
    coordinator: one.coordinator && one.alive,
    status: one.alive ? 'alive' : 'lost',
    lastSeenSeconds: Math.round(one.lastSeenSeconds),
    partitions: one.partitions,
    progress: { ...one.progress, collectionCopy: copied },
  }
}
