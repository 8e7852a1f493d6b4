import type { Collection, Document, FindCursor } from 'mongodb'
import { elements, idBytes, show } from './compare-raw.ts'

/** How far two streams may be apart and still be brought together again. Beyond it every document there is a difference. */
const windowDocumentsMax = 2000
const windowBytesMax = 48 * 1024 * 1024
const batchDocuments = 20_000

export interface Tally {
  documents: number
  bytes: number
}

/** Keeps the first differences; `full` tells the readers to stop. */
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

/** Reads documents as bytes, a server batch at a time, with a window to look ahead in. */
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
  // Through a router the hint alone would leave the shards' streams unmerged.
  return '_id' in order ? cursor.sort({ _id: 1 }).hint({ _id: 1 }) : cursor.hint({ $natural: 1 })
}

/**
 * Compares every document byte for byte, both sides in the server's own order of `_id` (or in natural order).
 * Both orders come from the same comparison, so two streams that differ are brought together at the next `_id` they
 * have in common; nothing here needs to know how MongoDB orders values or what a collation says.
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
        // Orders that have parted once say nothing more of use.
        differences.add(source.namespace, 'natural order differs', `after ${tally.documents}: ${heads(left, right)}`)
        break
      }
      const parted = await apart(left, right)
      if (parted === undefined) {
        differences.add(source.namespace, 'thousands of documents in a row differ', `from ${heads(left, right)}`)
        break
      }
      for (const document of parted[0]) count(document)
      report(source.namespace, parted[0], parted[1], differences)
    }
  } finally {
    await Promise.all(cursors.map((cursor) => cursor.close()))
  }
  return tally
}

function heads(left: RawStream, right: RawStream): string {
  return [left, right].map(({ head }) => (head ? show(idBytes(head)) : 'end')).join(' | ')
}

/**
 * Takes from both streams what stands before the next `_id` they share, or the differing documents of one shared `_id`.
 * Undefined: the two windows share nothing and more is to come, so it cannot be told which document lacks a partner.
 */
async function apart(left: RawStream, right: RawStream): Promise<[Buffer[], Buffer[]] | undefined> {
  const [a, b] = await Promise.all([left.window(), right.window()])
  const keysA = a.map(keyOf)
  const keysB = b.map(keyOf)
  if (a.length > 0 && keysA[0] === keysB[0]) {
    // Shards may each hold this `_id` and their order is then arbitrary: take the whole run on both sides.
    const runA = a.slice(0, runLength(keysA))
    const runB = b.slice(0, runLength(keysB))
    left.advance(runA.length)
    right.advance(runB.length)
    return [without(runA, runB), without(runB, runA)]
  }
  const firstInB = new Map<string, number>()
  for (let i = keysB.length - 1; i >= 0; i--) firstInB.set(keysB[i] as string, i)
  const shared = keysA.findIndex((key) => firstInB.has(key))
  const known = (left.ended && right.ended) || (left.ended && a.length === 0) || (right.ended && b.length === 0)
  if (shared === -1 && !known) return undefined
  const takeA = shared === -1 ? a.length : shared
  const takeB = shared === -1 ? b.length : (firstInB.get(keysA[shared] as string) as number)
  left.advance(takeA)
  right.advance(takeB)
  return [a.slice(0, takeA), b.slice(0, takeB)]
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
  const partner = new Map(extra.map((document) => [keyOf(document), document]))
  for (const document of missing) {
    const other = partner.get(keyOf(document))
    partner.delete(keyOf(document))
    const id = show(idBytes(document))
    if (other) differences.add(namespace, 'document differs', `${id} (${firstDifference(document, other)})`)
    else differences.add(namespace, 'document missing on destination', id)
  }
  for (const document of partner.values()) {
    differences.add(namespace, 'document only on destination', show(idBytes(document)))
  }
}

/** Names the first top-level field that is not the same, so that a failed test says what to look for. */
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
