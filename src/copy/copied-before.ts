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
 * Skips documents that already exist on the destination, when a segment is read in natural order again after an
 * interruption. While most documents of the last batch existed, it looks the `_id`s of the next batch up on the
 * destination, because a read of the `_id` index there costs less than inserts that the server refuses. Otherwise the
 * copy inserts all documents of a batch. Neither way replaces an existing document, which is at least as new as the one
 * that was read: an earlier attempt of the copy or an event wrote it.
 */
export class CopiedBefore {
  readonly #parts: Parts
  readonly #entry: CatalogEntry
  /** True if most documents of the next batch probably exist on the destination, so their `_id`s are looked up there. */
  #looksUp: boolean

  private constructor(parts: Parts, entry: CatalogEntry, looksUp: boolean) {
    this.#parts = parts
    this.#entry = entry
    this.#looksUp = looksUp
  }

  /**
   * Returns null for a segment that is read in `_id` order, and for a collection in which two shards may have documents
   * with the same `_id`. In such a collection, an existing `_id` does not prove that this document exists.
   */
  static of(parts: Parts, entry: CatalogEntry, segment: Segment): CopiedBefore | null {
    if (!segment.natural || mayRepeatIds(parts.source, parts.destination, entry)) return null
    // `openSegment` has set `documents` to 0 if the read starts at the beginning.
    const beginsAgain = segment.attempts > 1 && segment.documents === 0
    return new CopiedBefore(parts, entry, beginsAgain)
  }

  /**
   * Returns the documents of a batch that must be inserted: those that do not exist on the destination or, without a
   * lookup, all of them. Throws a transient error if the collection was renamed or dropped on the destination.
   */
  async missing(documents: Buffer[]): Promise<Buffer[]> {
    if (!this.#looksUp) return documents
    const idElements = documents.map(idElementOf)
    const existing = await existingIds(this.#parts.destination, targetOf(this.#entry), idElements).catch(
      async (error) => {
        throw renamedTo(error) === undefined ? error : await movedOnDestination(this.#parts, this.#entry)
      },
    )
    const missing = documents.filter((_, at) => !existing.has(identityKey(idElements[at] as Buffer)))
    this.#looksUp = missing.length * 2 < documents.length
    return missing
  }

  /**
   * Called after an insert.
   * @param documents the number of documents in the insert
   * @param existing the number of documents that the server refused because they exist
   */
  inserted(documents: number, existing: number): void {
    if (existing * 2 > documents) this.#looksUp = true
  }
}
