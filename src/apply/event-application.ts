import { type Catalogue, type CatalogueEntry, needsOneLane, waitsForCopy } from '../domain/catalogue.ts'
import { type ChangeEvent, parseChangeEvent } from '../domain/change-event.ts'
import type { ClusterTime } from '../domain/cluster-time.ts'
import { isCapped } from '../domain/definition.ts'
import { FatalError, StoppedError } from '../domain/errors.ts'
import { laneHash } from '../domain/lane-hash.ts'
import { isUserCollection, namespace } from '../domain/namespace.ts'
import { Watermark } from '../domain/watermark.ts'
import {
  hurriedAwaitMS,
  idleAwaitMS,
  readChangeStream,
  type StreamBatch,
  type StreamPosition,
} from '../mongo/change-stream.ts'
import type { Cluster } from '../mongo/cluster.ts'
import type { Metadata } from '../mongo/metadata.ts'
import type { RetryContext } from '../mongo/retry.ts'
import { idElementOf, identityKey, unread } from './identity.ts'
import { Lanes } from './lanes.ts'
import { type DefinitionReconciler, unsupportedConversion } from './reconcile-definitions.ts'
import { type Identities, type ReconcileDependencies, reconcileDocuments } from './reconcile-documents.ts'

const laneCount = 4
const savePositionMS = 500
const tombstonesAtOnce = 500
/** UUIDs known to be gone on the source, so that their late events cost no look at the catalogue. */
const goneMax = 10_000

export interface EventApplicationParts {
  source: Cluster
  metadata: Metadata
  catalogue: Catalogue
  definitions: DefinitionReconciler
  documents: Omit<ReconcileDependencies, 'context'>
  context: RetryContext
  partition: number
  epoch: number
  start: StreamPosition
  /** For fault tests: a namespace whose document events are lost, as a bug of ours might lose them. */
  dropEventsOf: string | null
}

/**
 * Follows the source's change stream and makes the destination equal, from a stored position until told to drain.
 *
 *   stream ─▶ route ─▶ lanes (identities, folded) ─▶ reconcile documents ─▶ watermark ─▶ stored position
 *                 └──▶ DDL: all lanes drained ─▶ reconcile definitions
 */
export class EventApplication {
  readonly #parts: EventApplicationParts
  readonly #watermark = new Watermark<StreamPosition>(laneCount)
  readonly #lanes: Lanes<StreamPosition>
  readonly #stream = new AbortController()
  /** Ends the retries of what is under way when something else has failed for good. */
  readonly #failed = new AbortController()
  readonly #documents: ReconcileDependencies
  readonly #gone = new Set<string>()
  #gate: Promise<void> = Promise.resolve()
  #ended = false
  #drainTo: ClusterTime | null = null
  #saved: StreamPosition
  #saving: Promise<void> = Promise.resolve()
  #failure: unknown = null
  #applied = 0

  constructor(parts: EventApplicationParts) {
    this.#parts = parts
    this.#saved = parts.start
    const signal = AbortSignal.any([parts.context.signal, this.#failed.signal])
    this.#documents = { ...parts.documents, context: { ...parts.context, signal } }
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

  /** Events applied by this process: approximate, as several changes of one document may be one write. */
  get totalEventsApplied(): number {
    return this.#applied
  }

  /** Everything up to this time is on the destination's majority. */
  get appliedTime(): ClusterTime {
    return (this.#watermark.safe ?? this.#parts.start).time
  }

  /** Resolves when drained, everything read so far applied and its position stored; rejects on a failure. */
  async run(): Promise<void> {
    const saver = setInterval(() => this.#savePosition(), savePositionMS)
    try {
      const context = { ...this.#parts.context, signal: this.#stream.signal }
      const awaitMS = (): number => (this.#drainTo === null ? idleAwaitMS : hurriedAwaitMS)
      for await (const batch of readChangeStream(this.#parts.source, this.#parts.start, context, { awaitMS })) {
        await this.#exclusively(async () => {
          await this.#route(batch)
          this.#watermark.routed(batch.position)
          this.#lanes.kick()
        })
        await this.#lanes.room()
        if (this.#failure || this.#stream.signal.aborted) break
        // Beyond it, not at it: one time may be shared by many events of a transaction.
        if (this.#drainTo !== null && batch.position.time > this.#drainTo) break
      }
    } catch (error) {
      if (!(error instanceof StoppedError)) this.#fail(error)
    } finally {
      clearInterval(saver)
    }
    this.#ended = true
    await this.#gate
    await this.#lanes.drain()
    this.#savePosition()
    await this.#saving
    if (this.#failure) throw this.#failure
  }

  /** Stop reading; what was read is still applied. */
  drain(): void {
    this.#stream.abort()
  }

  /** Stop once everything up to `time` is applied. */
  drainTo(time: ClusterTime): void {
    this.#drainTo = time
  }

  /**
   * The copy of this collection has ended: no insert of it is on its way any more. Identities recorded meanwhile are
   * reconciled once more, in order; then events alone keep the collection equal.
   */
  async copyEnded(entry: CatalogueEntry): Promise<void> {
    if (!entry.hasTombstones && !waitsForCopy(entry)) return await this.#markCopied(entry)
    await this.#exclusively(() => this.#reconcileTombstones(entry))
  }

  /** One at a time: a batch is routed, or a copy that has ended is reconciled. */
  #exclusively(work: () => Promise<void>): Promise<void> {
    const run = this.#gate.then(() => {
      if (this.#failure || this.#ended || this.#stream.signal.aborted) throw new StoppedError()
      return work()
    })
    this.#gate = run.catch(() => {})
    return run
  }

  async #reconcileTombstones(entry: CatalogueEntry): Promise<void> {
    if (this.#parts.catalogue.get(entry.uuid) !== entry) return
    await this.#lanes.drain()
    const { metadata, source } = this.#parts
    // From here on its identities are applied, not recorded.
    const deferred = { ...entry, state: 'copied' as const }
    let after = -1
    for (;;) {
      const tombstones = await metadata.readTombstones(entry.uuid, after, tombstonesAtOnce)
      const last = tombstones.at(-1)
      if (!last) break
      const identities: Identities = new Map()
      for (const { idElement } of tombstones) identities.set(identityKey(idElement), unread(idElement))
      await reconcileDocuments(this.#documents, deferred, identities, source.latest)
      after = last.order
    }
    await this.#markCopied(entry)
    await metadata.removeTombstones(entry.uuid)
  }

  async #markCopied(entry: CatalogueEntry): Promise<void> {
    if (this.#parts.catalogue.get(entry.uuid) !== entry) return
    entry.state = 'copied'
    await this.#parts.metadata.saveCollection(entry)
  }

  async #route(batch: StreamBatch): Promise<void> {
    let definitions: ChangeEvent[] = []
    for (const bytes of batch.events) {
      const event = parseChangeEvent(bytes)
      if (event.kind === 'definition') {
        definitions.push(event)
        continue
      }
      if (event.kind === 'other' || !event.idElement) continue
      if (this.#isDropped(event)) continue
      if (definitions.length > 0) {
        await this.#applyDefinitions(definitions)
        definitions = []
      }
      if (this.#failure) return
      const entry = this.#parts.catalogue.get(event.uuid) ?? (await this.#lookUp(event))
      if (!entry) continue
      const lane = needsOneLane(entry)
        ? 0
        : laneHash(bytes, event.idType, event.idStart, event.idEnd) % this.#lanes.size
      // A replacement may spell the _id anew: the event is keyed by the old spelling, the document has the new one.
      const idElement = event.document ? idElementOf(event.document) : event.idElement
      this.#lanes.put(lane, entry, event, idElement, isCapped(entry.wanted.options))
      if (this.#lanes.full) await this.#lanes.room()
    }
    if (definitions.length > 0) await this.#applyDefinitions(definitions)
  }

  #isDropped({ database, collection }: ChangeEvent): boolean {
    const { dropEventsOf } = this.#parts
    return dropEventsOf !== null && dropEventsOf === namespace(database, collection)
  }

  /** The barrier: nothing is on its way while names, options and indexes change. */
  async #applyDefinitions(events: ChangeEvent[]): Promise<void> {
    await this.#lanes.drain()
    if (this.#failure) return
    const touched = new Map<string, Set<string>>()
    for (const event of events) {
      if (event.operationType === 'create' && /^tmp.{5}\.convertToCapped\./.test(event.collection)) {
        throw unsupportedConversion(event.database, event.collection)
      }
      const uuids = touched.get(event.database) ?? new Set()
      touched.set(event.database, uuids)
      if (event.uuid && isUserCollection(event.collection)) uuids.add(event.uuid)
    }
    for (const [database, uuids] of touched) await this.#parts.definitions.reconcile(database, uuids, 'copied')
    this.#applied += events.length
  }

  /** An event of a collection that is not catalogued: gone by now, or (it should not happen) never announced. */
  async #lookUp(event: ChangeEvent): Promise<CatalogueEntry | undefined> {
    if (this.#gone.has(event.uuid) || !isUserCollection(event.collection)) return undefined
    await this.#lanes.drain()
    if (this.#failure) return undefined
    await this.#parts.definitions.reconcile(event.database, new Set(), 'copied')
    if (this.#parts.catalogue.get(event.uuid)) {
      // Its earlier documents went past unseen: going on would lose them silently.
      throw new FatalError(
        'UnsupportedChange',
        `${namespace(event.database, event.collection)} appeared on the source without a create event. ` +
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
    const { metadata, partition, epoch } = this.#parts
    this.#saving = this.#saving
      .then(() => metadata.savePosition(partition, epoch, safe))
      .catch((error) => this.#fail(error))
  }

  #fail(error: unknown): void {
    this.#failure ??= error
    this.#failed.abort()
    this.#stream.abort()
  }
}
