import { setTimeout as sleep } from 'node:timers/promises'
import type { Coordination } from '../coordination/coordination.ts'
import type { Catalogue, CatalogueEntry, Segment } from '../domain/catalogue.ts'
import { elastically } from '../domain/elastically.ts'
import { StoppedError } from '../domain/errors.ts'
import { inParallel } from '../domain/in-parallel.ts'
import { retry } from '../mongo/retry.ts'
import { convergeSegment } from './converge-segment.ts'
import { type CopySegmentParts, copySegment } from './copy-segment.ts'
import { planCopy } from './plan-copy.ts'
import { SegmentProgress } from './segment-progress.ts'

const plansAtOnce = 8
/** Interval between checks for completion, while other instances copy the rest. */
const pollMS = 200
/** The pause between reads of the open segments, as a multiple of the duration of one read. */
const restFactor = 9
/** Limits that pause: when a read was blocked by the cluster, its duration does not show its cost. */
const restMaxMS = 2_000
/** Segments per claim. Each claim costs a few round trips, and other instances cannot copy claimed segments. */
const claimedAlone = 64
const claimedShared = 2
/** Other instances may claim the same segments at the same time; the next attempt tries other segments. */
const claimAttempts = 2

export interface CollectionCopyParts extends Omit<CopySegmentParts, 'isKnown' | 'progress'> {
  catalogue: Catalogue
  coordination: Coordination
  /** Loads the bytes that this instance has copied from the stored progress. */
  countCopied: () => Promise<void>
  /** The number of partitions of the sync. A collection is copied when each of them has ended its copy. */
  partitionCount: number
  /** Called when every segment of a collection is stored as done, by any instance. */
  copyEnded: (entry: CatalogueEntry) => Promise<void>
}

/**
 * Copies this instance's share of the collections in state copying. The coordinator splits collections into segments,
 * largest collection first. Every instance claims a few segments at a time and copies them, so the fastest instance
 * copies the most. Segments of an expired instance are claimed again.
 */
export class CollectionCopy {
  readonly #parts: CollectionCopyParts
  readonly #stop = new AbortController()
  readonly #signal: AbortSignal
  readonly #progress: SegmentProgress
  readonly #ends = new Map<string, Promise<void>>()
  #claims = Date.now()
  #queue: Segment[] = []
  #claiming: Promise<boolean> | null = null
  #ending: Promise<void> | null = null
  #endAgain = false
  #rest = new AbortController()
  #endFailure: unknown = null
  /**
   * The coordinator term in which this instance has opened the segments that a predecessor planned but did not open.
   */
  #openedInTerm: number | null = null

  constructor(parts: CollectionCopyParts) {
    this.#parts = parts
    this.#signal = AbortSignal.any([parts.context.signal, this.#stop.signal])
    this.#progress = new SegmentProgress(parts.metadata.segments, parts.coordination.token)
  }

  /** Resolves when every collection is copied (or dropped), or when drained; `true` when nothing is left to copy. */
  async run(): Promise<boolean> {
    const { catalogue, context, metadata, throttle, destination } = this.#parts
    const parts: CopySegmentParts = {
      ...this.#parts,
      progress: this.#progress,
      context: { ...context, signal: this.#signal },
      isKnown: (entry) => catalogue.get(entry.uuid) === entry,
    }
    throttle.watch(destination)
    const began = performance.now()
    try {
      // Releases the segments that this incarnation of the instance claimed before a pause.
      await metadata.segments.release(this.#parts.coordination.token, this.#claims)
      while (!(await this.#isComplete())) {
        if (this.#parts.coordination.leading) await this.#plan(parts)
        const copied = await this.#copySome(parts)
        await this.#endCopies()
        await Promise.all(this.#ends.values())
        if (!copied) await sleep(pollMS, undefined, { signal: this.#signal })
        if (this.#signal.aborted) throw new StoppedError()
      }
      await this.#progress.flush()
      await this.#parts.countCopied()
      const seconds = (performance.now() - began) / 1_000
      context.journal?.('copy ended', { collections: catalogue.entries().length, seconds })
      return true
    } catch (error) {
      const { reason } = this.#stop.signal
      for (const failure of [this.#endFailure, reason, error]) if (failure && !isStop(failure)) throw failure
      return false
    } finally {
      throttle.unwatch()
      this.#endAgain = false
      this.#rest.abort()
      await this.#ending
      await this.#progress.close()
      if (this.#parts.coordination.members.length > 1) await this.#release()
    }
  }

  /** Stops after the writes in flight. Their progress is stored. */
  drain(): void {
    this.#stop.abort()
  }

  /** Decides by the stored state, because this instance may end its part of a collection before the others. */
  async #isComplete(): Promise<boolean> {
    const { catalogue, metadata, reload, partitionCount } = this.#parts
    if ((await metadata.collections.copying(partitionCount)).length > 0) return false
    await reload()
    return catalogue.entries().every((entry) => entry.state === 'copied')
  }

  /** Claims segments and copies them until there are none to claim. Returns false when it copied none. */
  async #copySome(parts: CopySegmentParts): Promise<boolean> {
    const { throttle } = this.#parts
    let copied = false
    const copyOne = async (): Promise<boolean> => {
      const segment = await this.#next()
      if (!segment) return false
      if (this.#signal.aborted) throw new StoppedError()
      const entry = await this.#entryOf(segment)
      if (!entry) return true
      copied = true
      // The bytes that the former owner copied count for this instance from now on.
      if (!segment.wasOwn) entry.copiedBytes += segment.bytes
      const fill = entry.converging ? convergeSegment : copySegment
      await fill(parts, entry, segment).catch((error) => {
        this.#stop.abort(error)
        throw error
      })
      this.#endSoon()
      return true
    }
    await elastically(
      () => throttle.readConcurrency,
      (changed) => throttle.onChanged(changed),
      copyOne,
    )
    // The caller's next `#endCopies` covers the segments that ended last.
    this.#endAgain = false
    this.#rest.abort()
    await this.#ending
    return copied
  }

  /** Runs one read at a time. A segment that ends during a read is covered by the next. */
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
      await this.#endCopies().catch(() => {}) // the next call, which is awaited, throws again
      // A read costs more when more collections are open, and the end of one collection is not urgent.
      const rest = Math.min(restMaxMS, (performance.now() - began) * restFactor)
      await sleep(rest, undefined, { signal: this.#rest.signal }).catch(() => {})
    }
  }

  /**
   * The next claimed segment; null when there is nothing to claim. Claims again when parallel callers took them all.
   */
  async #next(): Promise<Segment | null> {
    while (this.#queue.length === 0) {
      this.#claiming ??= this.#claim().finally(() => {
        this.#claiming = null
      })
      if (!(await this.#claiming)) return null
    }
    return this.#queue.shift() ?? null
  }

  /** Returns false when nothing was claimed. */
  async #claim(): Promise<boolean> {
    const { coordination, metadata } = this.#parts
    const limit = coordination.members.length <= 1 ? claimedAlone : claimedShared
    const isExpired = (owner: string): boolean => coordination.isExpired(owner)
    for (let attempt = 0; attempt < claimAttempts; attempt++) {
      this.#claims += 1
      const claimed = await metadata.segments.claim(coordination.token, this.#claims, limit, isExpired)
      this.#queue.push(...claimed)
      if (claimed.length > 0) return true
    }
    return false
  }

  /** The segment's collection; undefined when it was dropped. Its segments are then removed as well. */
  async #entryOf({ collection }: Segment): Promise<CatalogueEntry | undefined> {
    const known = this.#parts.catalogue.get(collection)
    if (known) return known
    await this.#parts.reload()
    return this.#parts.catalogue.get(collection)
  }

  /**
   * Ends the copy of collections whose last segment is done on any instance. A planned collection without open segments
   * is copied only if it was planned before the open segments were read. Segments are stored before the plan, so this
   * read finds the segments of every plan known before it. A collection planned later would falsely appear copied.
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
  async #plan(parts: CopySegmentParts): Promise<void> {
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
      if (segments && parts.isKnown(entry)) planned.set(entry, segments)
    })
    const bySize = [...planned.keys()].sort((one, other) => other.estimatedBytes - one.estimatedBytes)
    const segments = bySize.flatMap((entry) => planned.get(entry) ?? [])
    // After a stop, this instance may have given up the coordinator role, and another instance may be planning.
    if (this.#signal.aborted) throw new StoppedError()
    for (const [rank, segment] of segments.entries()) segment.rank = rank
    await metadata.segments.remove(bySize.map((entry) => entry.uuid)) // a crash may have left an incomplete plan
    await metadata.segments.plan(segments)
    const known = bySize.filter(parts.isKnown)
    for (const entry of known) entry.planned = true
    // Definitions are followed concurrently, so a collection may be dropped or renamed by now.
    const saved = new Set(await metadata.collections.savePlanned(known))
    // A later coordinator plans the others itself. It removes the segments stored here before it stores its own.
    for (const entry of known) entry.planned = saved.has(entry.uuid)
    await metadata.segments.open([...saved])
  }

  /** Once in each coordinator term: a predecessor may have crashed between storing a plan and opening its segments. */
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
    await metadata.segments.release(coordination.token, this.#claims).catch(() => {}) // unreleased segments are claimed again later
  }
}

function isStop(error: unknown): boolean {
  return error instanceof StoppedError || (error instanceof Error && error.name === 'AbortError')
}
