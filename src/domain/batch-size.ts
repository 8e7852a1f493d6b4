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
