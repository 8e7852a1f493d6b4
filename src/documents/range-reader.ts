import { nextBatchSize } from '../domain/batch-size.ts'
import type { RawBatch, RawCursor } from '../mongo/cluster.ts'
import { scanLimitMS } from './read-documents.ts'

/** Bytes per batch, when two clusters are compared. One batch is compared while the next is read. */
export const batchBytes = 2 * 1024 * 1024
const batchDocumentsMax = 5_000
export const firstBatchDocuments = 500

/** The number of documents whose size is about `bytesMax`, by the size of the last ones. */
export function sizeForNext(documents: Buffer[], bytesMax: number, previous: number): number {
  const bytes = documents.reduce((sum, { length }) => sum + length, 0)
  return nextBatchSize(
    { documents: documents.length, bytes },
    { documents: batchDocumentsMax, bytes: bytesMax },
    previous,
  )
}

/** Runs a read, at once or when it may run. */
type Runs = <T>(read: () => Promise<T>) => Promise<T>

/** One side of a comparison: a cursor, with the batch being compared and the next batch being read. */
export class RangeReader {
  documents: Buffer[] = []
  at = 0
  count = 0
  bytes = 0
  readonly #cursor: RawCursor
  readonly #runs: Runs
  #next: Promise<RawBatch | null> | null = null

  constructor(cursor: RawCursor, runs: Runs = (read) => read()) {
    this.#cursor = cursor
    this.#runs = runs
  }

  /** False when there is nothing left. */
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
      for (const document of batch.documents) this.bytes += document.length
    }
    return true
  }

  readAhead(batchSize: number): void {
    if (this.#next) return
    this.#next = this.#read(batchSize)
    this.#next.catch(() => {}) // `fill` awaits it and throws
  }

  rest(): Buffer[] {
    const rest = this.documents.slice(this.at)
    this.at = this.documents.length
    return rest
  }

  #read(batchSize: number): Promise<RawBatch | null> {
    return this.#runs(() => this.#cursor.next({ batchSize, timeoutMS: scanLimitMS }))
  }
}
