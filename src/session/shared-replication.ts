import { areWritesBlocked, blocksDestination, unblockSource } from '../commit/write-blocking.ts'
import type { Peers } from '../coordination/peers.ts'
import { StoppedError } from '../domain/errors.ts'
import { Heartbeat } from '../mongo/heartbeat.ts'
import { type RetryContext, retry } from '../mongo/retry.ts'
import { Replication, type ReplicationParts } from './replication.ts'
import type { WorkRuns } from './work-runs.ts'

export interface SharedReplicationParts extends Omit<ReplicationParts, 'untilApplicable'> {
  team: Peers
  runs: WorkRuns
  /** Resolves when this process holds its instance's lease and knows who coordinates. */
  lead: () => Promise<void>
  /** Called before the current replication is left. */
  leaving: () => void
  /** Throws when another instance has reversed the sync. */
  insistOnRecord: () => Promise<void>
}

/** What shares a replication. */
export type Worker = 'copy' | 'events'

/**
 * The replication that collection copy and event application share while the machine replicates, and the one that was
 * loaded last.
 */
export class SharedReplication {
  readonly #parts: SharedReplicationParts
  readonly #heartbeat: Heartbeat
  #replication: Promise<Replication> | null = null
  #latest: Replication | null = null
  #present: Replication | null = null
  /** The workers that share the current replication. */
  #workers = new Set<Worker>()

  constructor(parts: SharedReplicationParts) {
    this.#parts = parts
    this.#heartbeat = new Heartbeat(parts.source)
  }

  get isOpen(): boolean {
    return this.#replication !== null
  }

  /** Resolves when the changes of a former commit are undone and both workers may begin. */
  async whenOpen(): Promise<void> {
    await this.#replication
  }

  /** The replication that was loaded last, whether or not it is running. */
  get latest(): Replication | null {
    return this.#latest
  }

  /** The replication that is running; null until the former one has ended and this one may begin. */
  get present(): Replication | null {
    return this.#present
  }

  /** The replication both workers share; built when the first of them asks. */
  open(worker: Worker): Promise<Replication> {
    // A worker that opens again belongs to the next replication. It may open before it has left this one, because XState
    // stops an actor that is processing an event only afterwards.
    if (this.#workers.has(worker) && this.#replication) this.left(this.#replication)
    this.#workers.add(worker)
    this.#replication ??= this.#open()
    return this.#replication
  }

  async #open(): Promise<Replication> {
    const { coordination, runs } = this.#parts
    // Read before the first await: once this replication is left, `ended` also waits for its own workers, which wait
    // for this.
    const { ended } = runs
    await ended
    runs.renew()
    const { signal } = runs
    await this.#parts.lead()
    await this.#untilApplicable(true, signal)
    const replication = await this.load()
    await this.#parts.insistOnRecord()
    if (signal.aborted) throw new StoppedError()
    replication.prepare()
    this.#present = replication
    coordination.takeWork(true)
    this.#heartbeat.start()
    return replication
  }

  /**
   * Resolves when changes may be applied. If this instance coordinates, it first has the commit's preparation undone.
   * @param restarts true when this instance starts again: then a commit that has not yet applied all changes starts
   * again too, because the source may have been written since
   */
  async #untilApplicable(restarts: boolean, signal: AbortSignal): Promise<void> {
    const { team, coordination } = this.#parts
    for (;;) {
      const sync = await team.load()
      if (sync.hasTag('applicable') && !(restarts && coordination.leading)) return
      if (sync.hasTag('decided')) throw new StoppedError()
      if (coordination.leading) {
        const mayBeOpen = sync.context.mayBeOpen && (await this.#isDestinationOpened())
        const after = await team.report({ type: mayBeOpen ? 'commit.foundOpen' : 'commit.renewed' })
        if (after.hasTag('applicable')) return
      }
      await team.wait(signal)
    }
  }

  async #isDestinationOpened(): Promise<boolean> {
    const { destination, record, context } = this.#parts
    if (!blocksDestination(record.configuration)) return false
    const blocked = await retry('asking whether the destination is blocked', context, () =>
      areWritesBlocked(destination),
    )
    return blocked === false
  }

  /** Enables user writes on the source again, if a commit blocked them. May be repeated. */
  unblockSource(signal: AbortSignal): Promise<void> {
    const { source, destination, record, context } = this.#parts
    return unblockSource(source, destination, record.configuration, { ...context, signal: until(context, signal) })
  }

  /** Adds a worker's run to the current replication. */
  joined(run: Promise<unknown>): void {
    this.#parts.runs.joined(run)
  }

  /**
   * The machine has left the replicating state: stops all runs, which are awaited before new ones begin.
   * @param opened what `open` returned; a replication that was left before is ignored
   */
  left(opened = this.#replication): void {
    const { coordination, runs } = this.#parts
    if (!opened || opened !== this.#replication) return
    this.#parts.leaving()
    this.#workers = new Set()
    this.#replication = null
    this.#present = null
    runs.stop()
    this.#heartbeat.stop()
    coordination.takeWork(false)
    runs.left(() => {
      if (this.#latest) this.#latest.events = null
    })
  }

  /**
   * @param current true: a commit works on the loaded replication; false: it only provides figures when none was loaded
   * before
   */
  async load(current = true): Promise<Replication> {
    const { context, runs } = this.#parts
    if (context.signal.aborted) throw new StoppedError()
    const loaded = await this.#load(runs.signal)
    if (current) this.#latest = loaded
    else this.#latest ??= loaded
    return loaded
  }

  /** Loads the stored state for work that belongs neither to the current replication nor to a commit. */
  read(signal: AbortSignal): Promise<Replication> {
    return this.#load(until(this.#parts.context, signal))
  }

  #load(signal: AbortSignal): Promise<Replication> {
    const context = { ...this.#parts.context, signal }
    const untilApplicable = (): Promise<void> => this.#untilApplicable(false, signal)
    return new Replication({ ...this.#parts, context, untilApplicable }).load()
  }
}

function until(context: RetryContext, signal: AbortSignal): AbortSignal {
  return AbortSignal.any([context.signal, signal])
}
