import { setTimeout as sleep } from 'node:timers/promises'
import type { Catalogue, CatalogueEntry, Segment } from '../domain/catalogue.ts'
import { StoppedError } from '../domain/errors.ts'
import { retry } from '../mongo/retry.ts'
import { type CopySegmentParts, copySegment } from './copy-segment.ts'
import { planCopy } from './plan-copy.ts'

const plansAtOnce = 4

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
      const planned = new Map<CatalogueEntry, Segment[]>()
      await inParallel(plansAtOnce, entries, async (entry) => {
        planned.set(entry, await this.#plan(parts, entry))
      })
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

  async #plan(parts: CopySegmentParts, entry: CatalogueEntry): Promise<Segment[]> {
    if (entry.planned) {
      const segments = await parts.metadata.loadSegments(entry.uuid)
      entry.copiedBytes = segments.reduce((sum, segment) => sum + segment.bytes, 0)
      return segments
    }
    const segments = await retry(`planning the copy of ${entry.database}.${entry.name}`, parts.context, () =>
      planCopy(parts.source, entry),
    )
    if (!segments || !parts.isKnown(entry)) return []
    await parts.metadata.removeSegments(entry.uuid) // of a plan that a crash cut short
    await parts.metadata.saveSegments(segments)
    entry.planned = true
    await parts.metadata.saveCollection(entry)
    return segments
  }
}

/** Runs all items, `width` at a time. After a failure no further item is begun; those under way are awaited. */
async function inParallel<T>(width: number, items: T[], run: (item: T) => Promise<void>): Promise<void> {
  const queue = [...items]
  const worker = async (): Promise<void> => {
    for (let item = queue.shift(); item !== undefined; item = queue.shift()) {
      await run(item).catch((error) => {
        queue.length = 0
        throw error
      })
    }
  }
  const results = await Promise.allSettled(Array.from({ length: width }, worker))
  const failed = results.find((result) => result.status === 'rejected')
  if (failed) throw failed.reason
}

function isStop(error: unknown): boolean {
  return error instanceof StoppedError || (error instanceof Error && error.name === 'AbortError')
}
