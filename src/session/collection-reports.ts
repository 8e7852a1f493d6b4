import { setTimeout as delay } from 'node:timers/promises'
import pLimit from 'p-limit'
import type { CollectionRow, CollectionsPage, CollectionsReport } from '../domain/collection-figures.ts'
import { countIndexes } from '../domain/count-indexes.ts'
import { indexName } from '../domain/definition.ts'
import { NamespaceRemap } from '../domain/namespace-remap.ts'
import type { StartConfiguration } from '../domain/start-request.ts'
import type { CollectionFigures, StoredFigures } from '../mongo/collection-figures.ts'

/** Minimum time for which a report is cached, ms. A report that is slow to read is cached longer (`shareOfTime`). */
const keptMS = 1_000
/** Reading one page takes at most about this share of the time, however often the page is requested. */
const shareOfTime = 1 / 20
/** Number of pages that are cached. */
const pagesMax = 8
/**
 * With at least this many collections, a request does not wait for a new report for longer than `patienceMS`. It then gets
 * the expired one, unless that expired more than `staleMaxMS` ago. With fewer, a new report takes only milliseconds.
 */
const manyCollections = 500
const patienceMS = 20
const staleMaxMS = 15_000

interface Expiring {
  report: CollectionsReport
  /** Expiry by performance.now(). */
  until: number
}

interface Kept {
  report: Promise<CollectionsReport>
  /** Expiry by performance.now(); infinite while the report is being read. */
  until: number
  /** The report of very many collections that this one replaces; null if there is none. */
  former: Expiring | null
  /** This report once it is read, if it shows very many collections; null before, and for few. */
  latest: Expiring | null
}

/** Reports the progress of every collection of the sync, at little cost to the sync. */
export class CollectionReports {
  readonly #figures: CollectionFigures
  readonly #configuration: StartConfiguration
  readonly #names: NamespaceRemap
  readonly #kept = new Map<string, Kept>()
  /** Only one page is read at a time. */
  readonly #reads = pLimit(1)

  constructor(figures: CollectionFigures, configuration: StartConfiguration) {
    this.#figures = figures
    this.#configuration = configuration
    this.#names = new NamespaceRemap(configuration.namespaceRemap)
  }

  /**
   * Returns a new report, or the cached one until it expires. With very many collections, it returns the expired one if the
   * new one is not read at once. Rejects when the destination does not answer.
   * @param restored true when the commit has restored the options of indexes that were deferred until then (such as
   * unique and TTL)
   * @param situation what `progress` says. A report of another situation is not shown: after a failed commit, the expired one
   * would not contain the mismatches
   */
  async report(page: CollectionsPage, restored: boolean, situation = ''): Promise<CollectionsReport> {
    const key = `${page.limit} ${page.after} ${restored} ${situation}`
    let kept = this.#kept.get(key)
    if (!kept || performance.now() >= kept.until) kept = this.#begin(key, page, restored, kept?.latest ?? null)
    const { report, former } = kept
    const isShown = former !== null && performance.now() < former.until + staleMaxMS
    if (!isShown || kept.latest) return await report
    // If the read fails after this request was answered, the next request is told so.
    report.catch(() => {})
    return await Promise.race([report, delay(patienceMS, former.report, { ref: false })])
  }

  #begin(key: string, page: CollectionsPage, restored: boolean, former: Expiring | null): Kept {
    this.#kept.delete(key)
    const kept: Kept = {
      report: this.#reads(() => this.#read(page, restored, kept)),
      until: Number.POSITIVE_INFINITY,
      former,
      latest: null,
    }
    this.#kept.set(key, kept)
    const [oldest = key] = this.#kept.keys()
    if (this.#kept.size > pagesMax) this.#kept.delete(oldest)
    return kept
  }

  async #read(page: CollectionsPage, restored: boolean, kept: Kept): Promise<CollectionsReport> {
    const began = performance.now()
    let read: CollectionsReport | null = null
    try {
      const [mismatches, total] = await Promise.all([this.#figures.mismatches(), this.#figures.count()])
      const { enabled } = this.#configuration.verification
      const rows = await this.#figures.read(page, enabled, [...mismatches.keys()])
      read = { collections: rows.map((one) => this.#row(one, mismatches, restored)), total }
      return read
    } finally {
      // Failures are cached too: a read that took too long must not be repeated at once.
      const now = performance.now()
      kept.until = now + Math.max(keptMS, (now - began) / shareOfTime)
      if (read && read.total >= manyCollections) kept.latest = { report: read, until: kept.until }
    }
  }

  #row(one: StoredFigures, mismatches: ReadonlyMap<string, number>, restored: boolean): CollectionRow {
    const { buildIndexes, verification } = this.#configuration
    const buildsIndexes = one.created && buildIndexes !== 'never'
    const refused = one.awaitsIndexes ? one.indexes.map(indexName) : one.refusedIndexes
    return {
      namespace: one.namespace,
      ...this.#names.differing(one.namespace),
      copy: {
        ended: one.copied,
        converging: one.converging,
        estimatedTotalBytes: one.totalBytes,
        estimatedCopiedBytes: Math.min(one.copiedBytes, one.totalBytes),
        estimatedDocumentCount: Math.max(one.estimatedDocuments, one.copiedDocuments),
        copiedDocumentCount: one.copiedDocuments,
      },
      indexes: countIndexes(one.indexes, { buildsIndexes, refused, restored }),
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
