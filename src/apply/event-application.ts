import pLimit from 'p-limit'
import type { ChangeTimes, Touched } from '../coordination/barriers.ts'
import { unknownKind } from '../definitions/refuse-definitions.ts'
import { idElementOf } from '../documents/identity.ts'
import { type Identities, reconcileDocuments } from '../documents/reconcile-documents.ts'
import type { ReconcileDependencies } from '../documents/reconcile-steps.ts'
import { type Catalog, type CatalogEntry, needsOneLane } from '../domain/catalog.ts'
import { type ChangeEvent, parseChangeEvent } from '../domain/change-event.ts'
import { type ClusterTime, earlierOf, laterOf } from '../domain/cluster-time.ts'
import { isCapped } from '../domain/definition.ts'
import { StoppedError } from '../domain/errors.ts'
import { laneHash } from '../domain/lane-hash.ts'
import { isUserCollection } from '../domain/namespace.ts'
import { Watermark } from '../domain/watermark.ts'
import {
  earlierPosition,
  idleAwaitMS,
  isSamePosition,
  type PartitionedEvents,
  positionOfEvent,
  readChangeStream,
  type StreamBatch,
  type StreamPosition,
  shortAwaitMS,
  type WholeCollection,
} from '../mongo/change-stream.ts'
import type { Cluster } from '../mongo/cluster.ts'
import type { Metadata } from '../mongo/metadata.ts'
import type { RetryContext } from '../mongo/retry.ts'
import type { Selection } from '../mongo/selection.ts'
import type { Publication, SharedStream } from '../mongo/shared-stream.ts'
import { CopyEnds } from './copy-ends.ts'
import { createdAgain, droppedBy } from './created-again.ts'
import { currentName, touchedBy } from './definition-events.ts'
import { Lanes } from './lanes.ts'
import { unlessOlder } from './older-than-convergence.ts'
import { sameMembers, wholeCollections } from './whole-collections.ts'

const laneCount = 4
const savePositionMS = 500
/**
 * Maximum number of dropped collections whose UUIDs are remembered, so that their remaining events need no catalog
 * read.
 */
const goneMax = 10_000

export interface EventApplicationParts {
  source: Cluster
  metadata: Metadata
  catalog: Catalog
  documents: Omit<ReconcileDependencies, 'context'>
  context: RetryContext
  /** The partitions whose events are applied here, each with the epoch of its ownership and its start position. */
  partitions: ReadonlyMap<number, OwnedPartition>
  /** The total number of partitions. */
  partitionCount: number
  /**
   * Makes the destination's definitions equal, or waits until the coordinator has done so. Resolves when later events
   * may be applied and the catalog is up to date. Rejects with StoppedError when `stopped` aborts first. `partitions`
   * are all partitions that are applied here.
   */
  follow: (touched: Touched, times: ChangeTimes, partitions: number[], stopped: AbortSignal) => Promise<void>
  /** Returns the UUIDs of collections of which, as this DDL event shows, the stream lacks events of some documents. */
  incompleteAfter: (event: ChangeEvent) => Promise<string[]>
  /**
   * Requests that these collections are converged, because the stream lacks events for some of their documents. Rejects
   * with StoppedError once this application is stopped for the convergence. The event that led to the request is not
   * applied, and no stored position is after it. It is therefore read again after the convergence is planned.
   * @param collections by UUID, each with its namespace for messages to the operator
   */
  converge: (collections: ReadonlyMap<string, string>, stopped: AbortSignal) => Promise<never>
  /** The databases and collections that are synced. */
  selection: Selection
  /** Receives the batches of the stream as they were read, if the stream has the events of all partitions. */
  sharedStream: SharedStream
  /**
   * Called for each batch that the source has returned. The stream starts at the earliest position of the partitions. On
   * a sharded source, batches at the start are ignored.
   */
  onAnswered?: () => void
  /** True when several instances share the events. Each cluster time with DDL events then has its own barrier. */
  shared: boolean
  /** Resolves with true if the source has a collection with this UUID under a selected name. */
  isOnSource: (database: string, uuid: string) => Promise<boolean>
}

export interface OwnedPartition {
  epoch: number
  start: StreamPosition
}

/**
 * Reads the source's change stream from a stored position and applies its events, until `drain` or after `drainTo`.
 *
 *   stream ─▶ route ─▶ lanes (identities, folded) ─▶ reconcile documents ─▶ watermark ─▶ stored position
 *                 └──▶ DDL: all lanes drained ─▶ barrier ─▶ definitions reconciled
 *
 * An event may show that a collection has documents for which the stream has no events (`incompleteAfter`, `#lookUp`).
 * Its convergence is requested before the event is applied. A convergence begins when no instance applies changes, and
 * its start time is later than the event. All partitions receive each DDL event, so none of them passes the event
 * before the convergence begins. Changes of the collection up to the start time are part of what the convergence reads.
 * Later changes have events, which are applied under the rules of a copy.
 */
export class EventApplication {
  readonly #parts: EventApplicationParts
  readonly #watermark = new Watermark<StreamPosition>(laneCount)
  readonly #lanes: Lanes<StreamPosition>
  readonly #stream = new AbortController()
  readonly #failed = new AbortController() // ends retries after a permanent failure elsewhere
  readonly #documents: ReconcileDependencies
  readonly #copyEnds: CopyEnds
  readonly #gone = new Set<string>()
  readonly #gate = pLimit(1)
  #ended = false
  #drainTo: ClusterTime | null = null
  /**
   * Makes the server return empty batches quickly, because a commit is about to wait until the stream passes a time.
   */
  pollsFast = false
  #saved: StreamPosition
  #saving: Promise<void> = Promise.resolve()
  #isSaving = false
  #failure: unknown = null
  #applied = 0
  readonly #start: StreamPosition
  /** The collections whose events the stream's filter assigns to partition 0. */
  readonly #whole: WholeCollection[]
  #publication: Publication | null = null
  /** The position at which this run ends, because the stream must be opened again with another filter. */
  #resumeAt: StreamPosition | null = null

  constructor(parts: EventApplicationParts) {
    this.#parts = parts
    const starts = [...parts.partitions.values()].map(({ start }) => start)
    this.#start = starts.reduce(earlierPosition)
    this.#saved = this.#start
    this.#whole = wholeCollections(parts.catalog)
    const signal = AbortSignal.any([parts.context.signal, this.#failed.signal])
    this.#documents = { ...parts.documents, context: { ...parts.context, signal } }
    this.#copyEnds = new CopyEnds({ ...parts, documents: this.#documents })
    this.#lanes = new Lanes(
      laneCount,
      this.#watermark,
      (entry, identities, notBefore) => this.#send(entry, identities, notBefore),
      (error) => this.#fail(error),
      (events, lane, ms) => {
        this.#applied += events
        parts.context.meter?.flushed(lane, ms)
      },
    )
    parts.context.meter?.watch(this.#lanes)
  }

  /** Number of events that this run has applied. Approximate, because one write may cover several changes. */
  get totalEventsApplied(): number {
    return this.#applied
  }

  /** All events up to this time are majority-committed on the destination. */
  get appliedTime(): ClusterTime {
    return (this.#watermark.safe ?? this.#start).time
  }

  get #ownsAll(): boolean {
    return this.#parts.partitions.size === this.#parts.partitionCount
  }

  /** Resolves when drained: all events read are applied and the position is stored. Rejects on a failure. */
  async run(): Promise<void> {
    // On a distant cluster, a write may take longer than the interval. Later writes must not queue up behind it.
    const saver = setInterval(() => {
      if (!this.#isSaving) this.#savePosition()
    }, savePositionMS)
    let beginning = Promise.resolve()
    let failure: unknown = null
    try {
      const context = { ...this.#parts.context, signal: this.#stream.signal }
      const awaitMS = (): number => (this.pollsFast ? shortAwaitMS : idleAwaitMS)
      // The server looks for the event of a resume token in the filtered stream, where it may be missing, because the token
      // may come from a stream with another filter. A start by time needs no such event; it reads that time again.
      const start = this.#ownsAll ? this.#start : { kind: 'time' as const, time: this.#start.time }
      const only = this.#ownsAll ? {} : { only: this.#filter }
      beginning = this.#beginAt(start)
      beginning.catch(() => this.#stream.abort())
      const { sharedStream, selection } = this.#parts
      const content = { awaitMS, selected: selection.events, ...only }
      const isOpenEnded = this.#drainTo === null && !this.#stream.signal.aborted
      if (this.#ownsAll && isOpenEnded) this.#publication = sharedStream.publish(start, selection.events)
      for await (const batch of readChangeStream(this.#parts.source, start, context, content)) {
        await beginning // the stream is opened while its start is stored
        // A router's first reply may be empty, before any shard has read its oplog (src/mongo/reaches-back.ts).
        if (!this.#parts.source.sharded || batch.position.time > start.time) this.#parts.onAnswered?.()
        this.#publication?.publish(batch)
        context.meter?.read(batch.events)
        await this.#exclusively(async () => {
          await this.#route(batch)
          this.#watermark.routed(this.#resumeAt ?? batch.position)
          this.#lanes.sendDue()
        })
        await this.#lanes.waitForCapacity()
        if (this.#resumeAt) break
        if (this.#failure || this.#stream.signal.aborted) break
        // The position must be later than the time, because many events of a transaction may share one time.
        if (this.#drainTo !== null && batch.position.time > this.#drainTo) break
      }
    } catch (error) {
      failure = error
    } finally {
      clearInterval(saver)
      this.#publication?.end()
    }
    // If the start could not be stored, for example because the lease is lost, that is the cause.
    await beginning.catch((error) => {
      failure = error
    })
    if (failure !== null && !(failure instanceof StoppedError)) this.#fail(failure)
    this.#ended = true
    await this.#gate(() => {}) // work that was already waiting for the gate has ended
    await this.#lanes.drain()
    this.#savePosition()
    await this.#saving
    await this.#copyEnds.close()
    if (this.#failure) throw this.#failure
  }

  /**
   * Stores the start as the position of all owned partitions. A partition that was ahead applies its events again, which
   * may write older versions of documents before newer ones. If this instance ends in between, the next owner must
   * therefore apply these events again, too. From here on, a delayed write of a former owner cannot advance the position.
   */
  async #beginAt(start: StreamPosition): Promise<void> {
    const { metadata, partitions } = this.#parts
    const epochs = new Map([...partitions].map(([partition, { epoch }]) => [partition, epoch]))
    await metadata.savePositions(epochs, start)
  }

  get #filter(): PartitionedEvents {
    return { partitions: [...this.#parts.partitions.keys()], count: this.#parts.partitionCount, whole: this.#whole }
  }

  /** Stops reading. Events already read are still applied. */
  drain(): void {
    this.#publication?.end()
    this.#stream.abort()
  }

  /**
   * Stops once all events up to `time` are applied. Ends the publication now, because another reader needs the events
   * after `time` and opens its own stream meanwhile.
   */
  drainTo(time: ClusterTime): void {
    this.#publication?.end()
    this.pollsFast = true
    this.#drainTo = time
  }

  /**
   * Called when all segments of this collection are copied and no insert of the copy is in flight. Reconciles the
   * tombstones of the partitions that are applied here, in order. Afterwards, events alone keep the collection equal.
   * Resolves when the tombstones are removed, which may take minutes. Events are applied meanwhile.
   */
  async copyEnded(entry: CatalogEntry): Promise<void> {
    await this.#copyEnds.end(entry, (work) => this.behindBarrier(work))
  }

  /**
   * Runs `work` while no write is in flight and no event is routed. Rejects with StoppedError when the run ends first.
   * Resolves without running `work` if one of the awaited writes fails.
   */
  behindBarrier(work: () => Promise<void>): Promise<void> {
    return this.#exclusively(async () => {
      await this.#lanes.drain()
      if (!this.#failure) await work()
    })
  }

  /** Serializes routing a batch, reconciling an ended copy, and work behind a barrier. */
  #exclusively(work: () => Promise<void>): Promise<void> {
    return this.#gate(() => {
      if (this.#failure || this.#ended || this.#stream.signal.aborted) throw new StoppedError()
      return work()
    })
  }

  async #route(batch: StreamBatch): Promise<void> {
    let definitions: ChangeEvent[] = []
    let lastDefinition: Buffer | null = null
    /** Follows the collected definition events. Resolves to false when no further event of this batch may be routed. */
    const followCollected = async (): Promise<boolean> => {
      const events = definitions
      definitions = []
      if (events.length > 0) await this.#applyDefinitions(events)
      if (this.#failure || !lastDefinition) return false
      if (this.#ownsAll || sameMembers(this.#whole, wholeCollections(this.#parts.catalog))) return true
      // The filter changed, so the events after this one must be read again.
      this.#resumeAt = positionOfEvent(lastDefinition)
      return false
    }
    for (const bytes of batch.events) {
      const event = parseChangeEvent(bytes)
      const isDefinition = event.kind === 'definition'
      if (event.kind === 'unknown') throw unknownKind(event)
      if (!isDefinition && (event.kind === 'silent' || !event.idElement)) continue
      const endsGroup = !isDefinition || (this.#parts.shared && event.time !== definitions[0]?.time)
      if (definitions.length > 0 && endsGroup && !(await followCollected())) return
      if (this.#failure) return
      if (isDefinition) {
        definitions.push(event)
        lastDefinition = bytes
        continue
      }
      if (!event.idElement) continue
      const entry = this.#parts.catalog.get(event.uuid) ?? (await this.#lookUp(event))
      if (!entry) continue
      const lane = needsOneLane(entry)
        ? 0
        : laneHash(bytes, event.idType, event.idStart, event.idEnd) % this.#lanes.size
      // A replacement may change the encoding of the _id, for example 1 to 1.0. The document key has the old encoding.
      const idElement = event.document ? idElementOf(event.document) : event.idElement
      this.#lanes.put(lane, entry, unlessOlder(event, entry), idElement, isCapped(entry.wanted.options))
      if (this.#lanes.full) await this.#lanes.waitForCapacity()
    }
    if (definitions.length > 0) await followCollected()
  }

  /** Follows definition events behind a barrier: no write is in flight while names, options and indexes change. */
  async #applyDefinitions(events: ChangeEvent[]): Promise<void> {
    await this.#lanes.drain()
    if (this.#failure) return
    const incomplete = new Map<string, string>()
    for (const event of events) {
      for (const uuid of await this.#parts.incompleteAfter(event)) incomplete.set(uuid, currentName(event))
    }
    if (incomplete.size > 0) await this.#parts.converge(incomplete, this.#stopped)
    const { source, catalog, partitions } = this.#parts
    const all = events.map(({ time }) => time)
    const times = { first: all.reduce(earlierOf), last: all.reduce(laterOf) }
    // Only applyOps can create a dropped collection again with its UUID, and a router does not accept applyOps.
    const dropped = source.sharded ? [] : droppedBy(events, catalog, source.before6)
    await this.#parts.follow(touchedBy(events), times, [...partitions.keys()], this.#stopped)
    const again = createdAgain(dropped, catalog)
    if (again.size > 0) await this.#parts.converge(again, this.#stopped)
    this.#applied += events.length
    const { meter } = this.#parts.context
    if (meter) meter.definitionEvents += events.length
  }

  get #stopped(): AbortSignal {
    return AbortSignal.any([this.#stream.signal, this.#failed.signal])
  }

  /**
   * Handles an event of a collection that is not in the catalog. Usually the collection was dropped or was renamed out of
   * the selection. If the source still has it under a selected name, its earlier events were skipped or do not exist.
   * Either tandem read the catalog while the collection had an excluded name, and the source renamed it back later, or
   * the stream has no create event for it.
   */
  async #lookUp(event: ChangeEvent): Promise<CatalogEntry | undefined> {
    if (this.#gone.has(event.uuid) || !isUserCollection(event.collection)) return undefined
    await this.#lanes.drain()
    if (this.#failure) return undefined
    if (await this.#parts.isOnSource(event.database, event.uuid)) {
      // Its earlier events were not applied, so continuing would silently lose documents.
      await this.#parts.converge(new Map([[event.uuid, currentName(event)]]), this.#stopped)
    }
    if (this.#gone.size >= goneMax) this.#gone.clear()
    this.#gone.add(event.uuid)
    return undefined
  }

  async #send(entry: CatalogEntry, identities: Identities, notBefore: ClusterTime): Promise<void> {
    if (this.#parts.catalog.get(entry.uuid) !== entry) return
    await reconcileDocuments(this.#documents, entry, identities, notBefore)
  }

  #savePosition(): void {
    const safe = this.#watermark.safe
    if (!safe || safe === this.#saved || this.#failure) return
    const { metadata, partitions, context } = this.#parts
    context.meter?.progressed()
    // The batches of an idle stream have the same position until the source writes its next no-op.
    const isStored = isSamePosition(safe, this.#saved)
    this.#saved = safe
    if (isStored) return
    const epochs = new Map([...partitions].map(([partition, { epoch }]) => [partition, epoch]))
    this.#isSaving = true
    this.#saving = this.#saving
      .then(() => metadata.savePositions(epochs, safe))
      .catch((error) => this.#fail(error))
      .finally(() => {
        this.#isSaving = false
      })
  }

  #fail(error: unknown): void {
    this.#failure ??= error
    this.#failed.abort()
    this.#stream.abort()
  }
}
