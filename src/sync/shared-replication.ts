import { areWritesBlocked, blocksDestination, unblockSource } from '../commit/write-blocking.ts'
import type { Team } from '../coordination/team.ts'
import { StoppedError } from '../domain/errors.ts'
import { Heartbeat } from '../mongo/heartbeat.ts'
import type { OplogWatch } from '../mongo/oplog-window.ts'
import { retry } from '../mongo/retry.ts'
import { Replication, type ReplicationParts } from './replication.ts'
import type { WorkRuns } from './work-runs.ts'

export interface SharedReplicationParts extends Omit<ReplicationParts, 'insistOnOpen'> {
  team: Team
  runs: WorkRuns
  oplog: OplogWatch
  /** Resolves when this process holds its instance's lease and knows who coordinates. */
  lead: () => Promise<void>
  /** The present replication is about to be left. */
  leaving: () => void
  /** Throws where another instance has reversed the sync. */
  insistOnRecord: () => Promise<void>
}

/** The replication that the copy and the application of events share while the machine replicates, and the one loaded last. */
export class SharedReplication {
  readonly #parts: SharedReplicationParts
  readonly #heartbeat: Heartbeat
  #replication: Promise<Replication> | null = null
  #latest: Replication | null = null

  constructor(parts: SharedReplicationParts) {
    this.#parts = parts
    this.#heartbeat = new Heartbeat(parts.source)
  }

  get isOpen(): boolean {
    return this.#replication !== null
  }

  /** Resolves when what a former commit had changed is undone and both workers may begin. */
  async whenOpen(): Promise<void> {
    await this.#replication
  }

  /** What was loaded last, whether or not it is under way. */
  get latest(): Replication | null {
    return this.#latest
  }

  /**
   * The replication both workers share; built when the first of them asks.
   * @param commitBegun a commit was begun and not finished: what it restored is held back again
   */
  open(commitBegun: boolean): Promise<Replication> {
    this.#replication ??= this.#open(commitBegun)
    return this.#replication
  }

  async #open(commitBegun: boolean): Promise<Replication> {
    const { coordination, team, runs, oplog } = this.#parts
    // Before anything is awaited: once this replication is left, its own workers, which wait for it, are among what has to end.
    const { ended } = runs
    // A step of a commit that was aborted may take a while to end; users of the source must not wait for that.
    if (commitBegun && coordination.leading) await team.unblockAborted(() => this.#unblockSource())
    await ended
    runs.renew()
    const { signal } = runs
    await this.#parts.lead()
    await team.insistOnOpen()
    await team.adoptOpened(() => this.#isDestinationOpened())
    const replication = await this.load()
    await this.#parts.insistOnRecord()
    await team.reopen(commitBegun, replication.undo, signal)
    if (signal.aborted) throw new StoppedError()
    replication.prepare()
    coordination.takeWork(true)
    this.#heartbeat.start()
    oplog.start()
    return replication
  }

  async #isDestinationOpened(): Promise<boolean> {
    const { destination, record, context } = this.#parts
    if (!blocksDestination(record.configuration)) return false
    const blocked = await retry('asking whether the destination is blocked', context, () =>
      areWritesBlocked(destination),
    )
    return blocked === false
  }

  #unblockSource(): Promise<void> {
    const { source, destination, record, context } = this.#parts
    return unblockSource(source, destination, record.configuration, context)
  }

  /** A worker's run belongs to the present replication until it leaves. */
  joined(run: Promise<unknown>): void {
    this.#parts.runs.joined(run)
  }

  /** The machine has left the state that replicates: whatever still runs is stopped, and awaited before anything new. */
  left(): void {
    const { coordination, runs, oplog } = this.#parts
    if (!this.#replication) return
    this.#parts.leaving()
    this.#replication = null
    runs.stop()
    this.#heartbeat.stop()
    oplog.stop()
    coordination.takeWork(false)
    runs.left(() => {
      if (this.#latest) this.#latest.events = null
    })
  }

  /** @param current what is loaded is what a commit works on; else it only gives figures where nothing else does */
  async load(current = true): Promise<Replication> {
    const { context, team, runs } = this.#parts
    if (context.signal.aborted) throw new StoppedError()
    const replication = new Replication({
      ...this.#parts,
      context: { ...context, signal: runs.signal },
      insistOnOpen: async (undo) => {
        await team.insistOnOpen()
        // Another instance's commit may have been aborted by one that died before it was undone.
        await team.reopen(false, undo, runs.signal)
      },
    })
    const loaded = await replication.load()
    if (current) this.#latest = loaded
    else this.#latest ??= loaded
    return replication
  }
}
