import type { InstanceContext } from '../../machines/instance-context.ts'
import type { SeenInstance } from '../coordination/liveness.ts'
import { type InstanceRow, type InstancesReport, totalsOf } from '../domain/instances.ts'
import type { Progress, PublicState } from '../domain/progress.ts'
import { hostClocks } from '../mongo/host-clocks.ts'
import type { RetryContext } from '../mongo/retry.ts'
import type { SyncWork } from './sync-work.ts'

export interface HeartbeatPublisherParts {
  /** mongosyncID. */
  id: string
  incarnation: string
  work: () => SyncWork | null
  progress: () => Progress
  /** Looks for what was passed on to this instance. */
  look: () => void
  context: RetryContext
}

const beatMS = 1_000
const lostForSeconds = 24 * 60 * 60
/** States in which an instance may coordinate. */
const atWork: PublicState[] = ['RUNNING', 'COMMITTING', 'REVERSING']
/** States whose lag is told: only for that the source is asked what time it is. */
const withLag: PublicState[] = ['RUNNING', 'COMMITTING']

/** Tells the others how this instance is, and knows how they are: all that `progress` and `instances` show of the team. */
export class HeartbeatPublisher {
  readonly #parts: HeartbeatPublisherParts
  #timer: NodeJS.Timeout | null = null
  #state: PublicState = 'IDLE'
  #seen: SeenInstance[] = []
  #beating: Promise<void> = Promise.resolve()
  #again = false
  #aside: Promise<void> | null = null
  readonly #key = Symbol('beat')
  /** Bytes copied by instances that are lost: they count with the coordinator. */
  strandedBytes = 0

  constructor(parts: HeartbeatPublisherParts) {
    this.#parts = parts
  }

  /** Resolves when this instance is known to the others. */
  async start(): Promise<void> {
    if (this.#timer) return
    this.#timer = setInterval(() => {
      this.#beatSoon()
      this.#parts.look()
      if (withLag.includes(this.#state)) this.#parts.work()?.figures.keepTime()
    }, beatMS)
    this.#timer.unref()
    this.#beatSoon()
    await this.#beating
  }

  stop(): void {
    if (this.#timer) clearInterval(this.#timer)
    this.#timer = null
    this.#parts.context.monitor.end(this.#key)
  }

  /** The machine has come to another state: the others learn it now. */
  transition(state: PublicState, context: InstanceContext): void {
    if (state === this.#state) return
    this.#state = state
    const work = this.#parts.work()
    if (!work) return
    if (state === 'RUNNING') work.figures.forgetTime()
    work.alerts.entered(state)
    if (state === 'PAUSED' || state === 'FAILED') this.#rest(work, state, context)
    else work.coordination.engage(atWork.includes(state))
    if (!this.#timer) return
    this.#beatSoon()
    this.#beating.then(() => work.coordination.notify()).catch(() => {})
  }

  /**
   * The others go on, and one of them leads: not before what this one has under way (a plan of the copy, a change of definitions) has
   * ended, and what fails with a commit has failed for all. Its coordinator keeps the office: a successor that has just begun would try
   * the commit again, which nobody has asked for.
   */
  #rest(work: SyncWork, state: PublicState, { commitRequested, reversing, failure }: InstanceContext): void {
    const told =
      state === 'FAILED' && commitRequested && failure
        ? work.team.failed(failure).catch((error) => this.#parts.context.onRetry?.('telling the others', error))
        : null
    // The verifier as well: its last words must not come after the first ones of the next coordinator's. A pause, or the end of a
    // commit, has told it to stop; told so here once more, a resume that came meanwhile would be stopped with it.
    const isTold = state === 'PAUSED' || commitRequested || reversing !== null
    const verified = isTold ? work.verification.ended : work.verification.stop()
    void Promise.allSettled([told, work.ended, verified]).then(() => {
      const keepsCoordinatorRole = state === 'FAILED' && commitRequested && work.coordination.leading
      if (this.#state === state && !keepsCoordinatorRole) work.coordination.engage(false)
    })
  }

  /** The coordinator's progress, where that is another instance: it verifies, and knows what a commit waits for. */
  get coordinator(): Progress | null {
    const coordinator = this.#parts.work()?.coordination
    if (!coordinator || coordinator.leading) return null
    return this.#seen.find(({ id }) => id === coordinator.coordinatorID)?.progress ?? null
  }

  /** How many instances of the sync are alive, this one among them, and how many were lost within the last day: later one is taken for gone. */
  get instances(): { alive: number; lost: number } {
    const others = this.#seen.filter(({ id }) => id !== this.#parts.id)
    const lost = others.filter(({ alive, lastSeenSeconds }) => !alive && lastSeenSeconds < lostForSeconds)
    return { alive: 1 + others.filter(({ alive }) => alive).length, lost: lost.length }
  }

  get warnings(): string[] {
    const work = this.#parts.work()
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
          `a change of definitions waits for instance ${one.id}, which has failed; mend the cause and resume it`,
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
    return [...warnings, ...work.commit.warnings]
  }

  /** Everybody, as last heard of; this instance as it is now. */
  async report(): Promise<InstancesReport> {
    await this.#look().catch(() => {}) // what was seen last is better than nothing
    const rows = this.#seen.filter(({ id }) => id !== this.#parts.id).map(rowOf)
    const work = this.#parts.work()
    if (work) rows.push(this.#own(work))
    rows.sort((one, other) => (one.mongosyncID < other.mongosyncID ? -1 : 1))
    return { instances: rows, totals: totalsOf(rows) }
  }

  #own(work: SyncWork): InstanceRow {
    return {
      mongosyncID: this.#parts.id,
      coordinator: work.coordination.leading || work.coordination.coordinatorID === this.#parts.id,
      status: 'alive',
      lastSeenSeconds: 0,
      partitions: [...work.coordination.held.keys()].sort((one, other) => one - other),
      progress: this.#parts.progress(),
    }
  }

  /** One beat at a time; what changes during one is told by the next. */
  #beatSoon(): void {
    if (this.#again) return
    this.#again = true
    this.#beating = this.#beating.then(async () => {
      this.#again = false
      const { monitor, onRetry } = this.#parts.context
      try {
        await this.#beat()
        monitor.end(this.#key)
      } catch (error) {
        const what = this.#parts.work()?.failureDetector ? 'reaching Redis' : 'telling the others how this instance is'
        monitor.begin(this.#key, what, error instanceof Error ? error.message : String(error))
        onRetry?.(what, error)
      }
    })
  }

  async #beat(): Promise<void> {
    const work = this.#parts.work()
    if (!work || this.#parts.context.signal.aborted) return
    const { coordinator, partitions, progress } = this.#own(work)
    const { id, incarnation } = this.#parts
    const sentAt = hostClocks.now()
    await work.liveness.publish({ id, incarnation, coordinator, partitions, progress })
    work.failureDetector?.heard(sentAt)
    await this.#look()
    // Not awaited: while the destination is away these wait for it, and this instance must go on being heard of.
    this.#aside ??= this.#reportOthers(work)
      .catch((error) => this.#parts.context.onRetry?.('looking how far the others are', error))
      .finally(() => {
        this.#aside = null
      })
  }

  async #reportOthers(work: SyncWork): Promise<void> {
    await work.figures.lookAround()
    const rests = this.#state === 'PAUSED' || this.#state === 'FAILED'
    if (rests && this.#seen.length > 1) await work.figures.countCopied()
    await this.#countOrphaned(work)
  }

  async #look(): Promise<void> {
    const work = this.#parts.work()
    if (work) this.#seen = await work.liveness.instances()
  }

  async #countOrphaned(work: SyncWork): Promise<void> {
    const alive = new Set(this.#seen.filter((one) => one.alive).map(({ id }) => id))
    if (!work.coordination.leading || this.#seen.length === alive.size) {
      this.strandedBytes = 0
      return
    }
    let stranded = 0
    for (const [id, bytes] of await work.figures.bytesByInstance()) if (!alive.has(id)) stranded += bytes
    this.strandedBytes = stranded
  }
}

export function rowOf(one: SeenInstance): InstanceRow {
  const { collectionCopy } = one.progress
  // Counted by the coordinator from now on.
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
