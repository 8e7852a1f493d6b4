import { idElementOf } from '../documents/identity.ts'
import { batchBytes, firstBatchDocuments, RangeReader } from '../documents/range-reader.ts'
import type { RawCursor } from '../mongo/raw-cursor.ts'
import { DocumentPairing } from './pair-documents.ts'
import { type ReadForm, readForms } from './read-form.ts'
import type { Side } from './rechecks.ts'

export interface RangeComparison {
  /** Number of documents read. */
  documents: Record<Side, number>
  /** Bytes of the source's documents, also if only their hashes were read. */
  bytes: number
}

/**
 * Reads the same range of one collection from both clusters and compares it. Calls `suspect` with the `_id` element of
 * each document for which the two reads did not return the same bytes. The document may be equal nevertheless, because
 * both clusters may change during the reads.
 * @param waitForCapacity called with the bytes that the source has sent, and at the end with those of the documents that
 * it must send nevertheless, because their hashes cannot be compared
 * @param nextBatchBytes bytes of the next batch of one side
 * @param form what the cursors return of each document
 */
export async function compareRange(
  source: RawCursor,
  destination: RawCursor,
  suspect: (idElement: Buffer) => void,
  waitForCapacity: (bytesRead: number) => Promise<void>,
  nextBatchBytes: () => number = () => batchBytes,
  form: ReadForm = readForms.binary,
): Promise<RangeComparison> {
  const pairing = new DocumentPairing(suspect)
  const comparison: RangeComparison = { documents: { source: 0, destination: 0 }, bytes: 0 }
  const suspectUnread = (document: Buffer): boolean => {
    const isUnread = !form.isComparable(document)
    if (isUnread) suspect(idElementOf(document))
    return isUnread
  }
  let unreadBytes = 0
  const sides = {
    source: new RangeReader(source, undefined, (document) => {
      const size = form.sizeOf(document)
      comparison.bytes += size
      if (suspectUnread(document)) unreadBytes += size
    }),
    destination: new RangeReader(destination, undefined, (document) => void suspectUnread(document)),
  }
  let sentBytes = 0
  let batchSize = firstBatchDocuments
  for (;;) {
    const [left, right] = await Promise.all([sides.source.fill(), sides.destination.fill()])
    if (left && right) {
      batchSize = form.nextBatch(sides.source.documents, nextBatchBytes(), batchSize)
      // Both sides read the same number of documents, so that equal documents have equal positions.
      for (const reader of Object.values(sides)) reader.readAhead(batchSize)
      const from = { source: sides.source.at, destination: sides.destination.at }
      pairing.take(sides.source.documents, sides.destination.documents, from)
      for (const side of ['source', 'destination'] as const) sides[side].at = from[side]
    } else if (left || right) {
      const side = left ? 'source' : 'destination'
      sides[side].readAhead(batchSize)
      for (const document of sides[side].takeRemaining()) pairing.single(side, document)
    } else break
    const { bytes } = sides.source
    await waitForCapacity(bytes - sentBytes)
    sentBytes = bytes
  }
  pairing.end()
  // Charged only now, because a low rate makes the caller wait long for large documents, and a server closes a cursor that
  // is idle for ten minutes.
  if (unreadBytes > 0) await waitForCapacity(unreadBytes)
  for (const side of ['source', 'destination'] as const) comparison.documents[side] = sides[side].count
  return comparison
}
