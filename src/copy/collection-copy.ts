import { setTimeout as sleep } from 'node:timers/promises'
import type { Catalogue, CatalogueEntry, Segment } from '../domain/catalogue.ts'
import { StoppedError } from '../domain/errors.ts'
import { inParallel } from '../domain/in-parallel.ts'
import { retry } from '../mongo/retry.ts'
import { type CopySegmentParts, copySegment } from './copy-segment.ts'
import { planCopy } from './plan-copy.ts'

const plansAtOnce = 8

export interface CollectionCopyParts extends Omit<CopySegmentParts, 'isKnown'> {
  catalogue: Catalogue
  /** Segments copied at a time, each with one read and one write under way. */
  segmentsAtOnce: number
  /** Called when every segment of a collection is stored as done. */
  copyEnded: (entry: CatalogueEntry) => Promise<void>
}

/** Copies every collection that is in state copying, largest first, several segments at a time. */
export class CollectionCopy {
  readonly #parts: CollectionCopyParts
  readonly #stop = new AbortController()

  constructor(parts: CollectionCopyParts) {
    this.#parts = parts
  }

  /** Resolves when every collection is copied (or gone) or when drained; `true` when nothing is left to copy. */
  async run(): Promise<boolean> {
    const { catalogue, ledger, context } = this.#parts
    const signal = AbortSignal.any([context.signal, this.#stop.signal])
    const parts: CopySegmentParts = {
      ...this.#parts,
      context: { ...context, signal },
      isKnown: (entry) => catalogue.get(entry.uuid) === entry,
    }
    const ends: Promise<void>[] = []
    try {
      const entries = catalogue.entries().filter((entry) => entry.state === 'copying')
      const planned = await this.#plan(parts, entries)
      entries.sort((one, other) => other.estimatedBytes - one.estimatedBytes)
      const finish = (entry: CatalogueEntry): void => {
        const end = ledger.flush().then(() => this.#parts.copyEnded(entry))
        end.catch(() => this.#stop.abort())
        ends.push(end)
      }
      const work = entries.flatMap((entry) => {
        const open = (planned.get(entry) ?? []).filter((segment) => !segment.done)
        let left = open.length
        if (left === 0) finish(entry)
        return open.map((segment) => async () => {
          await copySegment(parts, entry, segment)
          left -= 1
          if (left === 0) finish(entry)
        })
      })
      await inParallel(this.#parts.segmentsAtOnce, work, (segment) => segment())
      await Promise.all(ends)
      // Collections dropped on the source leave the catalogue when their event comes.
      while (catalogue.entries().some((entry) => entry.state === 'copying')) {
        await sleep(20, undefined, { signal })
      }
      return true
    } catch (error) {
      const ended = (await Promise.allSettled(ends)).find((result) => result.status === 'rejected')
      if (ended && !isStop(ended.reason)) throw ended.reason
      if (signal.aborted && isStop(error)) return false
      throw error
    } finally {
      await ledger.close()
    }
  }

  /** Stop after the writes under way; progress is stored. */
  drain(): void {
    this.#stop.abort()
  }

  /** The segments of every collection: as stored, or cut now and stored before the first is copied. */
  async #plan(parts: CopySegmentParts, entries: CatalogueEntry[]): Promise<Map<CatalogueEntry, Segment[]>> {
    const { metadata, source, context } = parts
    const planned = new Map<CatalogueEntry, Segment[]>()
    const fresh: CatalogueEntry[] = []
    await inParallel(plansAtOnce, entries, async (entry) => {
      if (entry.planned) {
        const segments = await metadata.loadSegments(entry.uuid)
        planned.set(entry, segments)
        return
      }
      const what = `planning the copy of ${entry.database}.${entry.name}`
      const segments = await retry(what, context, () => planCopy(source, entry))
      if (!segments || !parts.isKnown(entry)) return
      planned.set(entry, segments)
      fresh.push(entry)
    })
    await metadata.removeSegments(fresh.map((entry) => entry.uuid)) // of a plan that a crash cut short
    await metadata.saveSegments(fresh.flatMap((entry) => planned.get(entry) ?? []))
    const known = fresh.filter(parts.isKnown)
    for (const entry of known) entry.planned = true
    await metadata.saveCollections(known)
    return planned
  }
}

function isStop(error: unknown): boolean {
  return error instanceof StoppedError || (error instanceof Error && error.name === 'AbortError')
}
