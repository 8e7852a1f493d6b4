import { setTimeout as sleep } from 'node:timers/promises'
import pLimit from 'p-limit'
import type { Barriers, ChangeTimes, Touched } from '../coordination/barriers.ts'
import type { Coordination } from '../coordination/coordination.ts'
import type { SyncStore } from '../coordination/sync-store.ts'
import type { DefinitionReconciler } from '../definitions/reconcile-definitions.ts'
import { type ClusterTime, earlierOf, ordinalOf, secondsOf } from '../domain/cluster-time.ts'
import { StoppedError, UnfollowedError } from '../domain/errors.ts'
import type { ObservedDatabase } from '../domain/observed-database.ts'
import type { Metadata } from '../mongo/metadata.ts'
import { type RetryContext, retry } from '../mongo/retry.ts'
import { AwaitedIndexes } from './awaited-indexes.ts'
import { ObservedDefinitions } from './observed-definitions.ts'
import type { OwnedPartitions } from './owned-partitions.ts'
import type { SharedCatalog } from './shared-catalog.ts'

export interface DefinitionFollowerParts {
  shared: SharedCatalog
  definitions: DefinitionReconciler
  metadata: Metadata
  coordination: Coordination
  store: SyncStore
  barriers: Barriers
  partitionCount: number
  context: RetryContext
  events: () => OwnedPartitions | null
  /** Requests a convergence of these collections. See EventApplicationParts. */
  converge: (collections: ReadonlyMap<string, string>, stopped: AbortSignal) => Promise<never>
  atStep: (step: string) => void
}

/**
 * The longest wait of the coordinator before it looks for open barriers again, ms. The end of a round usually ends the
 * wait earlier. In a round, `Coordination` reads which instances own what, and whether a barrier is open.
 */
const barrierPollMS = 1_500
/** Interval between reads of the barriers while this instance waits at one, ms. */
const atBarrierMS = 40
/** The coordinator relies for this long on what a round has read about open barriers, ms. Rounds are more frequent. */
const recentMS = 1_500
/** Interval between polls for silent DDL: definition changes for which the change stream emits no event. */
const silentPollMS = 3_000
/**
 * When definitions of a database changed less than this long ago (ms), more changes probably follow. The next
 * reconciliation then also reads the changed indexes of all other collections of the database, so that the later events
 * of these index changes need no read of their own.
 */
const burstMS = 5_000

/**
 * Follows DDL. Every partition stops at the cluster time of a DDL event, the barrier (src/coordination/barriers.ts).
 * Once all partitions have reached it, the coordinator reconciles definitions for all instances.
 */
export class DefinitionFollower {
  readonly #parts: DefinitionFollowerParts
  readonly #observed = new ObservedDefinitions()
  /** Partitions that have not reached the next barrier. */
  barrierWaitsFor: number[] = []
  /** The namespaces of collections that were being resharded on the source at the last poll. */
  resharding: readonly string[] = []
  /** When the definitions of each database were last reconciled (ms, `performance.now()`). */
  readonly #reconciledAt = new Map<string, number>()
  #polledAt = 0
  /** The number of stored changes of the catalog at this instance's last reload. */
  #loadedChanges = -1
  #polling: Promise<void> | null = null
  #pollFailure: unknown = null
  /** The last barrier that this instance has reached. */
  #reachedBarrier: ClusterTime | null = null
  /** True while the events of this instance wait at a barrier. */
  #waits = false
  /** The last coordinator term for which `#takeOver` has begun its work, and the promise of that work. */
  #takenOver: { term: number; done: Promise<void> } | null = null
  /** Serializes definition changes, and index builds after a copy. Document events do not wait for it. */
  readonly #gate = pLimit(1)
  readonly #awaitedIndexes: AwaitedIndexes

  constructor(parts: DefinitionFollowerParts) {
    this.#parts = parts
    const exclusively = <T>(work: () => Promise<T>): Promise<T> =>
      this.#gate(async () => {
        await this.#takeOver()
        return await work()
      })
    this.#awaitedIndexes = new AwaitedIndexes({ ...parts, exclusively })
  }

  /** Resolves when no poll for silent DDL and no index build is in progress. */
  async idle(): Promise<void> {
    await Promise.all([this.#polling, this.#awaitedIndexes.work])
  }

  /**
   * Called when this instance has applied all events before these changes. A coordinator that owns all partitions
   * reconciles at once. Otherwise the instance waits until all partitions have reached the barrier and the coordinator
   * has reconciled. It does nothing for changes that were already followed before their events arrived here. An
   * instance that started later does not know that they were followed, and waits at a barrier at which the others do
   * not stop. The coordinator then waits until the stored positions of their partitions are past the barrier.
   * @param partitions the partitions whose events are applied up to here; the instance may have claimed more since
   */
  async follow(touched: Touched, times: ChangeTimes, partitions: number[], stopped: AbortSignal): Promise<void> {
    const { first: time, last } = times
    const { coordination, barriers, partitionCount, shared } = this.#parts
    const isKnown = (uuid: string): boolean => shared.catalog.get(uuid) !== undefined
    if (this.#reachedBarrier !== time && this.#observed.hasAll(touched, last, isKnown)) return
    const began = performance.now()
    const { journal } = this.#parts.context
    const clusterTime = `${secondsOf(time)}:${ordinalOf(time)}`
    const databases = [...touched.keys()]
    if (partitions.length === partitionCount && coordination.ownsAll && coordination.leading) {
      await this.#takeOver()
      for (const observed of await this.#reconcile(touched, stopped)) this.#observed.add(observed)
      if (this.#reachedBarrier === time) await barriers.markDone(time, touched)
      journal?.('definitions followed', { databases, seconds: secondsSince(began) })
      return
    }
    await barriers.reach(time, touched, partitions)
    if (this.#reachedBarrier !== time) journal?.('barrier reached', { clusterTime, databases, partitions })
    this.#reachedBarrier = time
    coordination.notify()
    this.#waits = true
    coordination.wakeWaiting()
    let observed: ObservedDatabase[] | null = null
    try {
      for (;;) {
        observed = await barriers.whenDone(time, touched)
        if (observed) break
        await Promise.race([pause(atBarrierMS, stopped), coordination.changed()])
        if (stopped.aborted) throw new StoppedError()
      }
    } finally {
      this.#waits = false
    }
    await shared.reload()
    // This must follow the reload: if a collection is not in the reloaded catalog, it was gone when the coordinator
    // read the source.
    for (const one of observed) this.#observed.add(one)
    journal?.('barrier passed', { clusterTime, seconds: secondsSince(began) })
  }

  /** Reconciles these databases. If collections must be converged first, requests that and waits for `stopped`. */
  async #reconcile(touched: Touched, stopped: AbortSignal, prefetches = false): Promise<ObservedDatabase[]> {
    try {
      return await this.#tryReconcile(touched, prefetches)
    } catch (error) {
      if (!(error instanceof UnfollowedError)) throw error
      return await this.#parts.converge(error.collections, stopped)
    }
  }

  /** Throws UnfollowedError when collections must be converged first. */
  async #tryReconcile(touched: Touched, prefetches = false): Promise<ObservedDatabase[]> {
    const { shared, definitions, coordination, store } = this.#parts
    const observed: ObservedDatabase[] = []
    const reconcile = async (): Promise<void> => {
      for (const [database, uuids] of touched) {
        const isBurst = performance.now() - (this.#reconciledAt.get(database) ?? Number.NEGATIVE_INFINITY) < burstMS
        observed.push(await definitions.reconcile(database, uuids, 'copied', prefetches || isBurst))
        this.#reconciledAt.set(database, performance.now())
      }
    }
    await this.#gate(() => shared.exclusively(reconcile))
    if (coordination.members.length > 1) await store.catalogChanged()
    return observed
  }

  /**
   * As the coordinator, reconciles definitions when all partitions have reached or passed the first open barrier, and
   * then lets all instances continue.
   */
  async leadBarriers(ended: AbortSignal): Promise<void> {
    const { coordination, barriers, metadata, partitionCount } = this.#parts
    while (!ended.aborted) {
      await Promise.race([pause(this.#waits ? atBarrierMS : barrierPollMS, ended), coordination.changed()])
      this.#startPoll(ended)
      this.#awaitedIndexes.start(ended)
      const failure = this.#pollFailure ?? this.#awaitedIndexes.failure
      if (failure) throw failure
      // A single instance acts at once in `follow`, except at a barrier that it reached while there were others.
      const actsAlone = coordination.members.length <= 1 && coordination.ownsAll && !this.#waits
      if (!coordination.leading || actsAlone) continue
      const { hasOpenBarrier, readAt } = coordination.observed
      const noneIsOpen = !this.#waits && !hasOpenBarrier && performance.now() - readAt < recentMS
      const barrier = noneIsOpen ? null : await barriers.next()
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
      const observed = await this.#reconcile(barrier.touched, ended, true)
      this.#parts.atStep('barrierDone')
      await barriers.done(barrier, observed)
      this.#parts.context.journal?.('barrier led', {
        clusterTime: `${secondsOf(barrier.time)}:${ordinalOf(barrier.time)}`,
        databases: [...barrier.touched.keys()],
        seconds: secondsSince(began),
      })
      coordination.notify()
      await barriers.removePassed(all.map(timeOf).reduce(earlierOf))
    }
  }

  /** Runs concurrently with `leadBarriers`, because the poll waits for events, which may be waiting at a barrier. */
  #startPoll(ended: AbortSignal): void {
    this.#polling ??= this.#pollSilent(ended)
      .catch((error) => {
        if (!(error instanceof StoppedError)) this.#pollFailure = error
      })
      .finally(() => {
        this.#polling = null
      })
  }

  /**
   * The coordinator polls for silent DDL on a source that is sharded or older than 6.0. The other instances reload the
   * catalog when it has changed.
   */
  async #pollSilent(ended: AbortSignal): Promise<void> {
    const now = performance.now()
    if (now - this.#polledAt < silentPollMS) return
    this.#polledAt = now
    const { shared, definitions, coordination, store, context } = this.#parts
    const what = 'reading changes of definitions'
    if (coordination.leading) {
      const { unknown, changed: redefined } = await retry(what, context, () => definitions.silentChanges(false))
      if (unknown.size > 0) await this.#parts.converge(unknown, ended)
      const { databases, resharding } = await retry(what, context, () => definitions.silentlyResharded())
      this.resharding = resharding
      const changed = [...redefined.keys(), ...databases]
      if (changed.length === 0) return
      const clones = await this.#followSilent(changed, databases)
      // This call is outside the barrier, because `converge` waits for the end of event application, which waits for the
      // barrier.
      if (clones.size > 0) await this.#parts.converge(clones, ended)
    } else {
      this.resharding = (await retry(what, context, () => definitions.silentlyResharded())).resharding
      const changes = await store.catalogChanges()
      if (changes !== this.#loadedChanges) await shared.reload()
      this.#loadedChanges = changes
    }
  }

  /** Follows silent DDL as far as possible. Returns the collections that must be converged. */
  async #followSilent(changed: string[], resharded: string[]): Promise<ReadonlyMap<string, string>> {
    const { shared, definitions, coordination } = this.#parts
    // Silent DDL has no cluster time at which a barrier could be set. If several instances apply events, it is followed
    // only at the commit, except for new placements of databases, which need no barrier.
    if (!coordination.ownsAll) {
      let clones: ReadonlyMap<string, string> = new Map()
      await shared.exclusively(async () => {
        clones = await definitions.recordMoved(resharded)
      })
      return clones
    }
    const touched = new Map(changed.map((database) => [database, new Set<string>()]))
    try {
      await this.#parts.events()?.behindBarrier(async () => void (await this.#tryReconcile(touched)))
      return new Map()
    } catch (error) {
      if (!(error instanceof UnfollowedError)) throw error
      return error.collections
    }
  }

  /**
   * Takes over barriers and corrects collection names, once per coordinator term: a predecessor may have crashed after a
   * rename and before it stored the catalog.
   */
  async #takeOver(): Promise<void> {
    const { shared, coordination, barriers } = this.#parts
    const { coordinatorEpoch: term } = coordination
    if (this.#takenOver?.term !== term) {
      this.#takenOver = { term, done: barriers.takeOver().then(() => shared.correctNames()) }
    }
    await this.#takenOver.done
  }
}

function secondsSince(began: number): number {
  return (performance.now() - began) / 1_000
}

function pause(milliseconds: number, signal: AbortSignal): Promise<void> {
  return sleep(milliseconds, undefined, { signal, ref: false }).catch(() => {})
}
