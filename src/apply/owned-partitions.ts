import { setTimeout as sleep } from 'node:timers/promises'
import type { Coordination } from '../coordination/coordination.ts'
import type { CatalogueEntry } from '../domain/catalogue.ts'
import type { ClusterTime } from '../domain/cluster-time.ts'
import { assert, StoppedError } from '../domain/errors.ts'
import { LongWait } from '../domain/long-wait.ts'
import type { Metadata } from '../mongo/metadata.ts'
import type { RetryContext } from '../mongo/retry.ts'
import { EventApplication, type EventApplicationParts, type OwnedPartition } from './event-application.ts'

export interface OwnedPartitionsParts
  extends Omit<EventApplicationParts, 'partitions' | 'shared' | 'start' | 'context' | 'metadata' | 'onAnswered'> {
  coordination: Coordination
  metadata: Metadata
  context: RetryContext
  /** Before partitions are applied that were another's: the catalogue as it is stored now. */
  reload: () => Promise<void>
}

const pollMS = 250

/**
 * Applies the events of the partitions this instance owns, whichever those are: one event application at a time over all of
 * them, ended and begun anew when they change. A partition is given back only when everything read for it is applied and its
 * position stored; one that is taken over begins at the stored position of its former owner.
 */
export class OwnedPartitions {
  readonly #parts: OwnedPartitionsParts
  readonly #stop = new AbortController()
  /** Collections with no open segment left, on any instance. */
  readonly #ended = new Set<CatalogueEntry>()
  #current: EventApplication | null = null
  /** Partitions whose stream the source has answered with, from the position that was stored, and the epoch of that. */
  readonly #answered = new Map<number, number>()
  #continues = false
  #applied = 0
  #appliedTime: ClusterTime | null = null
  #drainTo: ClusterTime | null = null
  #failure: unknown = null

  constructor(parts: OwnedPartitionsParts) {
    this.#parts = parts
  }

  /** Events applied by this process: approximate, as several changes of one document may be one write. */
  get totalEventsApplied(): number {
    return this.#applied + (this.#current?.totalEventsApplied ?? 0)
  }

  /** Everything up to this time of the partitions owned is on the destination's majority; null while none is owned. */
  get appliedTime(): ClusterTime | null {
    return this.#current?.appliedTime ?? this.#appliedTime
  }

  /**
   * It is known that the source's oplog reaches back to the stored positions: the source has answered with the stream from that of every
   * partition owned. Once known it stays so: a partition that is taken over later comes from an instance that was reading it until a
   * moment ago, and what it was behind shows as lag. Where there are more instances than partitions some own none: the others know.
   */
  get continues(): boolean {
    const { held, othersHaveAll } = this.#parts.coordination
    if (held.size === 0) return this.#continues || othersHaveAll
    this.#continues ||= [...held].every(([partition, epoch]) => this.#answered.get(partition) === epoch)
    return this.#continues
  }

  /** Resolves when drained, or when all partitions, of all instances, have passed the time to drain to. Rejects on a failure. */
  async run(): Promise<void> {
    try {
      while (!this.#stop.signal.aborted) {
        const owned = await this.#claimed()
        if (owned.size === 0) this.#appliedTime = null
        else await this.#apply(owned)
        if (this.#failure) throw this.#failure
        if (await this.#allHavePassed()) return
        if (owned.size === 0) await this.#change()
      }
    } catch (error) {
      if (!(error instanceof StoppedError)) throw error
    }
  }

  /** Stop reading; what was read is still applied. */
  drain(): void {
    this.#stop.abort()
    this.#current?.drain()
  }

  /** Stop once everything up to `time` is applied, by whoever owns it. */
  drainTo(time: ClusterTime): void {
    this.#drainTo = time
    this.#current?.drainTo(time)
  }

  /** A commit is about to ask for `drainTo`: what the server holds open until then would delay it. */
  expedite(hurried: boolean): void {
    if (this.#current) this.#current.hurried = hurried
  }

  /** Runs `work` while none of the events of these partitions is on its way; not at all while none are applied. */
  async behindBarrier(work: () => Promise<void>): Promise<void> {
    await this.#current?.behindBarrier(work).catch((error) => {
      if (!(error instanceof StoppedError)) throw error
    })
  }

  /** The copy of this collection has ended on every instance. */
  async copyEnded(entry: CatalogueEntry): Promise<void> {
    this.#ended.add(entry)
    await this.#current?.copyEnded(entry).catch((error) => {
      // The partitions changed just then: the next application does it for those it gets.
      if (!(error instanceof StoppedError) || this.#stop.signal.aborted) throw error
    })
  }

  /** What is owned and stays, with its positions and the catalogue as they were stored after the claim. */
  async #claimed(): Promise<Map<number, OwnedPartition>> {
    const { coordination, metadata, catalogue } = this.#parts
    const claims = [...coordination.held].filter(([partition]) => coordination.staying.has(partition))
    const leaving = [...coordination.held.keys()].filter((partition) => !coordination.staying.has(partition))
    await coordination.release(leaving)
    if (claims.length === 0) return new Map()
    await metadata.collections.claimCopies(new Map(claims))
    await this.#parts.reload()
    const positions = await metadata.loadPartitions()
    for (const entry of catalogue.entries()) {
      if (claims.every(([partition]) => entry.endedPartitions.has(partition))) entry.state = 'copied'
      else if (entry.totalCopied === null) entry.state = 'copying'
    }
    return new Map(
      claims.map(([partition, epoch]) => {
        const start = positions.get(partition)
        assert(start, 'a sync that was initialised has a partition without position')
        return [partition, { epoch, start }]
      }),
    )
  }

  async #apply(owned: Map<number, OwnedPartition>): Promise<void> {
    const { coordination } = this.#parts
    // Also once this one is the last: what others recorded is recorded, and barriers they came to have their times.
    const shared = owned.size < this.#parts.partitionCount || !coordination.isAlone
    const onAnswered = (): void => {
      for (const [partition, { epoch }] of owned) this.#answered.set(partition, epoch)
    }
    const application = new EventApplication({ ...this.#parts, partitions: owned, shared, onAnswered })
    if (this.#drainTo !== null) application.drainTo(this.#drainTo)
    this.#current = application
    if (this.#stop.signal.aborted) application.drain()
    const run = application.run()
    const running = new LongWait(run)
    for (const entry of this.#ended) {
      application.copyEnded(entry).catch((error) => {
        if (error instanceof StoppedError) return
        this.#failure ??= error
        application.drain()
      })
    }
    while (!running.over) {
      const { held, staying } = coordination
      const same = [...owned].every(([partition, { epoch }]) => held.get(partition) === epoch && staying.has(partition))
      // More is held than is applied: to be applied as well, or (a claim that was given up as lost has come after all, and is
      // wanted elsewhere by now) to be given back.
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
    const positions = await this.#parts.metadata.loadPartitions()
    // Beyond it, not at it: one time may be shared by many events of a transaction.
    if ([...positions.values()].every(({ time }) => time > target)) return true
    await this.#change()
    return false
  }

  async #change(): Promise<void> {
    const waking = new AbortController()
    const signal = AbortSignal.any([waking.signal, this.#stop.signal, this.#parts.context.signal])
    await Promise.race([sleep(pollMS, undefined, { signal }).catch(() => {}), this.#parts.coordination.changed()])
    waking.abort()
    if (this.#parts.context.signal.aborted) throw new StoppedError()
  }
}
