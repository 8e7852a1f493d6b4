import type { CollectionRow, CollectionsPage, CollectionsReport } from '../domain/collection-figures.ts'
import { countIndexes } from '../domain/count-indexes.ts'
import { InTurn } from '../domain/in-turn.ts'
import type { StartConfiguration } from '../domain/start-request.ts'
import type { CollectionFigures, StoredFigures } from '../mongo/collection-figures.ts'

/** How long a report is reused for all requests, ms. */
const keptMS = 1_000
/** Reading takes at most this share of the time, however often reports are requested. */
const shareOfTime = 1 / 20
/** Number of pages that are cached. */
const pagesMax = 8

interface Kept {
  report: Promise<CollectionsReport>
  /** Expiry by performance.now(); infinite while the report is being made. */
  until: number
}

/** Reports the progress of every collection of the sync, at little cost to the sync. */
export class CollectionReports {
  readonly #figures: CollectionFigures
  readonly #configuration: StartConfiguration
  readonly #kept = new Map<string, Kept>()
  /** Only one page is read at a time. */
  readonly #reads = new InTurn()

  constructor(figures: CollectionFigures, configuration: StartConfiguration) {
    this.#figures = figures
    this.#configuration = configuration
  }

  /**
   * Returns the current report, or a cached one that is at most a moment old. Rejects when the destination does not
   * answer.
   * @param restored true when the commit has restored the deferred options
   */
  async report(page: CollectionsPage, restored: boolean): Promise<CollectionsReport> {
    const key = `${page.limit} ${page.after} ${restored}`
    const known = this.#kept.get(key)
    if (known && performance.now() < known.until) return await known.report
    this.#kept.delete(key)
    const report = this.#reads.run(() => this.#read(page, restored, made))
    const made: Kept = { report, until: Number.POSITIVE_INFINITY }
    this.#kept.set(key, made)
    const [oldest = key] = this.#kept.keys()
    if (this.#kept.size > pagesMax) this.#kept.delete(oldest)
    return await report
  }

  async #read(page: CollectionsPage, restored: boolean, made: Kept): Promise<CollectionsReport> {
    const began = performance.now()
    try {
      const [mismatches, total] = await Promise.all([this.#figures.mismatches(), this.#figures.count()])
      const { enabled } = this.#configuration.verification
      const rows = await this.#figures.read(page, enabled, [...mismatches.keys()])
      return { collections: rows.map((one) => this.#row(one, mismatches, restored)), total }
    } finally {
      // Failures are cached too: a read that took too long must not be repeated at once.
      const now = performance.now()
      made.until = now + Math.max(keptMS, (now - began) / shareOfTime)
    }
  }

  #row(one: StoredFigures, mismatches: ReadonlyMap<string, number>, restored: boolean): CollectionRow {
    const { buildIndexes, verification } = this.#configuration
    const built = one.created && buildIndexes !== 'never'
    return {
      namespace: one.namespace,
      copy: {
        ended: one.copied,
        converging: one.converging,
        estimatedTotalBytes: one.totalBytes,
        estimatedCopiedBytes: Math.min(one.copiedBytes, one.totalBytes),
        estimatedDocumentCount: Math.max(one.estimatedDocuments, one.copiedDocuments),
        copiedDocumentCount: one.copiedDocuments,
      },
      indexes: countIndexes(one.indexes, { built, refused: one.refusedIndexes, restored }),
      verification: verification.enabled ? verificationOf(one) : null,
      mismatches: mismatches.get(one.namespace) ?? 0,
    }
  }
}

function verificationOf({ ranges, hashedRanges, hashedDocuments }: StoredFigures): CollectionRow['verification'] {
  const phase = hashedRanges >= ranges ? 'stream hashing' : hashedRanges > 0 ? 'initial hashing' : 'not started'
  return {
    phase,
    hashedDocumentCount: hashedDocuments,
    hashedRanges: Math.min(hashedRanges, ranges),
    totalRanges: ranges,
  }
}
