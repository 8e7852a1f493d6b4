import { existingIds } from '../documents/existing-ids.ts'
import { idElementOf, identityKey } from '../documents/identity.ts'
import { targetOf } from '../documents/write-identities.ts'
import type { CatalogEntry, Segment } from '../domain/catalog.ts'
import { mayRepeatIds } from '../domain/shard-key.ts'
import { renamedTo } from '../mongo/collection-name.ts'
import type { CopySegmentParts } from './copy-segment.ts'
import { movedOnDestination } from './segment-writes.ts'

type Parts = Pick<CopySegmentParts, 'source' | 'destination' | 'locate'>

/**
 * Leaves out documents that the destination already has, when a read in natural order has started at the beginning again.
 * A read of the `_id` index of the destination costs less than inserts that the server refuses. An existing document is
 * as new as the one that was read, or newer, as it is when an insert is refused.
 */
export class CopiedBefore {
  readonly #parts: Parts
  readonly #entry: CatalogEntry
  /** Whether the documents of the next batch probably exist. */
  #asks: boolean

  private constructor(parts: Parts, entry: CatalogEntry, asks: boolean) {
    this.#parts = parts
    this.#entry = entry
    this.#asks = asks
  }

  /**
   * Null for a segment that continues where it stopped, and where another document may have the same `_id`: only an
   * insert shows whether a document exists.
   */
  static of(parts: Parts, entry: CatalogEntry, segment: Segment): CopiedBefore | null {
    if (!segment.natural || mayRepeatIds(parts.source, parts.destination, entry)) return null
    return new CopiedBefore(parts, entry, segment.attempts > 1 && segment.documents === 0)
  }

  /** Returns the documents of a batch that may be missing on the destination. */
  async without(documents: Buffer[]): Promise<Buffer[]> {
    if (!this.#asks) return documents
    const idElements = documents.map(idElementOf)
    const existing = await existingIds(this.#parts.destination, targetOf(this.#entry), idElements).catch(
      async (error) => {
        throw renamedTo(error) === undefined ? error : await movedOnDestination(this.#parts, this.#entry)
      },
    )
    const missing = documents.filter((_, at) => !existing.has(identityKey(idElements[at] as Buffer)))
    this.#asks = missing.length * 2 < documents.length
    return missing
  }

  /**
   * Called after an insert.
   * @param existing the number of documents that were refused because they exist
   */
  inserted(documents: number, existing: number): void {
    if (existing * 2 > documents) this.#asks = true
  }
}
