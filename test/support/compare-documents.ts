import type { Collection, Document, FindCursor } from 'mongodb'
import { elements, idBytes, show } from './compare-raw.ts'

/**
 * Maximum number of documents by which two streams may diverge. If they diverge by more, the comparison of the
 * collection stops.
 */
const windowDocumentsMax = 2000
const windowBytesMax = 48 * 1024 * 1024
const batchDocuments = 20_000

export interface Tally {
  documents: number
  bytes: number
}

/** Keeps the first differences. Readers stop when it is `full`. */
export class Differences {
  readonly list: string[] = []
  private readonly limit: number

  constructor(limit: number) {
    this.limit = limit
  }

  get full(): boolean {
    return this.list.length >= this.limit
  }

  add(namespace: string, kind: string, detail: string): void {
    if (this.list.length < this.limit) this.list.push(`${namespace}: ${kind}: ${detail}`)
  }
}

/** Reads documents as bytes, one server batch at a time, and can prefetch a window of documents. */
class RawStream {
  private readonly cursor: FindCursor<Document>
  private buffered: Buffer[] = []
  private at = 0
  ended = false

  constructor(cursor: FindCursor<Document>) {
    this.cursor = cursor
  }

  get head(): Buffer | undefined {
    return this.buffered[this.at]
  }

  get empty(): boolean {
    return this.at >= this.buffered.length
  }

  async fill(): Promise<void> {
    if (this.empty) await this.more()
  }

  advance(count = 1): void {
    this.at += count
  }

  async window(): Promise<Buffer[]> {
    while (this.buffered.length - this.at < windowDocumentsMax && this.bufferedBytes() < windowBytesMax) {
      if (!(await this.more())) break
    }
    return this.buffered.slice(this.at)
  }

  private bufferedBytes(): number {
    let bytes = 0
    for (let i = this.at; i < this.buffered.length; i++) bytes += this.buffered[i]?.length ?? 0
    return bytes
  }

  private async more(): Promise<boolean> {
    if (this.ended || !(await this.cursor.hasNext())) {
      this.ended = true
      return false
    }
    const batch = this.cursor.readBufferedDocuments() as unknown as Buffer[]
    this.buffered = this.empty ? batch : [...this.buffered.slice(this.at), ...batch]
    this.at = 0
    return true
  }
}

export type Order = { readonly _id: 1 } | { readonly $natural: 1 }

function read(collection: Collection, order: Order): FindCursor<Document> {
  const cursor = collection.find({}, { raw: true, batchSize: batchDocuments })
  // A mongos merges the shards' streams in order only if the query has a sort; a hint alone is not enough.
  return '_id' in order ? cursor.sort({ _id: 1 }).hint({ _id: 1 }) : cursor.hint({ $natural: 1 })
}

/**
 * Compares every document byte for byte. Both sides are read in the server's own order of `_id` (or in natural order).
 * Both servers use the same order, so two streams that differ are realigned at the next `_id` that they share. Therefore
 * this code does not need to know how MongoDB orders values or what a collation says.
 */
export async function compareDocuments(
  source: Collection,
  destination: Collection,
  order: Order,
  differences: Differences,
): Promise<Tally> {
  const cursors = [read(source, order), read(destination, order)] as const
  const left = new RawStream(cursors[0])
  const right = new RawStream(cursors[1])
  const tally: Tally = { documents: 0, bytes: 0 }
  const count = (document: Buffer) => {
    tally.documents++
    tally.bytes += document.length
  }
  try {
    while (!differences.full) {
      if (left.empty || right.empty) await Promise.all([left.fill(), right.fill()])
      const a = left.head
      const b = right.head
      if (a === undefined && b === undefined) break
      if (a !== undefined && b !== undefined && Buffer.compare(a, b) === 0) {
        count(a)
        left.advance()
        right.advance()
        continue
      }
      if ('$natural' in order) {
        // After the orders diverge once, further comparisons in natural order give no information.
        differences.add(source.namespace, 'natural order differs', `after ${tally.documents}: ${heads(left, right)}`)
        break
      }
      const differing = await takeDiffering(left, right)
      if (differing === undefined) {
        differences.add(source.namespace, 'thousands of documents in a row differ', `from ${heads(left, right)}`)
        break
      }
      for (const document of differing.read) count(document)
      report(source.namespace, differing.missing, differing.extra, differences)
    }
  } finally {
    await Promise.all(cursors.map((cursor) => cursor.close()))
  }
  return tally
}

function heads(left: RawStream, right: RawStream): string {
  return [left, right].map(({ head }) => (head ? show(idBytes(head)) : 'end')).join(' | ')
}

interface Differing {
  missing: Buffer[]
  extra: Buffer[]
  /** All documents of the source that were taken. Of several documents with one `_id`, some may be equal. */
  read: Buffer[]
}

/**
 * Takes from both streams the documents before the next `_id` that they share, or the differing documents of one shared
 * `_id`. Returns undefined if the two windows share no `_id` and a stream has more documents, because then it is unknown
 * which documents lack a counterpart.
 */
async function takeDiffering(left: RawStream, right: RawStream): Promise<Differing | undefined> {
  const [a, b] = await Promise.all([left.window(), right.window()])
  const keysA = a.map(keyOf)
  const keysB = b.map(keyOf)
  if (a.length > 0 && keysA[0] === keysB[0]) {
    // Several shards may hold this `_id`, and their order is then arbitrary, so take the whole run on both sides.
    const runA = a.slice(0, runLength(keysA))
    const runB = b.slice(0, runLength(keysB))
    left.advance(runA.length)
    right.advance(runB.length)
    return { missing: without(runA, runB), extra: without(runB, runA), read: runA }
  }
  const firstInB = new Map<string, number>()
  for (let i = keysB.length - 1; i >= 0; i--) firstInB.set(keysB[i] as string, i)
  const shared = keysA.findIndex((key) => firstInB.has(key))
  const isComplete = (left.ended && right.ended) || (left.ended && a.length === 0) || (right.ended && b.length === 0)
  if (shared === -1 && !isComplete) return undefined
  const takeA = shared === -1 ? a.length : shared
  const takeB = shared === -1 ? b.length : (firstInB.get(keysA[shared] as string) as number)
  left.advance(takeA)
  right.advance(takeB)
  const missing = a.slice(0, takeA)
  return { missing, extra: b.slice(0, takeB), read: missing }
}

function keyOf(document: Buffer): string {
  return idBytes(document).toString('latin1')
}

function runLength(keys: string[]): number {
  const end = keys.findIndex((key) => key !== keys[0])
  return end === -1 ? keys.length : end
}

function without(documents: Buffer[], others: Buffer[]): Buffer[] {
  const left = others.map((other) => other.toString('latin1'))
  return documents.filter((document) => {
    const found = left.indexOf(document.toString('latin1'))
    if (found !== -1) left.splice(found, 1)
    return found === -1
  })
}

function report(namespace: string, missing: Buffer[], extra: Buffer[], differences: Differences): void {
  const counterparts = new Map(extra.map((document) => [keyOf(document), document]))
  for (const document of missing) {
    const other = counterparts.get(keyOf(document))
    counterparts.delete(keyOf(document))
    const id = show(idBytes(document))
    if (other) differences.add(namespace, 'document differs', `${id} (${firstDifference(document, other)})`)
    else differences.add(namespace, 'document missing on destination', id)
  }
  for (const document of counterparts.values()) {
    differences.add(namespace, 'document only on destination', show(idBytes(document)))
  }
}

/** Describes the first top-level field that differs, for the message of a failed test. */
function firstDifference(a: Buffer, b: Buffer): string {
  const fieldsA = [...elements(a)]
  const fieldsB = [...elements(b)]
  for (let i = 0; i < Math.max(fieldsA.length, fieldsB.length); i++) {
    const [x, y] = [fieldsA[i], fieldsB[i]]
    if (x && y && x.name === y.name && x.value.equals(y.value)) continue
    const text = (field: typeof x) => (field ? `${field.name}=${show(field.value)}` : 'end')
    return `${text(x)} | ${text(y)}`.slice(0, 400)
  }
  return 'same fields'
}
