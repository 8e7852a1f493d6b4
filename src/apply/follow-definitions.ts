import { setTimeout as sleep } from 'node:timers/promises'
import type { Barriers, ChangeTimes, Touched } from '../coordination/barriers.ts'
import type { Coordination } from '../coordination/coordination.ts'
import type { SyncStore } from '../coordination/sync-store.ts'
import type { DefinitionReconciler } from '../definitions/reconcile-definitions.ts'
import { type ClusterTime, earlierOf, ordinalOf, secondsOf } from '../domain/cluster-time.ts'
import { StoppedError } from '../domain/errors.ts'
import type { ObservedDatabase } from '../domain/observed-database.ts'
import type { Metadata } from '../mongo/metadata.ts'
import { type RetryContext, retry } from '../mongo/retry.ts'
import { ObservedDefinitions } from './observed-definitions.ts'
import type { OwnedPartitions } from './owned-partitions.ts'
import type { SharedCatalogue } from './shared-catalogue.ts'

export interface DefinitionFollowerParts {
  shared: SharedCatalogue
  definitions: DefinitionReconciler
  metadata: Metadata
  coordination: Coordination
  store: SyncStore
  barriers: Barriers
  partitionCount: number
  context: RetryContext
  events: () => OwnedPartitions | null
  atStep: (step: string) => void
}

/** Interval between reads of the barriers; `atBarrierMS` applies while this instance waits at a barrier. */
const barrierPollMS = 250
const atBarrierMS = 40
const silentPollMS = 3_000
/** A barrier of several instances takes longer than a read of the indexes of this many collections. */
const prefetchAtBarrier = 32

/**
 * Follows DDL. The coordinator reconciles definitions for all instances, once every partition has reached the barrier.
 */
export class DefinitionFollower {
  readonly #parts: DefinitionFollowerParts
  readonly #seen = new ObservedDefinitions()
  /** Partitions that have not reached the next barrier. */
  barrierWaitsFor: number[] = []
  #polledAt = 0
  #loadedCatalogue = -1
  #polling: Promise<void> | null = null
  #pollFailure: unknown = null
  /** The last barrier that this instance has reached. */
  #reachedBarrier: ClusterTime | null = null
  /** True while the events of this instance wait at a barrier. */
  #waits = false
  /** The coordinator term in which this instance has read the destination's collection names. */
  #checkedNamesIn: number | null = null

  constructor(parts: DefinitionFollowerParts) {
    this.#parts = parts
  }

  /** The poll for silent changes in progress; null when none is in progress. */
  get polling(): Promise<void> | null {
    return this.#polling
  }

  /**
   * Called behind this instance's barrier. An instance that is alone reconciles at once. Otherwise it waits until all
   * partitions have reached the barrier and the coordinator has reconciled. Changes that were already followed, ahead
   * of these events, need neither. An instance that does not know of that, because it started later, waits for the
   * others' positions.
   * @param partitions the partitions whose events are applied up to here: fewer than those held when some were claimed
   * later
   */
  async follow(touched: Touched, times: ChangeTimes, partitions: number[], stopped: AbortSignal): Promise<void> {
    const { first: time, last } = times
    const { coordination, barriers, partitionCount, shared } = this.#parts
    const isKnown = (uuid: string): boolean => shared.catalogue.get(uuid) !== undefined
    if (this.#reachedBarrier !== time && this.#seen.hasAll(touched, last, isKnown)) return
    const began = performance.now()
    const { journal } = this.#parts.context
    const clusterTime = `${secondsOf(time)}:${ordinalOf(time)}`
    const databases = [...touched.keys()]
    if (partitions.length === partitionCount && coordination.ownsAll && coordination.leading) {
      await this.#takeOver()
      for (const seen of await this.#reconcile(touched)) this.#seen.add(seen)
      if (this.#reachedBarrier === time) await barriers.settle(time, touched)
      journal?.('definitions followed', { databases, seconds: secondsSince(began) })
      return
    }
    await barriers.reach(time, touched, partitions)
    if (this.#reachedBarrier !== time) journal?.('barrier reached', { clusterTime, databases, partitions })
    this.#reachedBarrier = time
    coordination.notify()
    this.#waits = true
    let seen: ObservedDatabase[] | null = null
    try {
      for (;;) {
        seen = await barriers.whenDone(time, touched)
        if (seen) break
        await Promise.race([pause(atBarrierMS, stopped), coordination.changed()])
        if (stopped.aborted) throw new StoppedError()
      }
    } finally {
      this.#waits = false
    }
    await shared.reload()
    // Only after the reload: a collection that is not in the catalogue then was already gone.
    for (const one of seen) this.#seen.add(one)
    journal?.('barrier passed', { clusterTime, seconds: secondsSince(began) })
  }

  async #reconcile(touched: Touched, prefetchMax = 0): Promise<ObservedDatabase[]> {
    const { shared, definitions, coordination, store } = this.#parts
    const seen: ObservedDatabase[] = []
    await shared.exclusively(async () => {
      for (const [database, uuids] of touched) {
        seen.push(await definitions.reconcile(database, uuids, 'copied', prefetchMax))
      }
    })
    if (coordination.members.length > 1) await store.catalogueChanged()
    return seen
  }

  /**
   * As the coordinator, reconciles definitions when all partitions have reached or passed the first open barrier, and
   * then lets all instances continue.
   */
  async leadBarriers(over: AbortSignal): Promise<void> {
    const { coordination, barriers, metadata, partitionCount } = this.#parts
    while (!over.aborted) {
      await Promise.race([pause(this.#waits ? atBarrierMS : barrierPollMS, over), coordination.changed()])
      this.#startPoll()
      if (this.#pollFailure) throw this.#pollFailure
      // An instance that is alone acts at once in `follow`, except at a barrier that it reached before it was alone.
      const actsAlone = coordination.members.length <= 1 && coordination.ownsAll && !this.#waits
      if (!coordination.leading || actsAlone) continue
      const barrier = await barriers.next()
      if (!barrier) {
        this.barrierWaitsFor = []
        continue
      }
      const positions = await metadata.loadPartitions()
      const all = Array.from({ length: partitionCount }, (_, partition) => partition)
      const timeOf = (partition: number): ClusterTime => positions.get(partition)?.time ?? 0n
      const behind = all.filter((one) => !barrier.reached.has(one) && timeOf(one) <= barrier.time)
      this.barrierWaitsFor = behind
      if (behind.length > 0) continue
      const began = performance.now()
      await this.#takeOver()
      this.#parts.atStep('barrier')
      const seen = await this.#reconcile(barrier.touched, prefetchAtBarrier)
      this.#parts.atStep('barrierDone')
      await barriers.done(barrier, seen)
      this.#parts.context.journal?.('barrier led', {
        clusterTime: `${secondsOf(barrier.time)}:${ordinalOf(barrier.time)}`,
        databases: [...barrier.touched.keys()],
        seconds: secondsSince(began),
      })
      coordination.notify()
      await barriers.forget(all.map(timeOf).reduce(earlierOf))
    }
  }

  /** Runs beside `leadBarriers`, because the poll waits for events, which may be waiting at a barrier. */
  #startPoll(): void {
    this.#polling ??= this.#pollSilent()
      .catch((error) => {
        if (!(error instanceof StoppedError)) this.#pollFailure = error
      })
      .finally(() => {
        this.#polling = null
      })
  }

  /** The coordinator polls a sharded source for silent DDL. The other instances poll the catalogue for its changes. */
  async #pollSilent(): Promise<void> {
    const now = performance.now()
    if (now - this.#polledAt < silentPollMS) return
    this.#polledAt = now
    const { shared, definitions, coordination, store, context } = this.#parts
    if (coordination.leading) {
      const changed = await retry('looking for changes of shard keys', context, () => definitions.silentlyChanged())
      if (changed.length === 0) return
      // Silent DDL has no time for a barrier. When several instances share the events, it is followed at commit.
      if (!coordination.ownsAll) return await shared.exclusively(() => definitions.recordMoved(changed))
      const touched = new Map(changed.map((database) => [database, new Set<string>()]))
      await this.#parts.events()?.behindBarrier(async () => void (await this.#reconcile(touched)))
    } else {
      const catalogue = await store.catalogueChanges()
      if (catalogue !== this.#loadedCatalogue) await shared.reload()
      this.#loadedCatalogue = catalogue
    }
  }

  /** Once in each coordinator term: a predecessor may have crashed after a rename, before it stored the catalogue. */
  async #takeOver(): Promise<void> {
    const { shared, coordination, barriers } = this.#parts
    const { coordinatorEpoch } = coordination
    if (this.#checkedNamesIn === coordinatorEpoch) return
    this.#checkedNamesIn = coordinatorEpoch
    await barriers.takeOver()
    await shared.correctNames()
  }
}

function secondsSince(began: number): number {
  return (performance.now() - began) / 1_000
}

function pause(milliseconds: number, signal: AbortSignal): Promise<void> {
  return sleep(milliseconds, undefined, { signal, ref: false }).catch(() => {})
}
