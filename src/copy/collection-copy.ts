import { setTimeout as sleep } from 'node:timers/promises'
import type { Coordination } from '../coordination/coordination.ts'
import type { Catalogue, CatalogueEntry, Segment } from '../domain/catalogue.ts'
import { elastically } from '../domain/elastically.ts'
import { StoppedError } from '../domain/errors.ts'
import { inParallel } from '../domain/in-parallel.ts'
import { retry } from '../mongo/retry.ts'
import { type CopySegmentParts, copySegment } from './copy-segment.ts'
import { planCopy } from './plan-copy.ts'
import { SegmentProgress } from './segment-progress.ts'

const plansAtOnce = 8
/** Between two looks at what is left, while it is others' to do. */
const pollMS = 200
/** Between two looks at what has ended, as many times what one took. */
const restToLook = 9
/** A look that a cluster held up says nothing of what looks cost. */
const restMaxMS = 2_000
/** Segments claimed at a time: each claim costs a few round trips, and what is claimed is not there for others. */
const claimedAlone = 64
const claimedShared = 2
/** What one attempt goes for may all be claimed by others just then; the next goes for other ones. */
const claimAttempts = 2

export interface CollectionCopyParts extends Omit<CopySegmentParts, 'isKnown' | 'ledger'> {
  catalogue: Catalogue
  coordination: Coordination
  /** Takes what this instance has copied from what is stored. */
  countCopied: () => Promise<void>
  /** How many partitions the sync has: a collection is copied when each of them has ended its copy. */
  partitionCount: number
  /** Called when every segment of a collection is stored as done, by whichever instance. */
  copyEnded: (entry: CatalogueEntry) => Promise<void>
}

/**
 * This instance's share in copying every collection that is in state copying. The coordinator cuts collections into segments,
 * largest collection first; everybody claims a few at a time and copies them, so the fastest does the most, and what a
 * dead instance had claimed is claimed again.
 */
export class CollectionCopy {
  readonly #parts: CollectionCopyParts
  readonly #stop = new AbortController()
  readonly #signal: AbortSignal
  readonly #ledger: SegmentProgress
  readonly #ends = new Map<string, Promise<void>>()
  #claims = Date.now()
  #queue: Segment[] = []
  #claiming: Promise<boolean> | null = null
  #ending: Promise<void> | null = null
  #endAgain = false
  #rest = new AbortController()
  #endFailure: unknown = null
  /** The tenure in which segments that a predecessor had planned, and not opened, were opened. */
  #openedIn: number | null = null

  constructor(parts: CollectionCopyParts) {
    this.#parts = parts
    this.#signal = AbortSignal.any([parts.context.signal, this.#stop.signal])
    this.#ledger = new SegmentProgress(parts.metadata.segments, parts.coordination.token)
  }

  /** Resolves when every collection is copied (or gone) or when drained; `true` when nothing is left to copy. */
  async run(): Promise<boolean> {
    const { catalogue, context, metadata, throttle, destination } = this.#parts
    const parts: CopySegmentParts = {
      ...this.#parts,
      ledger: this.#ledger,
      context: { ...context, signal: this.#signal },
      isKnown: (entry) => catalogue.get(entry.uuid) === entry,
    }
    throttle.watch(destination)
    const began = performance.now()
    try {
      // What this life of the instance claimed before a pause.
      await metadata.segments.release(this.#parts.coordination.token, this.#claims)
      while (!(await this.#isComplete())) {
        if (this.#parts.coordination.leading) await this.#plan(parts)
        const copied = await this.#copySome(parts)
        await this.#endCopies()
        await Promise.all(this.#ends.values())
        if (!copied) await sleep(pollMS, undefined, { signal: this.#signal })
        if (this.#signal.aborted) throw new StoppedError()
      }
      await this.#ledger.flush()
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
      await this.#ledger.close()
      if (this.#parts.coordination.members.length > 1) await this.#giveBack()
    }
  }

  /** Stop after the writes under way; progress is stored. */
  drain(): void {
    this.#stop.abort()
  }

  /** By what is stored: this instance may have ended its part of a collection before the others. */
  async #isComplete(): Promise<boolean> {
    const { catalogue, metadata, reload, partitionCount } = this.#parts
    if ((await metadata.collections.copying(partitionCount)).length > 0) return false
    await reload()
    return catalogue.entries().every((entry) => entry.state === 'copied')
  }

  /** Claims segments and copies them until there are none to claim; false when there were none at all. */
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
      // What its former owner had copied of it counts here from now on.
      if (!segment.wasOwn) entry.copiedBytes += segment.bytes
      await copySegment(parts, entry, segment).catch((error) => {
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
    // What ended last is seen by the look that follows this.
    this.#endAgain = false
    this.#rest.abort()
    await this.#ending
    return copied
  }

  /** One look at a time; a segment that ends during one is seen by the next. */
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
      await this.#endCopies().catch(() => {}) // met again by the next look, which is awaited
      // A look costs the more the more collections are open, and one collection that ends is no news to hurry for.
      const rest = Math.min(restMaxMS, (performance.now() - began) * restToLook)
      await sleep(rest, undefined, { signal: this.#rest.signal }).catch(() => {})
    }
  }

  /** Null when there is nothing to claim, not when others of this instance were quicker. */
  async #next(): Promise<Segment | null> {
    while (this.#queue.length === 0) {
      this.#claiming ??= this.#claim().finally(() => {
        this.#claiming = null
      })
      if (!(await this.#claiming)) return null
    }
    return this.#queue.shift() ?? null
  }

  /** False when nothing was claimed. */
  async #claim(): Promise<boolean> {
    const { coordination, metadata } = this.#parts
    const limit = coordination.members.length <= 1 ? claimedAlone : claimedShared
    const isDead = (owner: string): boolean => coordination.isExpired(owner)
    for (let attempt = 0; attempt < claimAttempts; attempt++) {
      this.#claims += 1
      const claimed = await metadata.segments.claim(coordination.token, this.#claims, limit, isDead)
      this.#queue.push(...claimed)
      if (claimed.length > 0) return true
    }
    return false
  }

  /** Undefined when the collection is gone: its segments go with it. */
  async #entryOf({ collection }: Segment): Promise<CatalogueEntry | undefined> {
    const known = this.#parts.catalogue.get(collection)
    if (known) return known
    await this.#parts.reload()
    return this.#parts.catalogue.get(collection)
  }

  /**
   * Collections whose last segment is done, here or elsewhere. That a planned collection has no open segment means that it is
   * copied only if it was planned before the open segments were read: segments are stored before the plan is, so this read
   * finds those of every plan known by then. A collection planned later would look copied before its first segment is.
   */
  async #endCopies(): Promise<void> {
    const { catalogue, metadata, reload } = this.#parts
    await this.#ledger.flush()
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

  /** Cuts what is not cut yet; stored before the first segment is copied. */
  async #plan(parts: CopySegmentParts): Promise<void> {
    const { metadata, source, context, catalogue, reload } = this.#parts
    await this.#openPlanned()
    const isUnplanned = (entry: CatalogueEntry): boolean => entry.state === 'copying' && !entry.planned
    if (!catalogue.entries().some(isUnplanned)) return
    // A predecessor may have cut it since: cut again, its segments would go while others copy them.
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
    // Whoever has been told to stop may have given the office up, and another one plan by now.
    if (this.#signal.aborted) throw new StoppedError()
    for (const [rank, segment] of segments.entries()) segment.rank = rank
    await metadata.segments.remove(bySize.map((entry) => entry.uuid)) // of a plan that a crash cut short
    await metadata.segments.plan(segments)
    const known = bySize.filter(parts.isKnown)
    for (const entry of known) entry.planned = true
    // Definitions are followed beside this: one of these may be dropped or renamed by now.
    const saved = new Set(await metadata.collections.savePlanned(known))
    // The coordinator of a later term plans the others itself, and removes the segments stored here before it stores its own.
    for (const entry of known) entry.planned = saved.has(entry.uuid)
    await metadata.segments.open([...saved])
  }

  /** Once in each tenure: a predecessor may have died between the two. */
  async #openPlanned(): Promise<void> {
    const { metadata, catalogue, coordination, reload } = this.#parts
    const { coordinatorEpoch } = coordination
    if (this.#openedIn === coordinatorEpoch) return
    await reload()
    const planned = catalogue.entries().filter((entry) => entry.state === 'copying' && entry.planned)
    await metadata.segments.open(planned.map(({ uuid }) => uuid))
    this.#openedIn = coordinatorEpoch
  }

  /** So that others go on with what this instance has not finished. */
  async #giveBack(): Promise<void> {
    const { metadata, coordination } = this.#parts
    await metadata.segments.release(coordination.token, this.#claims).catch(() => {}) // claimed again when it is needed
  }
}

function isStop(error: unknown): boolean {
  return error instanceof StoppedError || (error instanceof Error && error.name === 'AbortError')
}
