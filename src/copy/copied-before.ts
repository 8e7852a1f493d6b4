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
 * After a read in natural order has started again from the beginning, skips documents that already exist on the
 * destination. A read of the destination's `_id` index costs less than inserts that the server refuses. An existing
 * document is at least as new as the one that was read. The same holds when the server refuses an insert.
 */
export class CopiedBefore {
  readonly #parts: Parts
  readonly #entry: CatalogEntry
  /** True if most documents of the next batch probably exist on the destination. */
  #asks: boolean

  private constructor(parts: Parts, entry: CatalogEntry, asks: boolean) {
    this.#parts = parts
    this.#entry = entry
    this.#asks = asks
  }

  /**
   * Returns null for a segment without `natural`, and for a collection in which another document may have the same
   * `_id`: there, an existing `_id` does not prove that this document exists.
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
   * @param documents the number of documents in the insert
   * @param existing the number of documents that were refused because they exist
   */
  inserted(documents: number, existing: number): void {
    if (existing * 2 > documents) this.#asks = true
  }
}
