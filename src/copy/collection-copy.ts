import { setTimeout as sleep } from 'node:timers/promises'
import type { Coordination } from '../coordination/coordination.ts'
import type { Catalog, CatalogEntry, Segment } from '../domain/catalog.ts'
import { deferred } from '../domain/deferred.ts'
import { assert, isStop, StoppedError } from '../domain/errors.ts'
import { both, inParallel } from '../domain/in-parallel.ts'
import { TrackedWork } from '../domain/tracked-work.ts'
import { retry } from '../mongo/retry.ts'
import type { RoundTrips } from '../throttle/in-flight.ts'
import { convergeSegment } from './converge-segment.ts'
import type { CopyOrder } from './copy-order.ts'
import { type CopySegmentParts, copySegment } from './copy-segment.ts'
import { planCopy } from './plan-copy.ts'
import { SegmentProgress } from './segment-progress.ts'

/** Number of collections whose size is read in parallel. Over distance, each read takes a round trip. */
const plansAtOnce = 16
/** The pause after a background read of the unfinished segments, as a multiple of the duration of that read. */
const pauseFactor = 9
/** Upper limit of that pause. A read that was blocked takes long, although it costs the server little. */
const pauseMaxMS = 2_000
/**
 * Segments per claim, for a single instance and for one of several. Each claim costs a few round trips, but other
 * instances cannot copy claimed segments.
 */
const claimedAlone = 64
const claimedShared = 2
/** Other instances may claim the same segments at the same time; the next attempt tries other segments. */
const claimAttempts = 2

type CopyPhase = 'Starting initializing partitions phase' | 'Starting collection copy phase'

export interface CollectionCopyParts extends Omit<CopySegmentParts, 'isKnown' | 'progress' | 'progressed'> {
  catalog: Catalog
  order: Pick<CopyOrder, 'decide'>
  coordination: Coordination
  /** Reloads the catalog that the coordinator has stored. */
  reload: () => Promise<void>
  /** The term of this instance as coordinator in which the catalog was loaded; null if it did not coordinate then. */
  loadedInTerm: number | null
  /** Reads from the stored progress how many bytes this instance has copied. */
  loadCopiedBytes: () => Promise<void>
  /** The number of partitions of the sync. A collection is copied when all partitions have ended its copy. */
  partitionCount: number
  /** Called when all segments of a collection are stored as done, whichever instances copied them. */
  copyEnded: (entry: CatalogEntry) => Promise<void>
}

/**
 * Performs this instance's share of the collection copy. machines/collection-copy.ts decides when each step runs. The
 * coordinator splits collections into segments, largest collection first. Every instance claims a few segments at a
 * time and copies them, so the fastest instance copies the most. Segments of an expired instance are claimed again.
 */
export class CollectionCopy {
  readonly #parts: CollectionCopyParts
  readonly #stop = new AbortController()
  readonly #signal: AbortSignal
  readonly #progress: SegmentProgress
  /** Collections for which `copyEnded` was called, by UUID. Each promise resolves when that call has ended. */
  readonly #ends = new Map<string, Promise<void>>()
  readonly #work: TrackedWork
  readonly #over = deferred<void>()
  #beganAt: number | null = null
  /** Phases that are already logged. A phase is logged once, even if a collection is created later. */
  readonly #loggedPhases = new Set<CopyPhase>()
  #closing: Promise<unknown> | null = null
  /** The number of the last claim. It is higher than those of an earlier CollectionCopy in the same lease term. */
  #claimNumber: number
  /** Claimed segments whose copy has not begun. */
  readonly #claimed = new Map<string, Segment>()
  /** Segments that this instance has claimed when it opened their plan, and that `claim` has not returned yet. */
  #claimedOnOpening: Segment[] = []
  /** The background reads that find collections whose copy has ended; null while none runs. */
  #background: Promise<void> | null = null
  /** True if another background read is due, because a segment ended after the last one began. */
  #readsAgain = false
  #backgroundPause = new AbortController()
  #endFailure: unknown = null
  /** The coordinator term in which this instance last ran `#openPlanned`. */
  #openedInTerm: number | null = null
  /** The coordinator term in which this instance last ran `#reloadInTerm`. */
  #reloadedInTerm: number | null = null

  constructor(parts: CollectionCopyParts) {
    this.#parts = parts
    this.#reloadedInTerm = parts.loadedInTerm
    this.#claimNumber = parts.coordination.segmentClaims.next(Date.now())
    this.#signal = AbortSignal.any([parts.context.signal, this.#stop.signal])
    this.#work = new TrackedWork(this.#signal)
    this.#progress = new SegmentProgress(parts.metadata.segments, parts.coordination.token)
  }

  /** Resolves when `close` has finished. */
  get over(): Promise<void> {
    return this.#over.promise
  }

  /** Releases the segments that this instance claimed before a pause, if the lease term is still the same. */
  begin(roundTrips: RoundTrips): Promise<void> {
    const { throttle, destination, metadata, coordination } = this.#parts
    throttle.watch(destination, roundTrips)
    this.#beganAt = performance.now()
    return this.#work.run(async () => {
      // Each claim takes a number, so an instance that has taken none in this lease term has claimed nothing.
      const { segmentClaims, token } = coordination
      if (segmentClaims.hasClaimed(token)) await metadata.segments.release(token, this.#claimNumber)
    })
  }

  /**
   * Resolves with true when every collection is copied (or dropped). Decides by the stored state, because this instance
   * may end its part of a collection before the others.
   */
  survey(): Promise<boolean> {
    const { catalog, metadata, reload, partitionCount, coordination } = this.#parts
    return this.#work.run(async () => {
      // Only the coordinator plans, so a collection that is not planned in its catalog is not copied.
      const isCurrent = coordination.leading && this.#reloadedInTerm === coordination.coordinatorEpoch
      if (isCurrent && catalog.entries().some(isUnplanned)) return false
      const isCopied = (): boolean => catalog.entries().every((entry) => entry.state === 'copied')
      // The bytes of a collection are known once every instance has ended its copy, which a single instance finds out by
      // itself. Then the two reads take one round trip. Otherwise the catalog is read after the list, because it has the
      // bytes of the copies that others have ended until then.
      const knowsBytes = isCopied() && catalog.entries().every(({ totalCopied }) => totalCopied !== null)
      const [copying] = await both(
        metadata.collections.copying(partitionCount, this.#signal),
        knowsBytes ? reload() : this.#reloadInTerm(),
      )
      if (copying.length > 0) return false
      if (!knowsBytes) await reload()
      return isCopied()
    })
  }

  /** Splits collections into segments, if this instance coordinates. */
  plan(): Promise<void> {
    return this.#work.run(async () => {
      if (this.#parts.coordination.leading) await this.#plan()
    })
  }

  /** Claims segments. Resolves with the identifier and collection of each; with an empty list when none is left. */
  claim(): Promise<{ id: string; collection: string }[]> {
    return this.#work.run(async () => {
      const claimed = await this.#claim()
      return claimed.map((segment) => {
        const { collection, ordinal, claim } = segment
        const id = `${collection} ${ordinal} ${claim}`
        this.#claimed.set(id, segment)
        return { id, collection }
      })
    })
  }

  /**
   * Copies a claimed segment. Resolves with false when its collection was dropped.
   * @param progressed called with the bytes of each acknowledged batch; they are negative when a segment begins again
   */
  copy(id: string, progressed: (bytes: number) => void): Promise<boolean> {
    return this.#work.run(async () => {
      const segment = this.#claimed.get(id)
      assert(segment, 'the segment to copy was not claimed')
      this.#claimed.delete(id)
      const entry = await this.#entryOf(segment)
      if (!entry) return false
      // The bytes that the former owner copied count for this instance from now on.
      if (!segment.wasOwn) progressed(segment.bytes)
      const context = { ...this.#parts.context, signal: this.#signal }
      const parts: CopySegmentParts = {
        ...this.#parts,
        progress: this.#progress,
        context,
        isKnown: (one) => this.#isKnown(one),
        progressed,
      }
      this.#logPhase('Starting collection copy phase')
      const fill = entry.converging ? convergeSegment : copySegment
      await fill(parts, entry, segment)
      if (segment.done && context.meter) context.meter.copiedSegments += 1
      this.#endCopiesSoon()
      return true
    })
  }

  /** Ends the copy of every collection without unfinished segments. Resolves when all these copies have ended. */
  endCopies(): Promise<void> {
    return this.#work.run(async () => {
      // The read by `#beginEnds` includes the segments that ended last, so the background reads need not continue.
      this.#readsAgain = false
      this.#backgroundPause.abort()
      await this.#background
      await this.#beginEnds()
      await Promise.all(this.#ends.values())
      if (this.#signal.aborted) throw new StoppedError()
    })
  }

  /** Stores the last progress when everything is copied, and closes. */
  async finish(): Promise<void> {
    const { catalog, context, loadCopiedBytes } = this.#parts
    await this.#work.run(async () => {
      await this.#progress.flush()
      await loadCopiedBytes()
    })
    const failure = await this.close()
    if (failure) throw failure
    const seconds = (performance.now() - (this.#beganAt ?? 0)) / 1_000
    context.journal?.('copy ended', { collections: catalog.entries().length, seconds })
  }

  /**
   * Stops. Waits for the writes in progress and stores their progress.
   * @param error the error that ended the copy; null for a requested stop
   * @returns the failure that ended the copy; null when it ended only because of a stop
   */
  close(error: unknown = null): Promise<unknown> {
    this.#stop.abort(error ?? undefined)
    this.#closing ??= this.#close(error).finally(() => this.#over.resolve())
    return this.#closing
  }

  async #close(error: unknown): Promise<unknown> {
    if (this.#beganAt === null) return isStop(error) ? null : error
    await this.#work.ended()
    const { throttle, coordination } = this.#parts
    const possible = [this.#endFailure, this.#stop.signal.reason, error, this.#work.failure]
    let failure = possible.find((one) => one && !isStop(one)) ?? null
    throttle.unwatch()
    this.#readsAgain = false
    this.#backgroundPause.abort()
    await this.#background
    await this.#progress.close().catch((unsaved) => {
      failure ??= unsaved
    })
    if (coordination.members.length > 1) await this.#release()
    return failure
  }

  #isKnown(entry: CatalogEntry): boolean {
    return this.#parts.catalog.get(entry.uuid) === entry
  }

  /**
   * Ends finished copies in the background. One read of the unfinished segments runs at a time. Segments that end
   * during a read are included in the next.
   */
  #endCopiesSoon(): void {
    this.#readsAgain = true
    this.#background ??= this.#endCopiesInBackground().finally(() => {
      this.#background = null
    })
  }

  async #endCopiesInBackground(): Promise<void> {
    this.#backgroundPause = new AbortController()
    while (this.#readsAgain) {
      this.#readsAgain = false
      const began = performance.now()
      await this.#beginEnds().catch(() => {}) // `endCopies` reads again later, and throws if the error persists
      // A read costs more when more segments are unfinished, and the end of one collection is not urgent.
      const pauseMS = Math.min(pauseMaxMS, (performance.now() - began) * pauseFactor)
      await sleep(pauseMS, undefined, { signal: this.#backgroundPause.signal }).catch(() => {})
    }
  }

  async #claim(): Promise<Segment[]> {
    const { coordination, metadata } = this.#parts
    const opened = this.#claimedOnOpening
    this.#claimedOnOpening = []
    if (opened.length > 0) return opened
    const limit = coordination.members.length <= 1 ? claimedAlone : claimedShared
    const isExpired = (owner: string): boolean => coordination.isExpired(owner)
    for (let attempt = 0; attempt < claimAttempts; attempt++) {
      this.#claimNumber = coordination.segmentClaims.next()
      coordination.segmentClaims.claimedBy(coordination.token)
      const claimed = await metadata.segments.claim(coordination.token, this.#claimNumber, limit, isExpired)
      if (claimed.length > 0) return claimed
    }
    return []
  }

  /** Returns the segment's collection; undefined when it was dropped, which also removes its segments. */
  async #entryOf({ collection }: Segment): Promise<CatalogEntry | undefined> {
    const known = this.#parts.catalog.get(collection)
    if (known) return known
    await this.#parts.reload()
    return this.#parts.catalog.get(collection)
  }

  /**
   * Calls `copyEnded` for each collection whose last segment is done on any instance, and does not wait for these
   * calls. A collection is copied when it is planned and has no unfinished segments. Segments are stored before the
   * collection is stored as planned, so the planned collections are read first. In the reverse order, a collection
   * planned between the two reads would appear copied.
   */
  async #beginEnds(): Promise<void> {
    const { catalog, metadata, reload } = this.#parts
    await this.#progress.flush()
    const copying = (): CatalogEntry[] =>
      catalog.entries().filter((entry) => entry.state === 'copying' && !this.#ends.has(entry.uuid))
    if (copying().some((entry) => !entry.planned)) await reload()
    const planned = copying().filter((entry) => entry.planned)
    const open = await metadata.segments.openCollections()
    for (const entry of planned) {
      if (open.has(entry.uuid) || catalog.get(entry.uuid) !== entry) continue
      const end = this.#parts.copyEnded(entry).catch((error) => {
        this.#endFailure ??= error
        this.#stop.abort(error)
      })
      this.#ends.set(entry.uuid, end)
    }
  }

  /** Splits unplanned collections into segments, which are stored before the first segment is copied. */
  async #plan(): Promise<void> {
    const { metadata, source, order, context, catalog, reload } = this.#parts
    const isReloaded = await this.#openPlanned()
    if (!catalog.entries().some(isUnplanned)) return
    // An earlier coordinator may have planned a collection in the meantime. Planning it again would remove segments
    // that are being copied.
    if (!isReloaded) await reload()
    const unplanned = catalog.entries().filter(isUnplanned)
    if (unplanned.length === 0) return
    this.#logPhase('Starting initializing partitions phase')
    const planned = new Map<CatalogEntry, Segment[]>()
    const planAll = inParallel(plansAtOnce, unplanned, async (entry) => {
      const what = `planning the copy of ${entry.database}.${entry.name}`
      const segments = await retry(what, { ...context, signal: this.#signal }, () =>
        planCopy(source, entry, order, context.journal),
      )
      if (segments && this.#isKnown(entry)) planned.set(entry, segments)
    })
    // A crash may have left an incomplete plan.
    await both(planAll, metadata.segments.remove(unplanned.map(({ uuid }) => uuid)))
    const bySize = [...planned.keys()].sort((one, other) => other.estimatedBytes - one.estimatedBytes)
    const segments = bySize.flatMap((entry) => planned.get(entry) ?? [])
    // After a stop, this instance may have given up the coordinator role, and another instance may be planning.
    if (this.#signal.aborted) throw new StoppedError()
    for (const [priority, segment] of segments.entries()) segment.priority = priority
    await metadata.segments.plan(segments)
    const known = bySize.filter((entry) => this.#isKnown(entry))
    for (const entry of known) entry.planned = true
    // Definition changes are applied concurrently, so a collection may have been dropped or renamed in the meantime.
    const saved = new Set(await metadata.collections.savePlanned(known))
    // The collections that were not saved are planned again if they still exist, perhaps by a later coordinator, which
    // first removes the segments stored here.
    for (const entry of known) entry.planned = saved.has(entry.uuid)
    // A single instance claims what it opens, which saves the round trips of a claim. Several instances share the segments.
    const { coordination } = this.#parts
    if (coordination.members.length > 1) return void (await metadata.segments.open([...saved], segments))
    this.#claimNumber = coordination.segmentClaims.next()
    coordination.segmentClaims.claimedBy(coordination.token)
    const claim = { owner: coordination.token, number: this.#claimNumber, limit: claimedAlone }
    this.#claimedOnOpening = await metadata.segments.open([...saved], segments, claim)
  }

  #logPhase(phase: CopyPhase): void {
    if (this.#loggedPhases.has(phase)) return
    this.#loggedPhases.add(phase)
    this.#parts.context.journal?.(phase, {})
  }

  /**
   * Makes the segments of stored plans claimable, once per coordinator term: an earlier coordinator may have crashed
   * after it stored a plan and before it opened the segments. Returns true if this was the first call in the term.
   */
  async #openPlanned(): Promise<boolean> {
    const { metadata, catalog, coordination } = this.#parts
    const { coordinatorEpoch } = coordination
    if (this.#openedInTerm === coordinatorEpoch) return false
    await this.#reloadInTerm()
    const planned = catalog.entries().filter((entry) => entry.state === 'copying' && entry.planned)
    await metadata.segments.open(planned.map(({ uuid }) => uuid))
    this.#openedInTerm = coordinatorEpoch
    return true
  }

  /**
   * Reloads the catalog once per coordinator term of this instance. Earlier coordinators store nothing after their term has
   * ended, so the catalog then shows everything that they have planned.
   */
  async #reloadInTerm(): Promise<void> {
    const { coordination, reload } = this.#parts
    const { coordinatorEpoch, leading } = coordination
    if (!leading || this.#reloadedInTerm === coordinatorEpoch) return
    await reload()
    this.#reloadedInTerm = coordinatorEpoch
  }

  /** Releases unfinished segments, so that other instances can continue them. */
  async #release(): Promise<void> {
    const { metadata, coordination } = this.#parts
    // A segment that is not released becomes free when this instance's lease term expires.
    await metadata.segments.release(coordination.token, this.#claimNumber).catch(() => {})
  }
}

function isUnplanned(entry: CatalogEntry): boolean {
  return entry.state === 'copying' && !entry.planned
}
