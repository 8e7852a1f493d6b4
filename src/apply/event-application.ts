import type { ChangeTimes, Touched } from '../coordination/barriers.ts'
import { unknownKind } from '../definitions/refuse-definitions.ts'
import { idElementOf } from '../documents/identity.ts'
import { type Identities, type ReconcileDependencies, reconcileDocuments } from '../documents/reconcile-documents.ts'
import { type Catalogue, type CatalogueEntry, needsOneLane } from '../domain/catalogue.ts'
import { type ChangeEvent, parseChangeEvent } from '../domain/change-event.ts'
import { type ClusterTime, earlierOf, laterOf } from '../domain/cluster-time.ts'
import { isCapped } from '../domain/definition.ts'
import { FatalError, StoppedError } from '../domain/errors.ts'
import { InTurn } from '../domain/in-turn.ts'
import { laneHash } from '../domain/lane-hash.ts'
import { isUserCollection, namespace } from '../domain/namespace.ts'
import { Watermark } from '../domain/watermark.ts'
import {
  earlierPosition,
  idleAwaitMS,
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
import { Lanes } from './lanes.ts'
import { sameMembers, wholeCollections } from './whole-collections.ts'

const laneCount = 4
const savePositionMS = 500
/** The maximum of remembered UUIDs that are gone on the source, whose late events then need no read of the catalog. */
const goneMax = 10_000

export interface EventApplicationParts {
  source: Cluster
  metadata: Metadata
  catalogue: Catalogue
  documents: Omit<ReconcileDependencies, 'context'>
  context: RetryContext
  /** The partitions whose events are applied here, each with the epoch of its ownership and its start position. */
  partitions: ReadonlyMap<number, OwnedPartition>
  /** The total number of partitions. */
  partitionCount: number
  /**
   * Makes the destination's definitions equal, or waits until the coordinator has done so. Resolves when later events
   * may be applied and the catalogue is up to date. Rejects with StoppedError when `stopped` aborts first. `partitions`
   * are all partitions that are applied here.
   */
  follow: (touched: Touched, times: ChangeTimes, partitions: number[], stopped: AbortSignal) => Promise<void>
  /** Throws FatalError for an event that cannot be followed. */
  refuse: (event: ChangeEvent) => Promise<void>
  /** The databases and collections that are synced. */
  selection: Selection
  /** Gets the batches of the stream as they were read, if the stream has the events of all partitions. */
  sharedStream: SharedStream
  /**
   * Called when the source has returned a batch of the stream, which starts at the earliest position of the partitions.
   */
  onAnswered?: () => void
  /** True when several instances share the events. Each cluster time with DDL events is then a barrier of its own. */
  shared: boolean
  /** Whether the source has a collection with this UUID under a selected name. */
  isOnSource: (database: string, uuid: string) => Promise<boolean>
}

export interface OwnedPartition {
  epoch: number
  start: StreamPosition
}

/**
 * Follows the source's change stream from a stored position and makes the destination equal, until it is drained.
 *
 *   stream ─▶ route ─▶ lanes (identities, folded) ─▶ reconcile documents ─▶ watermark ─▶ stored position
 *                 └──▶ DDL: all lanes drained ─▶ barrier ─▶ definitions reconciled
 */
export class EventApplication {
  readonly #parts: EventApplicationParts
  readonly #watermark = new Watermark<StreamPosition>(laneCount)
  readonly #lanes: Lanes<StreamPosition>
  readonly #stream = new AbortController()
  /** Ends the retries of work in progress after a permanent failure elsewhere. */
  readonly #failed = new AbortController()
  readonly #documents: ReconcileDependencies
  readonly #copyEnds: CopyEnds
  readonly #gone = new Set<string>()
  readonly #gate = new InTurn()
  #ended = false
  #drainTo: ClusterTime | null = null
  /**
   * Makes the server return empty batches quickly, because a commit is about to wait until the stream passes a time.
   */
  pollsFast = false
  #saved: StreamPosition
  #saving: Promise<void> = Promise.resolve()
  #failure: unknown = null
  #applied = 0
  readonly #start: StreamPosition
  /** The collections of which the stream's filter assigns all events to partition 0. */
  readonly #whole: WholeCollection[]
  #publication: Publication | null = null
  /** Where this run ends, because the stream must be opened again with another filter. */
  #resumeAt: StreamPosition | null = null

  constructor(parts: EventApplicationParts) {
    this.#parts = parts
    const starts = [...parts.partitions.values()].map(({ start }) => start)
    this.#start = starts.reduce(earlierPosition)
    this.#saved = this.#start
    this.#whole = wholeCollections(parts.catalogue)
    const signal = AbortSignal.any([parts.context.signal, this.#failed.signal])
    this.#documents = { ...parts.documents, context: { ...parts.context, signal } }
    this.#copyEnds = new CopyEnds({ ...parts, documents: this.#documents })
    this.#lanes = new Lanes(
      laneCount,
      this.#watermark,
      (entry, identities, notBefore) => this.#send(entry, identities, notBefore),
      (error) => this.#fail(error),
      (events) => {
        this.#applied += events
      },
    )
  }

  /** Number of events that this process has applied. Approximate, because one write may cover several changes. */
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
    const saver = setInterval(() => this.#savePosition(), savePositionMS)
    try {
      const context = { ...this.#parts.context, signal: this.#stream.signal }
      const awaitMS = (): number => (this.pollsFast ? shortAwaitMS : idleAwaitMS)
      // The server looks for a resume token's event after filtering, and the token may come from another filter. A
      // start by time avoids this. Events at that time are then read and applied again.
      const start = this.#ownsAll ? this.#start : { kind: 'time' as const, time: this.#start.time }
      const only = this.#ownsAll ? {} : { only: this.#filter }
      await this.#beginAt(start)
      const { sharedStream, selection } = this.#parts
      const content = { awaitMS, selected: selection.events, ...only }
      const isOpenEnded = this.#drainTo === null && !this.#stream.signal.aborted
      if (this.#ownsAll && isOpenEnded) this.#publication = sharedStream.publish(start, selection.events)
      for await (const batch of readChangeStream(this.#parts.source, start, context, content)) {
        this.#parts.onAnswered?.()
        this.#publication?.publish(batch)
        await this.#exclusively(async () => {
          await this.#route(batch)
          this.#watermark.routed(this.#resumeAt ?? batch.position)
          this.#lanes.sendDue()
        })
        await this.#lanes.waitForCapacity()
        if (this.#resumeAt) break
        if (this.#failure || this.#stream.signal.aborted) break
        // Must be later than the time and not equal, because many events of a transaction may share one time.
        if (this.#drainTo !== null && batch.position.time > this.#drainTo) break
      }
    } catch (error) {
      if (!(error instanceof StoppedError)) this.#fail(error)
    } finally {
      clearInterval(saver)
      this.#publication?.end()
    }
    this.#ended = true
    await this.#gate.idle
    await this.#lanes.drain()
    this.#savePosition()
    await this.#saving
    if (this.#failure) throw this.#failure
  }

  /**
   * Stores the start as the position of all partitions. Partitions that were ahead apply their events again, older
   * versions first. If this instance ends in between, the next owner must repeat them, too. From here on, a delayed
   * write of a former owner cannot advance the position.
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
   * Stops once all events up to `time` are applied. Publishes no more from now on: another reader needs what comes after
   * `time`, and opens a stream of its own meanwhile.
   */
  drainTo(time: ClusterTime): void {
    this.#publication?.end()
    this.pollsFast = true
    this.#drainTo = time
  }

  /**
   * Called when every instance has ended the copy of this collection and no insert of the copy is in flight. Reconciles
   * the tombstones of these partitions in order. Afterwards, events alone keep the collection equal.
   */
  async copyEnded(entry: CatalogueEntry): Promise<void> {
    if (entry.state === 'copied') return
    if (!(await this.#copyEnds.isRecorded(entry))) return await this.#copyEnds.mark(entry)
    await this.#exclusively(async () => {
      if (this.#parts.catalogue.get(entry.uuid) !== entry) return
      await this.#lanes.drain()
      await this.#copyEnds.reconcile(entry)
    })
  }

  /**
   * Runs `work` while no write is in flight and no event is routed. Rejects with StoppedError when the run ends first.
   */
  behindBarrier(work: () => Promise<void>): Promise<void> {
    return this.#exclusively(async () => {
      await this.#lanes.drain()
      if (!this.#failure) await work()
    })
  }

  /** Serializes routing a batch, reconciling an ended copy, and work behind a barrier. */
  #exclusively(work: () => Promise<void>): Promise<void> {
    return this.#gate.run(() => {
      if (this.#failure || this.#ended || this.#stream.signal.aborted) throw new StoppedError()
      return work()
    })
  }

  async #route(batch: StreamBatch): Promise<void> {
    let definitions: ChangeEvent[] = []
    let lastDefinition: Buffer | null = null
    const follow = async (): Promise<boolean> => {
      const events = definitions
      definitions = []
      if (events.length > 0) await this.#applyDefinitions(events)
      if (this.#failure || !lastDefinition) return false
      if (this.#ownsAll || sameMembers(this.#whole, wholeCollections(this.#parts.catalogue))) return true
      // The filter changed, so the events after this one must be read again.
      this.#resumeAt = positionOfEvent(lastDefinition)
      return false
    }
    for (const bytes of batch.events) {
      const event = parseChangeEvent(bytes)
      const isDefinition = event.kind === 'definition'
      if (event.kind === 'unknown') throw unknownKind(event)
      if (!isDefinition && (event.kind === 'silent' || !event.idElement)) continue
      const apart = !isDefinition || (this.#parts.shared && event.time !== definitions[0]?.time)
      if (definitions.length > 0 && apart && !(await follow())) return
      if (this.#failure) return
      if (isDefinition) {
        definitions.push(event)
        lastDefinition = bytes
        continue
      }
      if (!event.idElement) continue
      const entry = this.#parts.catalogue.get(event.uuid) ?? (await this.#lookUp(event))
      if (!entry) continue
      const lane = needsOneLane(entry)
        ? 0
        : laneHash(bytes, event.idType, event.idStart, event.idEnd) % this.#lanes.size
      // A replacement may change the spelling of the _id: the event has the old spelling, the document the new one.
      const idElement = event.document ? idElementOf(event.document) : event.idElement
      this.#lanes.put(lane, entry, event, idElement, isCapped(entry.wanted.options))
      if (this.#lanes.full) await this.#lanes.waitForCapacity()
    }
    if (definitions.length > 0) await follow()
  }

  /** The barrier: no writes are in flight while names, options and indexes change. */
  async #applyDefinitions(events: ChangeEvent[]): Promise<void> {
    await this.#lanes.drain()
    if (this.#failure) return
    const touched = new Map<string, Set<string>>()
    for (const event of events) {
      await this.#parts.refuse(event)
      const uuids = touched.get(event.database) ?? new Set()
      touched.set(event.database, uuids)
      if (event.uuid && isUserCollection(event.collection)) uuids.add(event.uuid)
    }
    const all = events.map(({ time }) => time)
    const times = { first: all.reduce(earlierOf), last: all.reduce(laterOf) }
    const stopped = AbortSignal.any([this.#stream.signal, this.#failed.signal])
    await this.#parts.follow(touched, times, [...this.#parts.partitions.keys()], stopped)
    this.#applied += events.length
  }

  /**
   * Handles an event of a collection that is not in the catalogue. The collection was dropped, was renamed out of the
   * filter, or (which should not happen) had no create event.
   */
  async #lookUp(event: ChangeEvent): Promise<CatalogueEntry | undefined> {
    if (this.#gone.has(event.uuid) || !isUserCollection(event.collection)) return undefined
    await this.#lanes.drain()
    if (this.#failure) return undefined
    if (await this.#parts.isOnSource(event.database, event.uuid)) {
      // Its earlier events were not applied, so continuing would silently lose documents.
      throw new FatalError(
        'UnsupportedChange',
        `${namespace(event.database, event.collection)} appeared on the source ` +
          (this.#parts.source.before6
            ? 'while it was synced, and a source older than 6.0 is followed in its documents only. '
            : 'without a create event. ') +
          'Start over with an emptied destination.',
      )
    }
    if (this.#gone.size >= goneMax) this.#gone.clear()
    this.#gone.add(event.uuid)
    return undefined
  }

  async #send(entry: CatalogueEntry, identities: Identities, notBefore: ClusterTime): Promise<void> {
    if (this.#parts.catalogue.get(entry.uuid) !== entry) return
    await reconcileDocuments(this.#documents, entry, identities, notBefore)
  }

  #savePosition(): void {
    const safe = this.#watermark.safe
    if (!safe || safe === this.#saved || this.#failure) return
    this.#saved = safe
    const { metadata, partitions } = this.#parts
    const epochs = new Map([...partitions].map(([partition, { epoch }]) => [partition, epoch]))
    this.#saving = this.#saving.then(() => metadata.savePositions(epochs, safe)).catch((error) => this.#fail(error))
  }

  #fail(error: unknown): void {
    this.#failure ??= error
    this.#failed.abort()
    this.#stream.abort()
  }
}
