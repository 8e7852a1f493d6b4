export interface ReadBatch {
  documents: number
  bytes: number
}

/**
 * Returns the number of documents to read next. The batch is within both limits of `max` if its documents are on average
 * as large as those that were read before.
 */
export function nextBatchSize(read: ReadBatch, max: ReadBatch, previous: number): number {
  if (read.bytes === 0) return previous
  const fitting = Math.floor((max.bytes * read.documents) / read.bytes)
  return Math.max(1, Math.min(max.documents, fitting))
}

/**
 * Returns the number of documents to read first from a collection whose estimated size is known, within both limits of `max`
 * by its average document.
 * @param unmeasured the result if the size is not known
 */
export function firstBatchSize(
  { estimatedBytes, estimatedDocuments }: { estimatedBytes: number; estimatedDocuments: number },
  max: ReadBatch,
  unmeasured: number,
): number {
  if (estimatedDocuments === 0) return unmeasured
  return nextBatchSize({ documents: estimatedDocuments, bytes: estimatedBytes }, max, unmeasured)
}
