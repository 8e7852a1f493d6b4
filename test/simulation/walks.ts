import type { Document } from 'mongodb'
import type { Content } from './content.ts'
import { int32Of } from './wire.ts'

interface Walk {
  collection: number
  next: number
  /** Exclusive upper bound of the documents. */
  end: number
}

/** Bytes that `$collStats` reports for each document: so many that a collection of a hundred documents is copied in several segments. */
const reportedBytes = 3 * 1024 * 1024
const reportedDocuments = 10

/** Reads of whole collections, or of ranges of `_id`s, in the order of the `_id` index. */
export class Walks {
  /** Maximum number of documents in one batch, regardless of the client's `batchSize`. */
  batchMax = Number.POSITIVE_INFINITY
  /** The documents that reads have passed, whether or not they existed. */
  readonly passed = new Set<number>()
  readonly #content: Content
  readonly #read: (document: number) => Buffer[]
  readonly #open = new Map<string, Walk>()
  #samples = 0

  constructor(content: Content, read: (document: number) => Buffer[]) {
    this.#content = content
    this.#read = read
  }

  begin(id: string, collection: number, { min, max }: Document): void {
    const bound = (value: Document | undefined, otherwise: number): number =>
      value ? int32Of(value['_id']) : otherwise
    this.#open.set(id, { collection, next: bound(min, collection), end: bound(max, this.#content.count) })
  }

  has(id: string): boolean {
    return this.#open.has(id)
  }

  end(id: string): void {
    this.#open.delete(id)
  }

  clear(): void {
    this.#open.clear()
  }

  /** Returns the next documents as they are now, not as they were when the walk began. */
  next(id: string, size: number): { batch: Buffer[]; over: boolean } {
    const walk = this.#open.get(id) as Walk
    const limit = Math.min(size, this.batchMax)
    const batch: Buffer[] = []
    for (; walk.next < walk.end && batch.length < limit; walk.next += this.#content.collections) {
      batch.push(...this.#read(walk.next))
      this.passed.add(walk.next)
    }
    const over = walk.next >= walk.end
    if (over) this.end(id)
    return { batch, over }
  }

  size(collection: number): { s: number; c: number } {
    const documents = this.#all(collection).length
    return { s: documents * reportedBytes, c: documents * reportedDocuments }
  }

  /** Returns different documents each time, so that two plans of a collection differ. */
  sample(collection: number): Buffer[] {
    const all = this.#all(collection)
    const from = this.#samples++ % 3
    return all.slice(from).filter((_, at) => at % 2 === 0)
  }

  #all(collection: number): Buffer[] {
    const found: Buffer[] = []
    for (let document = collection; document < this.#content.count; document += this.#content.collections) {
      found.push(...this.#read(document))
    }
    return found
  }
}
