import { setTimeout as sleep } from 'node:timers/promises'
import type { Coordination } from '../coordination/coordination.ts'
import type { CatalogEntry } from '../domain/catalog.ts'
import type { ClusterTime } from '../domain/cluster-time.ts'
import { duringAny } from '../domain/during-any.ts'
import { assert, StoppedError } from '../domain/errors.ts'
import { both } from '../domain/in-parallel.ts'
import { LongWait } from '../domain/long-wait.ts'
import { TrackedWork } from '../domain/tracked-work.ts'
import type { Metadata } from '../mongo/metadata.ts'
import type { RetryContext } from '../mongo/retry.ts'
import { EventApplication, type EventApplicationParts, type OwnedPartition } from './event-application.ts'

export interface OwnedPartitionsParts
  extends Omit<EventApplicationParts, 'partitions' | 'shared' | 'start' | 'context' | 'metadata' | 'onAnswered'> {
  coordination: Coordination
  metadata: Metadata
  context: RetryContext
  /** Reloads the stored catalog. Called before events of claimed partitions are applied. */
  reload: () => Promise<void>
}

const pollMS = 250

/**
 * Applies the events of the partitions that this instance owns. The machine in machines/event-application.ts decides
 * when each method is called. One `EventApplication` at a time applies the events of all owned partitions. When the set
 * of owned partitions changes, the current `EventApplication` ends and a new one starts. A partition is released only
 * when all events read for it are applied and its position is stored. A partition that is taken over starts at the
 * stored position of its former owner.
 */
export class OwnedPartitions {
  readonly #parts: OwnedPartitionsParts
  readonly #stop = new AbortController()
  /** Collections for which `copyEnded` was called. */
  readonly #ended = new Set<CatalogEntry>()
  readonly #work: TrackedWork
  #owned: ReadonlyMap<number, OwnedPartition> = new Map()
  #current: EventApplication | null = null
  /** Partitions for which a stream from the stored position has returned a batch, with their ownership epochs. */
  readonly #answered = new Map<number, number>()
  #continues = false
  #applied = 0
  #appliedTime: ClusterTime | null = null
  #drainTo: ClusterTime | null = null
  #failure: unknown = null

  constructor(parts: OwnedPartitionsParts) {
    this.#parts = parts
    this.#work = new TrackedWork(this.#stop.signal)
  }

  /** Number of events that this process has applied. Approximate, because one write may cover several changes. */
  get totalEventsApplied(): number {
    return this.#applied + (this.#current?.totalEventsApplied ?? 0)
  }

  /**
   * All events of the owned partitions up to this time are majority-committed on the destination; null before the first
   * `apply`, and while no partition is owned.
   */
  get appliedTime(): ClusterTime | null {
    return this.#current?.appliedTime ?? this.#appliedTime
  }

  /**
   * True once the source's oplog is known to reach back to the stored positions: for every owned partition, a stream
   * from its position has returned a batch. The value then stays true when the instance takes over more partitions,
   * because their former owners were reading them until recently. A takeover that takes long is visible as lag. For an
   * instance without partitions, the value is also true while other live instances own all partitions.
   */
  get continues(): boolean {
    const { held, othersHaveAll } = this.#parts.coordination
    if (held.size === 0) return this.#continues || othersHaveAll
    this.#continues ||= [...held].every(([partition, epoch]) => this.#answered.get(partition) === epoch)
    return this.#continues
  }

  /**
   * Releases the owned partitions that are assigned to other instances, and prepares the remaining ones for `apply`.
   * `Coordination` has made this instance their owner. Resolves with the number of the remaining partitions.
   */
  claim(): Promise<number> {
    return this.#work.run(async () => {
      this.#owned = await this.#claimed()
      if (this.#owned.size === 0) this.#appliedTime = null
      return this.#owned.size
    })
  }

  /**
   * Applies events of the claimed partitions until these change, or until all events up to the `drainTo` time are
   * applied. Rejects on failure.
   * @param answered called when the stream from the stored positions has returned its first batch
   */
  apply(answered: () => void): Promise<void> {
    return this.#work.run(async () => {
      await this.#apply(this.#owned, answered)
      if (this.#failure) throw this.#failure
    })
  }

  /**
   * Resolves with true when all partitions of all instances have passed the `drainTo` time. Otherwise resolves with
   * false when ownership may have changed, or after a short time. Resolves with false at once if `drainTo` was not
   * called.
   */
  pass(): Promise<boolean> {
    return this.#work.run(() => this.#allHavePassed())
  }

  /** Resolves when ownership may have changed, or after a short time. */
  change(): Promise<void> {
    return this.#work.run(() => this.#change())
  }

  /** Drains. Resolves when no work is in progress, with the failure that ended the work or with null. */
  async close(): Promise<unknown> {
    this.drain()
    await this.#work.ended()
    return this.#work.failure
  }

  /** Stops reading. Events already read are still applied. */
  drain(): void {
    this.#stop.abort()
    this.#current?.drain()
  }

  /** Ends `apply` once all events of the owned partitions up to `time` are applied. `pass` waits for all instances. */
  drainTo(time: ClusterTime): void {
    this.#drainTo = time
    this.#current?.drainTo(time)
  }

  /**
   * Makes the server answer sooner when it has no events, because its wait for events would delay a commit.
   * @param pollsFast true before a commit calls `drainTo`, false if that commit is refused
   */
  expedite(pollsFast: boolean): void {
    if (this.#current) this.#current.pollsFast = pollsFast
  }

  /** Runs `work` while no event of the owned partitions is in flight. Does nothing if `apply` is not running. */
  async behindBarrier(work: () => Promise<void>): Promise<void> {
    await this.#current?.behindBarrier(work).catch((error) => {
      if (!(error instanceof StoppedError)) throw error
    })
  }

  /** Called when all segments of this collection are copied. */
  async copyEnded(entry: CatalogEntry): Promise<void> {
    this.#ended.add(entry)
    await this.#current?.copyEnded(entry).catch((error) => {
      // This `EventApplication` ends because the owned partitions changed. The next one ends the copy for its
      // partitions.
      if (!(error instanceof StoppedError) || this.#stop.signal.aborted) throw error
    })
  }

  /**
   * Releases the owned partitions that are assigned to other instances. Returns the remaining ones with their stored
   * positions. The catalog and the positions are read only after `claimCopies`, because from then on no former owner
   * can store in the catalog that one of these partitions has ended the copy of a collection.
   */
  async #claimed(): Promise<Map<number, OwnedPartition>> {
    const { coordination, metadata, catalog } = this.#parts
    const claims = [...coordination.held].filter(([partition]) => coordination.staying.has(partition))
    const leaving = [...coordination.held.keys()].filter((partition) => !coordination.staying.has(partition))
    await coordination.release(leaving)
    if (claims.length === 0) return new Map()
    await metadata.collections.claimCopies(new Map(claims))
    // Only the owner of a partition stores its position, so the positions can be read in parallel with the catalog.
    const [positions] = await both(metadata.loadPartitions(), this.#parts.reload())
    for (const entry of catalog.entries()) {
      if (claims.every(([partition]) => entry.endedPartitions.has(partition))) entry.state = 'copied'
      else if (entry.totalCopied === null) entry.state = 'copying'
    }
    return new Map(
      claims.map(([partition, epoch]) => {
        const start = positions.get(partition)
        assert(start, 'a partition of an initialised sync has no stored position')
        return [partition, { epoch, start }]
      }),
    )
  }

  async #apply(owned: ReadonlyMap<number, OwnedPartition>, answered: () => void): Promise<void> {
    const { coordination } = this.#parts
    // `isAlone` is false while the lease of another instance is stored, even if that instance has ended. That instance
    // may have recorded tombstones (src/mongo/tombstone-store.ts) or reached barriers (src/coordination/barriers.ts).
    const shared = owned.size < this.#parts.partitionCount || !coordination.isAlone
    let isAnswered = false
    const onAnswered = (): void => {
      for (const [partition, { epoch }] of owned) this.#answered.set(partition, epoch)
      if (!isAnswered) answered()
      isAnswered = true
    }
    const application = new EventApplication({ ...this.#parts, partitions: owned, shared, onAnswered })
    if (this.#drainTo !== null) application.drainTo(this.#drainTo)
    this.#current = application
    if (this.#stop.signal.aborted) application.drain()
    const run = application.run()
    const running = new LongWait(run)
    // An earlier run may have begun to remove the tombstones of these collections. This run continues that.
    const endsAgain = this.#parts.catalog.entries().filter((entry) => entry.state === 'copied' && entry.hasTombstones)
    for (const entry of new Set([...this.#ended, ...endsAgain])) {
      application.copyEnded(entry).catch((error) => {
        if (error instanceof StoppedError) return
        this.#failure ??= error
        application.drain()
      })
    }
    while (!running.over) {
      const { held, staying } = coordination
      const same = [...owned].every(([partition, { epoch }]) => held.get(partition) === epoch && staying.has(partition))
      // This instance may hold more partitions than it applies, because a claim that seemed to have failed may have
      // succeeded late. Such a partition must be applied as well, or released if it is assigned to another instance by
      // now.
      if (!same || held.size !== owned.size) application.drain()
      await running.until(coordination.changed())
    }
    this.#appliedTime = application.appliedTime
    this.#applied += application.totalEventsApplied
    this.#current = null
    await run
  }

  async #allHavePassed(): Promise<boolean> {
    if (this.#drainTo === null) return false
    const target = this.#drainTo
    // An `EventApplication` stores its position before it ends, so the positions need not be read.
    const appliedAll = this.#owned.size === this.#parts.partitionCount && this.#current === null
    if (appliedAll && this.#appliedTime !== null && this.#appliedTime > target) return true
    const positions = await this.#parts.metadata.loadPartitions()
    // The position must be later than the time, because many events of a transaction may share one time.
    if ([...positions.values()].every(({ time }) => time > target)) return true
    await this.#change()
    return false
  }

  async #change(): Promise<void> {
    const { context, coordination } = this.#parts
    await duringAny([this.#stop.signal, context.signal], async (signal) => {
      await Promise.race([sleep(pollMS, undefined, { signal }).catch(() => {}), coordination.changed()])
    })
    if (context.signal.aborted) throw new StoppedError()
  }
}
