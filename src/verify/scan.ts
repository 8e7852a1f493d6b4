import { setTimeout as sleep } from 'node:timers/promises'
import { listByUuid } from '../definitions/listing.ts'
import { droppedByAnother } from '../definitions/missing-collections.ts'
import type { RangeBounds } from '../documents/read-documents.ts'
import { type Catalog, type CatalogEntry, segmentBytes } from '../domain/catalog.ts'
import { type ClusterTime, laterOf } from '../domain/cluster-time.ts'
import type { InitialCompareMethod } from '../domain/compare-method.ts'
import { StoppedError } from '../domain/errors.ts'
import { idRangesOf } from '../domain/natural-order.ts'
import type { BothClusters } from '../mongo/cluster.ts'
import { renamedTo } from '../mongo/collection-name.ts'
import { code, codeOf, TransientReplyError } from '../mongo/errors.ts'
import type { Metadata } from '../mongo/metadata.ts'
import { type Progressed, type RetryContext, retry } from '../mongo/retry.ts'
import type { VerifiedRange } from '../mongo/verification-store.ts'
import { FallbackLog } from './fallback-log.ts'
import type { OfferedRanges, OfferingScan } from './offered-ranges.ts'
import type { ReadAhead } from './read-ahead.ts'
import { compareRangeOf } from './read-range.ts'

export interface ScanParts {
  clusters: BothClusters
  metadata: Metadata
  context: RetryContext
  catalog: () => Catalog
  /** Reads include all changes up to these times. The streams deliver all later changes. */
  notBefore: { source: ClusterTime; destination: ClusterTime }
  suspect: (entry: CatalogEntry, idElement: Buffer) => void
  /** Resolves when there is capacity to read the next batch and to report its suspects. */
  waitForCapacity: (bytesRead: number) => Promise<void>
  /** Returns how much to read at a time now. */
  readAhead: () => ReadAhead
  compareMethod: InitialCompareMethod
  done: (range: VerifiedRange) => void
  /** Called for each range that this instance has compared itself. */
  compared?: (range: VerifiedRange) => void
  /** Shares the first pass with other instances; null if this instance compares everything itself. */
  offered: OfferedRanges | null
}

interface Range extends RangeBounds {
  entry: CatalogEntry
  ordinal: number
  /** Another instance cannot compare it, so it is not offered again. */
  isDeclined?: boolean
}

/** Approximate number of segments that one read of the metadata loads, estimated from the sizes of the collections. */
const segmentsAtOnce = 1_000
/**
 * If this many consecutive attempts do not find a collection on the destination, another program has dropped it.
 * Attempts are tens of milliseconds apart. A collection that event application dropped leaves the catalog after fewer
 * attempts.
 */
const missesMax = 50
/** Interval of the exchanges with the instances that share the first pass, ms. */
const exchangeMS = 100

/**
 * Compares every collection once, range by range, and tracks finished ranges, so that a restart does not repeat them.
 */
export class Scan {
  readonly #parts: ScanParts
  readonly #done = new Map<string, VerifiedRange[]>()
  /** The number of ranges of each planned collection. */
  readonly #planned = new Map<string, number>()
  /** The number of consecutive reads that did not find a collection on the destination. */
  readonly #misses = new Map<string, number>()
  readonly #fallbacks: FallbackLog
  /** True until everything is compared once or a verdict is requested. Until then, secondaries of the source may be read. */
  #isFirstPass = true

  constructor(parts: ScanParts, done: VerifiedRange[]) {
    this.#parts = parts
    this.#fallbacks = new FallbackLog(parts.context)
    for (const range of done) this.#add(range)
  }

  /** Number of documents in the finished ranges of the collections in the catalog, for each side. */
  get documents(): { source: number; destination: number } {
    const sum = { source: 0, destination: 0 }
    for (const entry of this.#parts.catalog().entries()) {
      for (const range of this.#done.get(entry.uuid) ?? []) {
        sum.source += range.source
        sum.destination += range.destination
      }
    }
    return sum
  }

  get collections(): { scanned: number; total: number } {
    const entries = this.#parts.catalog().entries()
    return { scanned: entries.filter((entry) => this.#isDone(entry)).length, total: entries.length }
  }

  /** Compares the ranges that are not done. Returns true when every collection in the catalog is compared. */
  async run(): Promise<boolean> {
    const ranges: Range[] = []
    const entries = this.#parts.catalog().entries()
    const open = entries.filter((entry) => !this.#isDone(entry) && entry.state === 'copied')
    for (let from = 0, to = 0; from < open.length; from = to) {
      for (let segments = 0; to < open.length && (to === from || segments < segmentsAtOnce); to++) {
        segments += 1 + (open[to] as CatalogEntry).estimatedBytes / segmentBytes
      }
      ranges.push(...(await this.#open(open.slice(from, to))))
    }
    await this.#compareAll(ranges)
    if (this.isComplete) this.#isFirstPass = false
    return this.isComplete
  }

  /** Ends the first pass for a verdict. Returns true when every collection in the catalog is compared. */
  finish(): boolean {
    this.#isFirstPass = false
    return this.isComplete
  }

  /** True when every collection in the catalog is compared. */
  get isComplete(): boolean {
    return this.#parts
      .catalog()
      .entries()
      .every((entry) => this.#isDone(entry))
  }

  #isDone(entry: CatalogEntry): boolean {
    const planned = this.#planned.get(entry.uuid)
    return planned !== undefined && planned === this.#done.get(entry.uuid)?.length
  }

  /** Removes the collections that are no longer in the catalog. Returns their UUIDs. */
  removeDropped(): string[] {
    const catalog = this.#parts.catalog()
    const known = new Set([...this.#done.keys(), ...this.#planned.keys(), ...this.#misses.keys()])
    const gone = [...known].filter((uuid) => catalog.get(uuid) === undefined)
    for (const uuid of gone) for (const map of [this.#done, this.#planned, this.#misses]) map.delete(uuid)
    return gone
  }

  /**
   * Returns the unfinished ranges of these collections. The ranges are the segments of the copy, or one range for a
   * collection without segments. A collection that was copied in natural order has one segment, which stores the bounds
   * of its ranges.
   */
  async #open(entries: CatalogEntry[]): Promise<Range[]> {
    const segments = await this.#parts.metadata.segments.load(entries.map(({ uuid }) => uuid))
    return entries.flatMap((entry) => {
      const bounds: RangeBounds[] = segments.get(entry.uuid)?.flatMap(idRangesOf) ?? [{ from: null, to: null }]
      this.#planned.set(entry.uuid, bounds.length)
      // Ranges of an earlier plan, which had more ranges, do not count.
      const known = (this.#done.get(entry.uuid) ?? []).filter(({ ordinal }) => ordinal < bounds.length)
      this.#done.set(entry.uuid, known)
      const done = new Set(known.map(({ ordinal }) => ordinal))
      return bounds
        .map(({ from, to }, ordinal) => ({ entry, ordinal, from, to }))
        .filter(({ ordinal }) => !done.has(ordinal))
    })
  }

  /**
   * Compares as many ranges at a time as `readAhead` allows, while other instances compare the ranges that they are
   * offered. After a failure, no further range is begun.
   */
  async #compareAll(ranges: Range[]): Promise<void> {
    const { offered, readAhead } = this.#parts
    // A complete scan runs twice a second for days. It must return here, because every call of `AbortSignal.any` below
    // retains memory (src/domain/during-any.ts).
    if (ranges.length === 0 && !offered?.isOpen) return
    const queue = [...ranges]
    const underWay = new Set<Promise<unknown>>()
    const failures: unknown[] = []
    const failed = new AbortController()
    const attempt = async (work: Promise<void>): Promise<void> => {
      try {
        await work
      } catch (error) {
        failures.push(error)
        queue.length = 0
        failed.abort()
      }
    }
    const sharing = this.#sharing(queue)
    const over = new AbortController()
    const stopped = AbortSignal.any([this.#parts.context.signal, failed.signal])
    const ended = AbortSignal.any([stopped, over.signal])
    let exchange: Promise<void> | null = null
    // An exchange that is begun after a stop would end at once, again and again.
    const mayExchange = (): boolean => failures.length === 0 && !ended.aborted
    while (queue.length > 0 || underWay.size > 0 || (offered?.isOpen && mayExchange())) {
      while (queue.length > 0 && underWay.size < readAhead().ranges) {
        const run = attempt(this.#compare(queue.shift() as Range)).finally(() => underWay.delete(run))
        underWay.add(run)
      }
      if (offered && mayExchange()) {
        exchange ??= attempt(this.#exchange(offered, sharing, stopped, ended)).finally(() => {
          exchange = null
        })
      }
      await Promise.race(exchange ? [...underWay, exchange] : underWay)
    }
    over.abort()
    await exchange
    if (failures.length > 0) throw failures[0]
  }

  /**
   * @param stopped ends the exchange
   * @param ended ends only the pause after the exchange: when everything is compared, an exchange that is under way must
   * still remove its offers
   */
  async #exchange(
    offered: OfferedRanges,
    sharing: OfferingScan,
    stopped: AbortSignal,
    ended: AbortSignal,
  ): Promise<void> {
    if (this.#isFirstPass || offered.isOpen) await offered.exchange(sharing, stopped)
    await sleep(exchangeMS, undefined, { signal: ended }).catch(() => {})
  }

  /** The ranges of `queue` as they are offered to other instances. */
  #sharing(queue: Range[]): OfferingScan {
    const { catalog, done, notBefore, clusters } = this.#parts
    return {
      get waiting() {
        return queue.length
      },
      get isIdle() {
        return queue.length === 0
      },
      takeLast: () => {
        const last = queue.at(-1)
        if (!last || last.isDeclined || !last.entry.destinationUUID) return null
        queue.pop()
        const { entry, ordinal, from, to } = last
        const { source } = clusters
        // The instance that takes the range may read it from a secondary. That secondary must have applied all changes
        // that the source has reported to this instance (`openBulkRange`). The other instance may know only earlier ones.
        const known = source.readsSecondaries ? source.latest : 0n
        const sourceTime = laterOf(laterOf(notBefore.source, known), entry.convergedFrom ?? 0n)
        const estimatedBytes = entry.estimatedBytes / (this.#planned.get(entry.uuid) ?? 1)
        const range = { collection: entry.uuid, destination: last.entry.destinationUUID, ordinal, from, to }
        return { ...range, sourceTime, estimatedBytes }
      },
      // The ranges of a collection that was created again on the destination are gone. The next run plans its new ranges.
      accept: ({ collection, destination, ordinal }, { source, destination: onDestination, bytes }) => {
        const entry = catalog().get(collection)
        if (entry?.destinationUUID !== destination) return
        const verified = { collection, ordinal, source, destination: onDestination, bytes }
        if (this.#add(verified)) done(verified)
      },
      giveBack: ({ collection, destination, ordinal, from, to }, isDeclined) => {
        const entry = catalog().get(collection)
        if (entry?.destinationUUID !== destination) return
        const range = { entry, ordinal, from, to, isDeclined }
        if (isDeclined) queue.unshift(range)
        else queue.push(range)
      },
    }
  }

  async #compare(range: Range): Promise<void> {
    const { context, done, compared } = this.#parts
    const { database, name, uuid } = range.entry
    const known = (): boolean => this.#parts.catalog().get(uuid) !== undefined
    await retry(`verifying ${database}.${name}`, context, async (progressed) => {
      if (!known()) return
      try {
        const { documents, bytes } = await this.#read(range, progressed)
        const verified = { collection: uuid, ordinal: range.ordinal, ...documents, bytes }
        if (!this.#add(verified)) return
        done(verified)
        compared?.(verified)
      } catch (error) {
        if (context.signal.aborted) throw new StoppedError()
        const lost = codeOf(error) === code.cappedPositionLost
        if (renamedTo(error) === undefined && !lost) throw error
        // Either the collection was renamed or dropped and that event is not applied yet, or it is capped and the
        // server has deleted the documents at the cursor's position. The next run compares this range.
        await this.#refuseGone(uuid)
      }
    })
  }

  /**
   * Throws FatalError DestinationConflict when a collection stays missing on the destination, because someone else
   * dropped it.
   */
  async #refuseGone(uuid: string): Promise<void> {
    const entry = this.#parts.catalog().get(uuid)
    if (!entry) return
    const { source, destination } = this.#parts.clusters
    const { database, destinationUUID } = entry
    const [wanted, existing] = await Promise.all([
      listByUuid(source, database, [uuid]),
      destinationUUID ? listByUuid(destination, database, [destinationUUID]) : [],
    ])
    // If the source no longer has the collection either, event application will apply its drop event, possibly late.
    const isMissed = wanted.length > 0 && existing.length === 0
    const misses = isMissed ? (this.#misses.get(uuid) ?? 0) + 1 : 0
    this.#misses.set(uuid, misses)
    if (misses < missesMax) return
    throw droppedByAnother(destination, entry, 'verifying')
  }

  async #read({ entry, ordinal: _, ...bounds }: Range, progressed: Progressed) {
    const { clusters, notBefore, suspect, readAhead, compareMethod } = this.#parts
    const waitForCapacity = (bytesRead: number): Promise<void> => {
      // `false`: if the comparison of the range is interrupted, the next attempt starts from the beginning.
      progressed(false)
      return this.#parts.waitForCapacity(bytesRead)
    }
    const current = this.#parts.catalog().get(entry.uuid) ?? entry
    if (!current.destinationUUID) throw new TransientReplyError('a collection is being created')
    // The stream may lack changes from before the collection was last converged.
    const source = laterOf(notBefore.source, current.convergedFrom ?? 0n)
    const parts = {
      clusters,
      notBefore: { source, destination: notBefore.destination },
      mayReadSecondaries: this.#isFirstPass,
      suspect: (idElement: Buffer) => suspect(current, idElement),
      waitForCapacity,
      readAhead,
      compareMethod,
      fallbacks: this.#fallbacks,
    }
    return await compareRangeOf(parts, current, bounds)
  }

  /**
   * Adds a finished range. Returns false if the range was added before. No range may count twice, because a collection is
   * done when its number of finished ranges equals its number of planned ranges.
   */
  #add(range: VerifiedRange): boolean {
    const known = this.#done.get(range.collection)
    if (known?.some(({ ordinal }) => ordinal === range.ordinal)) return false
    if (known) known.push(range)
    else this.#done.set(range.collection, [range])
    return true
  }
}
