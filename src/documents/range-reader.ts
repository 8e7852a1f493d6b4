import { nextBatchSize } from '../domain/batch-size.ts'
import type { RawBatch, RawCursor } from '../mongo/raw-cursor.ts'
import { scanLimitMS } from './read-documents.ts'

/** Bytes per batch when two clusters are compared. One batch is compared while the next is read. */
export const batchBytes = 2 * 1024 * 1024
/** The limit for a batch of `batchBytes`. For larger batches it grows in proportion to the bytes. */
const batchDocumentsMax = 5_000
export const firstBatchDocuments = 500

/**
 * Returns the number of documents to read next, so that their total size is about `bytesMax` if they are as large as the
 * last documents. A limit on their number applies too.
 */
export function sizeForNext(documents: Buffer[], bytesMax: number, previous: number): number {
  const bytes = documents.reduce((sum, { length }) => sum + length, 0)
  return nextBatchSize(
    { documents: documents.length, bytes },
    { documents: Math.ceil((batchDocumentsMax * bytesMax) / batchBytes), bytes: bytesMax },
    previous,
  )
}

/** Runs a read, either at once or as soon as a limit allows it. */
type RunRead = <T>(read: () => Promise<T>) => Promise<T>

/** One side of a comparison: a cursor, with the batch being compared and the next batch being read. */
export class RangeReader {
  documents: Buffer[] = []
  at = 0
  count = 0
  bytes = 0
  readonly #cursor: RawCursor
  readonly #runRead: RunRead
  readonly #onRead: (document: Buffer) => void
  #next: Promise<RawBatch | null> | null = null

  /** @param onRead called once for each document that the cursor returns */
  constructor(cursor: RawCursor, runRead: RunRead = (read) => read(), onRead: (document: Buffer) => void = () => {}) {
    this.#cursor = cursor
    this.#runRead = runRead
    this.#onRead = onRead
  }

  /** Reads until a document is available. Returns false when the cursor is exhausted. */
  async fill(): Promise<boolean> {
    while (this.at >= this.documents.length) {
      const reading = this.#next ?? this.#read(firstBatchDocuments)
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
      for (const document of batch.documents) {
        this.bytes += document.length
        this.#onRead(document)
      }
    }
    return true
  }

  readAhead(batchSize: number): void {
    if (this.#next) return
    this.#next = this.#read(batchSize)
    this.#next.catch(() => {}) // `fill` awaits it and throws
  }

  takeRemaining(): Buffer[] {
    const remaining = this.documents.slice(this.at)
    this.at = this.documents.length
    return remaining
  }

  #read(batchSize: number): Promise<RawBatch | null> {
    return this.#runRead(() => this.#cursor.next({ batchSize, timeoutMS: scanLimitMS }))
  }
}
