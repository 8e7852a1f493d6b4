export interface ReadBatch {
  documents: number
  bytes: number
}

/** The number of documents to read next, so that a batch of documents like the last ones is within both limits. */
export function nextBatchSize(read: ReadBatch, max: ReadBatch, previous: number): number {
  if (read.bytes === 0) return previous
  const fitting = Math.floor((max.bytes * read.documents) / read.bytes)
  return Math.max(1, Math.min(max.documents, fitting))
}
