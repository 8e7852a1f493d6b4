import { firstBatchDocuments, sizeForNext } from '../documents/range-reader.ts'
import type { ScanShape } from '../documents/read-documents.ts'
import { firstBatchSize, nextBatchSize, type ReadBatch } from '../domain/batch-size.ts'
import type { CatalogEntry } from '../domain/catalog.ts'
import type { InitialCompareMethod } from '../domain/compare-method.ts'
import { hashedBytesMax, hashProjection, sizeOfHashed } from '../mongo/document-hash.ts'

/** What a comparison of ranges reads of each document. */
export interface ReadForm {
  shape: ScanShape
  /** Returns the size of a document itself, in bytes. */
  sizeOf: (read: Buffer) => number
  /** True if equal bytes of both sides count as an equal document. */
  isComparable: (read: Buffer) => boolean
  /** Returns the number of documents of a range's first batch. */
  firstBatch: (entry: CatalogEntry, batchBytes: number) => number
  /**
   * Returns the number of documents of the next batch.
   * @param batchBytes bytes of a reply
   */
  nextBatch: (read: Buffer[], batchBytes: number, previous: number) => number
}

const firstBatchMax = 2_500

const wholeDocuments: ReadForm = {
  shape: {},
  sizeOf: ({ length }) => length,
  isComparable: () => true,
  // The batch aims at half of the bytes, in case the first documents are larger than the average.
  firstBatch: (entry, bytes) => firstBatchOf(entry, { documents: firstBatchMax, bytes: bytes / 2 }),
  nextBatch: sizeForNext,
}

/**
 * The documents that a server hashes for one reply. The size of the next documents is not known. If large documents
 * follow small ones, the server reads `documents` large ones for one reply, which must not take it until the time limit
 * of a batch.
 */
const hashedAtOnce = { documents: 1_000, bytes: 32 * 1024 * 1024 }

const hashes: ReadForm = {
  shape: { projection: hashProjection },
  sizeOf: sizeOfHashed,
  isComparable: (read) => sizeOfHashed(read) < hashedBytesMax,
  firstBatch: (entry) => firstBatchOf(entry, hashedAtOnce),
  nextBatch: (read, bytes, previous) => {
    const size = read.reduce((sum, one) => sum + sizeOfHashed(one), 0)
    const hashed = nextBatchSize({ documents: read.length, bytes: size }, hashedAtOnce, previous)
    // Documents with very large `_id`s fill a reply sooner.
    return Math.min(hashed, sizeForNext(read, bytes, previous))
  },
}

export const readForms: Readonly<Record<InitialCompareMethod, ReadForm>> = {
  binary: wholeDocuments,
  toHashedIndexKey: hashes,
}

/** If the copy has recorded the size of the collection's documents, a larger first batch saves one round trip in each range. */
function firstBatchOf(entry: CatalogEntry, max: ReadBatch): number {
  return Math.max(firstBatchDocuments, firstBatchSize(entry, max, firstBatchDocuments))
}
