import { setTimeout as sleep } from 'node:timers/promises'
import type { Barriers, ChangeTimes, Touched } from '../coordination/barriers.ts'
import type { Coordination } from '../coordination/coordination.ts'
import type { SyncStore } from '../coordination/sync-store.ts'
import type { DefinitionReconciler } from '../definitions/reconcile-definitions.ts'
import { type ClusterTime, earlierOf, ordinalOf, secondsOf } from '../domain/cluster-time.ts'
import { StoppedError } from '../domain/errors.ts'
import type { SeenDatabase } from '../domain/seen-database.ts'
import type { Metadata } from '../mongo/metadata.ts'
import { type RetryContext, retry } from '../mongo/retry.ts'
import type { OwnedPartitions } from './owned-partitions.ts'
import { SeenDefinitions } from './seen-definitions.ts'
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

/** Looks for barriers: seldom while there is none, often while this instance waits at one. */
const barrierPollMS = 250
const atBarrierMS = 40
const keepUpMS = 3_000
/** A barrier of several instances takes longer than a look at the indexes of so many collections. */
const aheadAtBarrier = 32

/**
 * Who follows a change of definitions, and when: the coordinator does it for all, once every partition has come to it.
 */
export class DefinitionFollower {
  readonly #parts: DefinitionFollowerParts
  readonly #seen = new SeenDefinitions()
  /** Partitions that hold up a change of definitions. */
  barrierWaitsFor: number[] = []
  #keptUpAt = 0
  #seenCatalogue = -1
  #keepingUp: Promise<void> | null = null
  #keepUpFailure: unknown = null
  /** The barrier this instance has come to last, with the partitions it had then. */
  #cameTo: ClusterTime | null = null
  /** Events wait at a barrier. */
  #waits = false
  /** The tenure in which this instance has looked where the destination has each collection. */
  #lookedIn: number | null = null

  constructor(parts: DefinitionFollowerParts) {
    this.#parts = parts
  }

  /** What is kept up with beside the barriers; null while that rests. */
  get keepingUp(): Promise<void> | null {
    return this.#keepingUp
  }

  /**
   * Behind the barrier of one instance: alone it acts at once, else it waits for all and for the coordinator. What was
   * followed already, ahead of these events, needs neither; whoever does not know of that, having begun since, waits
   * for the others' positions.
   * @param partitions those whose events have been applied up to here: fewer than are held where some were claimed
   * since
   */
  async follow(touched: Touched, times: ChangeTimes, partitions: number[], stopped: AbortSignal): Promise<void> {
    const { first: time, last } = times
    const { coordination, barriers, partitionCount, shared } = this.#parts
    const isKnown = (uuid: string): boolean => shared.catalogue.get(uuid) !== undefined
    if (this.#cameTo !== time && this.#seen.hasAll(touched, last, isKnown)) return
    const began = performance.now()
    const { journal } = this.#parts.context
    const clusterTime = `${secondsOf(time)}:${ordinalOf(time)}`
    const databases = [...touched.keys()]
    if (partitions.length === partitionCount && coordination.ownsAll && coordination.leading) {
      await this.#lookAnew()
      for (const seen of await this.#reconcile(touched)) this.#seen.add(seen)
      if (this.#cameTo === time) await barriers.settle(time, touched)
      journal?.('definitions followed', { databases, seconds: secondsSince(began) })
      return
    }
    await barriers.reach(time, touched, partitions)
    if (this.#cameTo !== time) journal?.('barrier reached', { clusterTime, databases, partitions })
    this.#cameTo = time
    coordination.notify()
    this.#waits = true
    let seen: SeenDatabase[] | null = null
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
    // Not before: what is not catalogued by then had gone.
    for (const one of seen) this.#seen.add(one)
    journal?.('barrier passed', { clusterTime, seconds: secondsSince(began) })
  }

  async #reconcile(touched: Touched, aheadMax = 0): Promise<SeenDatabase[]> {
    const { shared, definitions, coordination, store } = this.#parts
    const seen: SeenDatabase[] = []
    await shared.exclusively(async () => {
      for (const [database, uuids] of touched) {
        seen.push(await definitions.reconcile(database, uuids, 'copied', aheadMax))
      }
    })
    if (coordination.members.length > 1) await store.catalogueChanged()
    return seen
  }

  /**
   * When all partitions have come to the first barrier that is open, or stand beyond it, definitions are reconciled and
   * everybody goes on.
   */
  async leadBarriers(over: AbortSignal): Promise<void> {
    const { coordination, barriers, metadata, partitionCount } = this.#parts
    while (!over.aborted) {
      await Promise.race([pause(this.#waits ? atBarrierMS : barrierPollMS, over), coordination.changed()])
      this.#keepUpBeside()
      if (this.#keepUpFailure) throw this.#keepUpFailure
      // Alone it acts at once, but for a barrier that it came to before it was.
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
      await this.#lookAnew()
      this.#parts.atStep('barrier')
      const seen = await this.#reconcile(barrier.touched, aheadAtBarrier)
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

  /** Not awaited by who leads barriers: it waits for events that may have come to one. */
  #keepUpBeside(): void {
    this.#keepingUp ??= this.#keepUp()
      .catch((error) => {
        if (!(error instanceof StoppedError)) this.#keepUpFailure = error
      })
      .finally(() => {
        this.#keepingUp = null
      })
  }

  /**
   * What no event tells: to the coordinator, what changes on a sharded source unseen; to the others, what it then did.
   */
  async #keepUp(): Promise<void> {
    const now = performance.now()
    if (now - this.#keptUpAt < keepUpMS) return
    this.#keptUpAt = now
    const { shared, definitions, coordination, store, context } = this.#parts
    if (coordination.leading) {
      const changed = await retry('looking for changes of shard keys', context, () => definitions.silentlyChanged())
      if (changed.length === 0) return
      // It has no time that instances could agree on for a barrier: where several share the events, it is followed at
      // commit.
      if (!coordination.ownsAll) return await shared.exclusively(() => definitions.recordMoved(changed))
      const touched = new Map(changed.map((database) => [database, new Set<string>()]))
      await this.#parts.events()?.behindBarrier(async () => void (await this.#reconcile(touched)))
    } else {
      const catalogue = await store.catalogueChanges()
      if (catalogue !== this.#seenCatalogue) await shared.reload()
      this.#seenCatalogue = catalogue
    }
  }

  /** Once in each tenure: a predecessor in office may have died between the destination and the catalogue. */
  async #lookAnew(): Promise<void> {
    const { shared, coordination, barriers } = this.#parts
    const { coordinatorEpoch } = coordination
    if (this.#lookedIn === coordinatorEpoch) return
    this.#lookedIn = coordinatorEpoch
    await barriers.takeOver()
    await shared.lookAnew()
  }
}

function secondsSince(began: number): number {
  return (performance.now() - began) / 1_000
}

function pause(milliseconds: number, signal: AbortSignal): Promise<void> {
  return sleep(milliseconds, undefined, { signal, ref: false }).catch(() => {})
}
