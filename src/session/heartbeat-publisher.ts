import pLimit from 'p-limit'
import type { InstanceContext } from '../../machines/instance-context.ts'
import type { ObservedInstance } from '../coordination/liveness.ts'
import type { PeerCommands } from '../coordination/peer-commands.ts'
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
  commands: Pick<PeerCommands, 'pollIfDue'>
  context: RetryContext
}

const heartbeatMS = 1_000
/**
 * While only times have changed in this instance's progress, a heartbeat follows after this share of the time after which
 * an instance without heartbeats counts as lost.
 */
const unchangedShare = 0.2
/** Timers run a little late or early. */
const timerMarginMS = 100
/** Fields of the progress that change all the time, also while nothing happens. */
const times = new Set([
  ...['lagTimeSeconds', 'estimatedOplogTimeRemaining', 'oplogSecondsRemaining', 'estimatedSecondsToCatchUp'],
  ...['pingLatencyMs', 'estimatedSeconds'],
])
/** A publication uses what a round of the coordination has read about the other instances within this time, ms. */
const recentMS = 1_500
const lostForSeconds = 24 * 60 * 60
/**
 * States in which an instance may coordinate. In another state it may coordinate only while no other live instance is
 * in one of these states.
 */
const atWork: PublicState[] = ['RUNNING', 'COMMITTING', 'REVERSING']
/** States in which the lag is measured. The source is pinged for its cluster time only in these states. */
const withLag: PublicState[] = ['RUNNING', 'COMMITTING']

/**
 * Publishes this instance's heartbeat. Reads the heartbeats of the other instances, from which `progress` and
 * `instances` report on all instances.
 */
export class HeartbeatPublisher {
  readonly #parts: HeartbeatPublisherParts
  #timer: NodeJS.Timeout | null = null
  #state: PublicState = 'IDLE'
  /** The rows of all instances as of the last read. */
  #observed: ObservedInstance[] = []
  /** The heartbeat that was stored last, without times, and when (ms, `performance.now()`). */
  #published = { content: '', at: Number.NEGATIVE_INFINITY }
  readonly #heartbeats = pLimit(1)
  #again = false
  #aside: Promise<void> | null = null
  readonly #key = Symbol('heartbeat')
  /** Bytes copied by lost instances, which only the coordinator counts and reports; 0 in the other instances. */
  orphanedBytes = 0

  constructor(parts: HeartbeatPublisherParts) {
    this.#parts = parts
  }

  /**
   * Starts to publish heartbeats. Resolves after the first attempt. If this attempt succeeds, the other instances know
   * this instance. A failed attempt is reported, and the next heartbeat follows after `heartbeatMS`.
   */
  async start(): Promise<void> {
    if (this.#timer) return
    this.#timer = setInterval(() => {
      this.#publishSoon()
      this.#parts.commands.pollIfDue()
      if (withLag.includes(this.#state)) this.#parts.current.session?.figures.keepTime()
    }, heartbeatMS)
    this.#timer.unref()
    // The row of an earlier heartbeat may have been removed.
    this.#published = { content: '', at: Number.NEGATIVE_INFINITY }
    this.#publishSoon()
    await this.#heartbeats(() => {})
  }

  stop(): void {
    if (this.#timer) clearInterval(this.#timer)
    this.#timer = null
    this.#parts.context.monitor.end(this.#key)
  }

  /** Called when the machine has changed its state. Publishes the state now. */
  transition(state: PublicState, context: InstanceContext): void {
    if (state === this.#state) return
    this.#state = state
    const session = this.#parts.current.session
    if (!session) return
    if (state === 'RUNNING') session.figures.resetTime()
    session.alerts.entered(state)
    if (state === 'PAUSED' || state === 'FAILED') this.#releaseRole(session, state, context)
    else session.coordination.engage(atWork.includes(state))
    if (!this.#timer) return
    this.#publishSoon()
    this.#heartbeats(() => {})
      .then(() => session.coordination.notify())
      .catch(() => {})
  }

  /**
   * Called when this instance is paused or has failed, so that another instance may lead. This one gives the
   * coordinator role up only after its work (such as a plan of the copy or a change of definitions) has ended and the
   * failure of a commit is stored for all instances. A coordinator whose commit has failed keeps the role, because a
   * successor would retry the commit without a request.
   */
  #releaseRole(
    session: SyncSession,
    state: PublicState,
    { commitRequested, reversing, failure, dryRun }: InstanceContext,
  ): void {
    // The failure of a rehearsal ends it and fails no other instance: see `SyncFollower.watch`.
    const isRehearsal = dryRun || session.peers.sync.context.request?.dryRun === true
    const reported =
      state === 'FAILED' && commitRequested && failure && !isRehearsal
        ? session.peers.failed(failure).catch((error) => this.#parts.context.onRetry?.('reporting the failure', error))
        : null
    // The verifier must end too, because its last writes must precede the first writes of the next coordinator's
    // verifier. A pause or the end of a commit has already stopped it. Another stop here could end the verifier of a
    // sync that was resumed since.
    const isStopped = state === 'PAUSED' || commitRequested || reversing !== null
    const verified = isStopped ? session.verification.ended : session.verification.stop()
    void Promise.allSettled([reported, session.ended, verified]).then(() => {
      const keepsCoordinatorRole = state === 'FAILED' && commitRequested && session.coordination.leading
      if (this.#state === state && !keepsCoordinatorRole) session.coordination.engage(false)
    })
  }

  /**
   * The progress of the coordinator if it is another instance, otherwise null. The coordinator verifies, and it knows
   * what a commit waits for.
   */
  get coordinator(): Progress | null {
    const coordination = this.#parts.current.session?.coordination
    if (!coordination || coordination.leading) return null
    // This instance remains the known coordinator after it has given the role up, and its last heartbeat is older than
    // its progress.
    const coordinatorID = coordination.coordinatorID
    if (coordinatorID === this.#parts.id) return null
    return this.#observed.find(({ id }) => id === coordinatorID)?.progress ?? null
  }

  /**
   * How many instances of the sync are alive, this one included, and how many were lost within the last day. Instances
   * that were lost earlier are not counted.
   */
  get instances(): { alive: number; lost: number } {
    const others = this.#observed.filter(({ id }) => id !== this.#parts.id)
    const lost = others.filter(({ alive, lastSeenSeconds }) => !alive && lastSeenSeconds < lostForSeconds)
    return { alive: 1 + others.filter(({ alive }) => alive).length, lost: lost.length }
  }

  get warnings(): string[] {
    const session = this.#parts.current.session
    if (!session) return []
    const others = this.#observed.filter(({ id, alive }) => alive && id !== this.#parts.id)
    const warnings: string[] = []
    const waiting = new Set(session.figures.barrierWaitsFor)
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
      warnings.push(
        'this instance is paused while other instances run: every change of definitions and the commit wait for it',
      )
    }
    const command = { COMMITTING: 'commit', REVERSING: 'reversal' }[this.#state as string]
    if (command && session.peers.waitingFor.length > 0) {
      warnings.push(
        `the ${command} waits for instances that have not received it yet: ${session.peers.waitingFor.join(', ')}`,
      )
    }
    return [...warnings, ...commitWarnings(session.peers.sync)]
  }

  /** The other instances as of their last heartbeats, and this one as it is now. */
  async report(): Promise<InstancesReport> {
    await this.#readInstances(0).catch(() => {}) // on failure, reports the rows of the last read
    const rows = this.#observed.filter(({ id }) => id !== this.#parts.id).map(rowOf)
    const session = this.#parts.current.session
    if (session) rows.push(this.#own(session))
    rows.sort((one, other) => (one.mongosyncID < other.mongosyncID ? -1 : 1))
    return { instances: rows, totals: totalsOf(rows) }
  }

  #own(session: SyncSession): InstanceRow {
    return {
      mongosyncID: this.#parts.id,
      coordinator: session.coordination.leading || session.coordination.coordinatorID === this.#parts.id,
      status: 'alive',
      lastSeenSeconds: 0,
      partitions: [...session.coordination.held.keys()].sort((one, other) => one - other),
      progress: this.#parts.reporter.progress(),
    }
  }

  /** Publishes one heartbeat at a time. The next heartbeat includes changes that happen meanwhile. */
  #publishSoon(): void {
    if (this.#again) return
    this.#again = true
    void this.#heartbeats(async () => {
      this.#again = false
      const { monitor, onRetry } = this.#parts.context
      try {
        await this.#publish()
        monitor.end(this.#key)
      } catch (error) {
        const what = this.#parts.current.session?.failureDetector ? 'reaching Redis' : 'publishing the heartbeat'
        monitor.begin(this.#key, what)
        onRetry?.(what, error)
      }
    })
  }

  async #publish(): Promise<void> {
    const session = this.#parts.current.session
    if (!session || this.#parts.context.signal.aborted) return
    const { coordinator, partitions, progress } = this.#own(session)
    const { id, incarnation } = this.#parts
    const content = JSON.stringify([session.record.generation, coordinator, partitions, progress], withoutTimes)
    // A failure detector counts an instance as lost soon after a heartbeat is missing.
    const dueMS = session.failureDetector ? 0 : session.liveness.ttlMS * unchangedShare - timerMarginMS
    if (content !== this.#published.content || performance.now() - this.#published.at >= dueMS) {
      const [sentAt, at] = [hostClocks.now(), performance.now()]
      // If the outcome stays unknown, the next heartbeat is stored in any case.
      this.#published = { content: '', at }
      await session.liveness.publish({ id, incarnation, coordinator, partitions, progress })
      session.failureDetector?.acknowledged(sentAt)
      this.#published = { content, at }
    }
    await this.#readInstances(recentMS)
    // This is not awaited, because the reads wait while the destination is unreachable, and heartbeats must continue.
    this.#aside ??= this.#reportOthers(session)
      .catch((error) => this.#parts.context.onRetry?.('reading the progress of the other instances', error))
      .finally(() => {
        this.#aside = null
      })
  }

  async #reportOthers(session: SyncSession): Promise<void> {
    await session.figures.readOthers()
    const isIdle = this.#state === 'PAUSED' || this.#state === 'FAILED'
    if (isIdle && this.#observed.length > 1) await session.figures.loadCopiedBytes()
    await this.#countOrphaned(session)
  }

  async #readInstances(maxAgeMS: number): Promise<void> {
    const session = this.#parts.current.session
    if (!session) return
    const recent = maxAgeMS > 0 ? session.liveness.recentInstances(maxAgeMS) : null
    this.#observed = recent ?? (await session.liveness.instances())
  }

  async #countOrphaned(session: SyncSession): Promise<void> {
    const alive = new Set(this.#observed.filter((one) => one.alive).map(({ id }) => id))
    if (!session.coordination.leading || this.#observed.length === alive.size) {
      this.orphanedBytes = 0
      return
    }
    let orphaned = 0
    for (const [id, bytes] of await session.figures.bytesByInstance()) if (!alive.has(id)) orphaned += bytes
    this.orphanedBytes = orphaned
  }
}

function withoutTimes(field: string, value: unknown): unknown {
  return times.has(field) ? undefined : value
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
