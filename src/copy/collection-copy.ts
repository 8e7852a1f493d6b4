import { setTimeout as sleep } from 'node:timers/promises'
import type { Coordination } from '../coordination/coordination.ts'
import type { Catalogue, CatalogueEntry, Segment } from '../domain/catalogue.ts'
import { deferred } from '../domain/deferred.ts'
import { assert, isStop, StoppedError } from '../domain/errors.ts'
import { inParallel } from '../domain/in-parallel.ts'
import { TrackedWork } from '../domain/tracked-work.ts'
import { retry } from '../mongo/retry.ts'
import { convergeSegment } from './converge-segment.ts'
import { type CopySegmentParts, copySegment } from './copy-segment.ts'
import { planCopy } from './plan-copy.ts'
import { SegmentProgress } from './segment-progress.ts'

const plansAtOnce = 8
/** The pause between reads of the unfinished segments, as a multiple of the duration of one read. */
const restFactor = 9
/** Upper limit of that pause, because a blocked read takes long without costing much. */
const restMaxMS = 2_000
/**
 * Segments per claim, without and with other instances. Each claim costs a few round trips, and other instances cannot
 * copy claimed segments.
 */
const claimedAlone = 64
const claimedShared = 2
/** Other instances may claim the same segments at the same time; the next attempt tries other segments. */
const claimAttempts = 2

export interface CollectionCopyParts extends Omit<CopySegmentParts, 'isKnown' | 'progress' | 'progressed'> {
  catalogue: Catalogue
  coordination: Coordination
  /** Reloads the catalogue that the coordinator has stored. */
  reload: () => Promise<void>
  /** Reads from the stored progress how many bytes this instance has copied. */
  countCopied: () => Promise<void>
  /** The number of partitions of the sync. A collection is copied when each of them has ended its copy. */
  partitionCount: number
  /** Called when every segment of a collection is stored as done, by any instance. */
  copyEnded: (entry: CatalogueEntry) => Promise<void>
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
  readonly #ends = new Map<string, Promise<void>>()
  readonly #work: TrackedWork
  readonly #over = deferred<void>()
  #beganAt: number | null = null
  #closing: Promise<unknown> | null = null
  #claims = Date.now()
  /** Claimed segments whose copy has not begun. */
  readonly #claimed = new Map<string, Segment>()
  #ending: Promise<void> | null = null
  #endAgain = false
  #rest = new AbortController()
  #endFailure: unknown = null
  /**
   * The coordinator term in which this instance last ran `#openPlanned`, which makes segments claimable that an earlier
   * coordinator planned.
   */
  #openedInTerm: number | null = null

  constructor(parts: CollectionCopyParts) {
    this.#parts = parts
    this.#signal = AbortSignal.any([parts.context.signal, this.#stop.signal])
    this.#work = new TrackedWork(this.#signal)
    this.#progress = new SegmentProgress(parts.metadata.segments, parts.coordination.token)
  }

  /** Resolves when `close` has ended. */
  get over(): Promise<void> {
    return this.#over.promise
  }

  /** Releases the segments that this incarnation of the instance claimed before a pause. */
  begin(): Promise<void> {
    const { throttle, destination, metadata, coordination } = this.#parts
    throttle.watch(destination)
    this.#beganAt = performance.now()
    return this.#work.run(() => metadata.segments.release(coordination.token, this.#claims))
  }

  /**
   * Resolves with true when every collection is copied (or dropped). Decides by the stored state, because this instance
   * may end its part of a collection before the others.
   */
  survey(): Promise<boolean> {
    const { catalogue, metadata, reload, partitionCount } = this.#parts
    return this.#work.run(async () => {
      if ((await metadata.collections.copying(partitionCount)).length > 0) return false
      await reload()
      return catalogue.entries().every((entry) => entry.state === 'copied')
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
      const fill = entry.converging ? convergeSegment : copySegment
      await fill(parts, entry, segment)
      if (segment.done && context.meter) context.meter.copiedSegments += 1
      this.#endSoon()
      return true
    })
  }

  /** Ends the copy of collections whose last segment is done. Resolves when the copies of all of them have ended. */
  endCopies(): Promise<void> {
    return this.#work.run(async () => {
      // The read below includes the segments that ended last, so the background reads need not continue.
      this.#endAgain = false
      this.#rest.abort()
      await this.#ending
      await this.#endCopies()
      await Promise.all(this.#ends.values())
      if (this.#signal.aborted) throw new StoppedError()
    })
  }

  /** Stores the last progress when everything is copied, and closes. */
  async finish(): Promise<void> {
    const { catalogue, context, countCopied } = this.#parts
    await this.#work.run(async () => {
      await this.#progress.flush()
      await countCopied()
    })
    const failure = await this.close()
    if (failure) throw failure
    const seconds = (performance.now() - (this.#beganAt ?? 0)) / 1_000
    context.journal?.('copy ended', { collections: catalogue.entries().length, seconds })
  }

  /**
   * Stops after the writes in flight, whose progress is stored.
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
    this.#endAgain = false
    this.#rest.abort()
    await this.#ending
    await this.#progress.close().catch((unsaved) => {
      failure ??= unsaved
    })
    if (coordination.members.length > 1) await this.#release()
    return failure
  }

  #isKnown(entry: CatalogueEntry): boolean {
    return this.#parts.catalogue.get(entry.uuid) === entry
  }

  /**
   * Begins to read which collections have ended. Runs one read at a time; the next includes what ends during a read.
   */
  #endSoon(): void {
    this.#endAgain = true
    this.#ending ??= this.#endAll().finally(() => {
      this.#ending = null
    })
  }

  async #endAll(): Promise<void> {
    this.#rest = new AbortController()
    while (this.#endAgain) {
      this.#endAgain = false
      const began = performance.now()
      await this.#endCopies().catch(() => {}) // `endCopies` reads again later, and throws if the error persists
      // A read costs more when more segments are unfinished, and the end of one collection is not urgent.
      const rest = Math.min(restMaxMS, (performance.now() - began) * restFactor)
      await sleep(rest, undefined, { signal: this.#rest.signal }).catch(() => {})
    }
  }

  async #claim(): Promise<Segment[]> {
    const { coordination, metadata } = this.#parts
    const limit = coordination.members.length <= 1 ? claimedAlone : claimedShared
    const isExpired = (owner: string): boolean => coordination.isExpired(owner)
    for (let attempt = 0; attempt < claimAttempts; attempt++) {
      this.#claims += 1
      const claimed = await metadata.segments.claim(coordination.token, this.#claims, limit, isExpired)
      if (claimed.length > 0) return claimed
    }
    return []
  }

  /** Returns the segment's collection; undefined when it was dropped. Its segments are then removed as well. */
  async #entryOf({ collection }: Segment): Promise<CatalogueEntry | undefined> {
    const known = this.#parts.catalogue.get(collection)
    if (known) return known
    await this.#parts.reload()
    return this.#parts.catalogue.get(collection)
  }

  /**
   * Ends the copy of collections whose last segment is done on any instance. A collection is copied when it is planned
   * and has no unfinished segments. Segments are stored before the collection is stored as planned, so the planned
   * collections are read first. In the reverse order, a collection planned between the two reads would appear copied.
   */
  async #endCopies(): Promise<void> {
    const { catalogue, metadata, reload } = this.#parts
    await this.#progress.flush()
    const copying = (): CatalogueEntry[] =>
      catalogue.entries().filter((entry) => entry.state === 'copying' && !this.#ends.has(entry.uuid))
    if (copying().some((entry) => !entry.planned)) await reload()
    const planned = copying().filter((entry) => entry.planned)
    const open = await metadata.segments.openCollections()
    for (const entry of planned) {
      if (open.has(entry.uuid) || catalogue.get(entry.uuid) !== entry) continue
      const end = this.#parts.copyEnded(entry).catch((error) => {
        this.#endFailure ??= error
        this.#stop.abort(error)
      })
      this.#ends.set(entry.uuid, end)
    }
  }

  /** Splits unplanned collections into segments, which are stored before the first segment is copied. */
  async #plan(): Promise<void> {
    const { metadata, source, context, catalogue, reload } = this.#parts
    await this.#openPlanned()
    const isUnplanned = (entry: CatalogueEntry): boolean => entry.state === 'copying' && !entry.planned
    if (!catalogue.entries().some(isUnplanned)) return
    // A predecessor may have planned a collection in the meantime. Planning it again would remove segments being
    // copied.
    await reload()
    const unplanned = catalogue.entries().filter(isUnplanned)
    if (unplanned.length === 0) return
    const planned = new Map<CatalogueEntry, Segment[]>()
    await inParallel(plansAtOnce, unplanned, async (entry) => {
      const what = `planning the copy of ${entry.database}.${entry.name}`
      const segments = await retry(what, { ...context, signal: this.#signal }, () => planCopy(source, entry))
      if (segments && this.#isKnown(entry)) planned.set(entry, segments)
    })
    const bySize = [...planned.keys()].sort((one, other) => other.estimatedBytes - one.estimatedBytes)
    const segments = bySize.flatMap((entry) => planned.get(entry) ?? [])
    // After a stop, this instance may have given up the coordinator role, and another instance may be planning.
    if (this.#signal.aborted) throw new StoppedError()
    for (const [rank, segment] of segments.entries()) segment.rank = rank
    await metadata.segments.remove(bySize.map((entry) => entry.uuid)) // a crash may have left an incomplete plan
    await metadata.segments.plan(segments)
    const known = bySize.filter((entry) => this.#isKnown(entry))
    for (const entry of known) entry.planned = true
    // Definition changes are applied concurrently, so a collection may have been dropped or renamed in the meantime.
    const saved = new Set(await metadata.collections.savePlanned(known))
    // The collections that were not saved are planned again if they still exist, perhaps by a later coordinator, which
    // first removes the segments stored here.
    for (const entry of known) entry.planned = saved.has(entry.uuid)
    await metadata.segments.open([...saved])
  }

  /** Runs once per coordinator term: a predecessor may have crashed between storing a plan and opening its segments. */
  async #openPlanned(): Promise<void> {
    const { metadata, catalogue, coordination, reload } = this.#parts
    const { coordinatorEpoch } = coordination
    if (this.#openedInTerm === coordinatorEpoch) return
    await reload()
    const planned = catalogue.entries().filter((entry) => entry.state === 'copying' && entry.planned)
    await metadata.segments.open(planned.map(({ uuid }) => uuid))
    this.#openedInTerm = coordinatorEpoch
  }

  /** Releases unfinished segments, so that other instances can continue them. */
  async #release(): Promise<void> {
    const { metadata, coordination } = this.#parts
    // Segments that are not released are claimed again later.
    await metadata.segments.release(coordination.token, this.#claims).catch(() => {})
  }
}
