import { nextBatchSize, type ReadBatch } from '../domain/batch-size.ts'
import type { RawCursor } from '../mongo/cluster.ts'
import { DocumentPairing } from './pair-documents.ts'
import type { Side } from './rechecks.ts'

/** Bytes per batch and side. One batch is compared while the next is read. */
const batchMax: ReadBatch = { bytes: 2 * 1024 * 1024, documents: 5_000 }
export const firstBatchDocuments = 500

export interface RangeComparison {
  /** Documents read. */
  documents: Record<Side, number>
  bytes: number
}

/**
 * Reads the same range of one collection from both clusters and compares it. Calls `suspect` with the `_id` element of
 * each document that is not byte for byte equal on both. It is only a suspicion, because both clusters may change
 * during the read.
 */
export async function compareRange(
  source: RawCursor,
  destination: RawCursor,
  suspect: (idElement: Buffer) => void,
  waitForCapacity: (bytesRead: number) => Promise<void>,
): Promise<RangeComparison> {
  const pairing = new DocumentPairing(suspect)
  const comparison: RangeComparison = { documents: { source: 0, destination: 0 }, bytes: 0 }
  const sides = { source: new Reader(source), destination: new Reader(destination) }
  let batchSize = firstBatchDocuments
  for (;;) {
    const [left, right] = await Promise.all([sides.source.fill(), sides.destination.fill()])
    if (left && right) {
      batchSize = nextBatchSize(sizeOf(sides.source.documents), batchMax, batchSize)
      // Both sides read the same number of documents, so that equal documents have equal positions.
      for (const reader of Object.values(sides)) reader.readAhead(batchSize)
      const from = { source: sides.source.at, destination: sides.destination.at }
      pairing.take(sides.source.documents, sides.destination.documents, from)
      for (const side of ['source', 'destination'] as const) sides[side].at = from[side]
    } else if (left || right) {
      const side = left ? 'source' : 'destination'
      sides[side].readAhead(batchSize)
      for (const document of sides[side].rest()) pairing.single(side, document)
    } else break
    const { bytes } = sides.source
    await waitForCapacity(bytes - comparison.bytes)
    comparison.bytes = bytes
  }
  pairing.end()
  for (const side of ['source', 'destination'] as const) comparison.documents[side] = sides[side].count
  return comparison
}

function sizeOf(documents: Buffer[]): ReadBatch {
  return { documents: documents.length, bytes: documents.reduce((bytes, { length }) => bytes + length, 0) }
}

/** The cursor of one side, with the batch being compared and the next batch being read. */
class Reader {
  documents: Buffer[] = []
  at = 0
  count = 0
  bytes = 0
  readonly #cursor: RawCursor
  #next: ReturnType<RawCursor['next']> | null = null

  constructor(cursor: RawCursor) {
    this.#cursor = cursor
  }

  /** False when there is nothing left. */
  async fill(): Promise<boolean> {
    while (this.at >= this.documents.length) {
      const reading = this.#next ?? this.#cursor.next({ batchSize: firstBatchDocuments })
      this.#next = null
      const batch = await reading
      if (!batch) {
        this.documents = []
        this.at = 0
        return false
      }
      this.documents = batch.documents
      this.at = 0
      this.count += batch.documents.length
      for (const document of batch.documents) this.bytes += document.length
    }
    return true
  }

  readAhead(batchSize: number): void {
    if (this.#next) return
    this.#next = this.#cursor.next({ batchSize })
    this.#next.catch(() => {}) // `fill` awaits it and throws
  }

  rest(): Buffer[] {
    const rest = this.documents.slice(this.at)
    this.at = this.documents.length
    return rest
  }
}
