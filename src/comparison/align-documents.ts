import { queryableId, sameIdBytes } from './document-id.ts'
import type { DocumentStream } from './document-stream.ts'
import { identityKey } from './identity-key.ts'

export interface AlignOptions {
  collated: boolean
  /** Returns the documents of the left cluster whose `_id` is one of these values. */
  find: (ids: unknown[]) => Promise<Buffer[]>
  found: Findings
  /** Number of documents of each side that are searched in memory before the left cluster is queried. */
  windowDocuments?: number
}

export interface Findings {
  /** The document is only in the left stream. */
  missing(document: Buffer): void
  /** The document is only in the right stream. */
  extra(document: Buffer): void
  different(left: Buffer, right: Buffer): void
}

/** A gap of more documents than this costs one query per window. That is cheap compared with reading the documents. */
const windowDocumentsDefault = 1_000
const windowBytesMax = 8 * 1024 * 1024

/**
 * Compares two streams of documents, both in the server's order of `_id`, and reports which documents have no partner
 * and which differ. It does not order `_id`s itself, because it would need the exact rules of all types, collations and
 * versions. It relies only on the fact that both streams have the same order:
 *
 *   equal bytes at both heads      the fast path: both streams advance
 *   equal identities at the heads  one document with two contents
 *   else, within a window          the first identity that both sides share; documents before it have no partner
 *   else                           the left cluster is queried for the next `_id`s of the right stream
 *
 * Under a collation, two `_id`s with different bytes can be equal, and only the server can tell. It is then queried at
 * once.
 */
export async function alignDocuments(
  left: DocumentStream,
  right: DocumentStream,
  options: AlignOptions,
): Promise<void> {
  await new Alignment(left, right, options).run()
}

class Alignment {
  readonly #left: DocumentStream
  readonly #right: DocumentStream
  readonly #options: AlignOptions
  readonly #found: Findings
  readonly #windowDocuments: number

  constructor(left: DocumentStream, right: DocumentStream, options: AlignOptions) {
    this.#left = left
    this.#right = right
    this.#options = options
    this.#found = options.found
    this.#windowDocuments = options.windowDocuments ?? windowDocumentsDefault
  }

  async run(): Promise<void> {
    for (;;) {
      if (this.#left.drained || this.#right.drained) await Promise.all([this.#left.fill(), this.#right.fill()])
      const [a, b] = [this.#left.head, this.#right.head]
      if (a !== undefined && b !== undefined) {
        if (a.equals(b)) {
          this.#left.advance()
          this.#right.advance()
        } else await this.#alignHeads(a, b)
      } else if (a !== undefined) this.#takeMissing(a)
      else if (b !== undefined) this.#takeExtra(b)
      else return
    }
  }

  #takeMissing(document: Buffer): void {
    this.#found.missing(document)
    this.#left.advance()
  }

  #takeExtra(document: Buffer): void {
    this.#found.extra(document)
    this.#right.advance()
  }

  async #alignHeads(a: Buffer, b: Buffer): Promise<void> {
    const key = identityKey(a)
    if (key === identityKey(b)) await this.#takeRuns(key)
    else if (!(this.#options.collated && (await this.#seek(b)))) await this.#search()
  }

  /** Compares all documents with this `_id` together, because several shards can have one each, in any order. */
  async #takeRuns(key: string): Promise<void> {
    const ours = await run(this.#left, key)
    const theirs = await run(this.#right, key)
    this.#left.advance(ours.length)
    this.#right.advance(theirs.length)
    const [missing, extra] = [without(ours, theirs), without(theirs, ours)]
    for (let at = 0; at < Math.max(missing.length, extra.length); at++) {
      const [a, b] = [missing[at], extra[at]]
      if (a && b) this.#found.different(a, b)
      else if (a) this.#found.missing(a)
      else if (b) this.#found.extra(b)
    }
  }

  /**
   * Queries the left cluster for the partner of `b`, the head of the right stream. Returns false if the `_id` cannot be
   * queried or the partner is too far away.
   */
  async #seek(b: Buffer): Promise<boolean> {
    const id = queryableId(b)
    if (id === null) return false
    const [partner] = await this.#options.find([id.value])
    if (partner === undefined) {
      this.#takeExtra(b)
      return true
    }
    for (let distance = 0; distance < this.#windowDocuments; distance++) {
      const a = await this.#left.ahead(distance)
      if (a === undefined) break
      if (!sameIdBytes(a, partner)) continue
      this.#drop(distance, 0)
      if (!a.equals(b)) this.#found.different(a, b)
      this.#left.advance()
      this.#right.advance()
      return true
    }
    return false
  }

  /** Reports the left documents before the identity `until` as missing, and advances past them. */
  async #skipLeft(until: string): Promise<void> {
    for (;;) {
      if (this.#left.drained) await this.#left.fill()
      const a = this.#left.head
      if (a === undefined || identityKey(a) === until) return
      this.#takeMissing(a)
    }
  }

  async #search(): Promise<void> {
    const ours = new Map<string, number>()
    const theirs = new Map<string, number>()
    let bytes = 0
    let distance = 0
    for (; distance < this.#windowDocuments && bytes < windowBytesMax; distance++) {
      const [a, b] = await Promise.all([this.#left.ahead(distance), this.#right.ahead(distance)])
      if (a === undefined && b === undefined) break
      if (a !== undefined) {
        const key = identityKey(a)
        const partner = theirs.get(key)
        if (partner !== undefined) return this.#drop(distance, partner)
        if (!ours.has(key)) ours.set(key, distance)
      }
      if (b !== undefined) {
        const key = identityKey(b)
        const partner = ours.get(key)
        if (partner !== undefined) return this.#drop(partner, distance)
        if (!theirs.has(key)) theirs.set(key, distance)
      }
      bytes += Math.max(a?.length ?? 0, b?.length ?? 0)
    }
    const leftWhole = this.#left.ended && (await this.#left.ahead(distance)) === undefined
    const rightWhole = this.#right.ended && (await this.#right.ahead(distance)) === undefined
    // All documents of one side are in its map, so the documents that were read from the other side have no partner.
    if (rightWhole) this.#drop(distance, leftWhole ? distance : 0)
    else if (leftWhole) this.#drop(0, distance)
    else await this.#queryLeft(distance)
  }

  /** Reports this many documents of each side as documents without a partner, up to the end of the stream. */
  #drop(ours: number, theirs: number): void {
    for (let count = 0; count < ours && this.#left.head; count++) this.#takeMissing(this.#left.head)
    for (let count = 0; count < theirs && this.#right.head; count++) this.#takeExtra(this.#right.head)
  }

  /**
   * Called when the windows have no identity in common, so that one side is far ahead of the other. The left stream
   * must skip to the first document of the right window that the left cluster has. If it has none of them, the whole
   * window is extra. An `_id` that cannot be queried counts as missing on the left, so a pair may be listed as one
   * missing and one extra document.
   */
  async #queryLeft(distance: number): Promise<void> {
    const window: Buffer[] = []
    for (let at = 0; at < distance; at++) window.push((await this.#right.ahead(at)) as Buffer)
    const ids = window.map(queryableId).flatMap((id) => (id === null ? [] : [id.value]))
    const there = new Set((await this.#options.find(ids)).map(identityKey))
    const first = window.findIndex((document) => there.has(identityKey(document)))
    this.#drop(0, first === -1 ? distance : first)
    if (first === -1) return
    await this.#skipLeft(identityKey(window[first] as Buffer))
  }
}

async function run(stream: DocumentStream, key: string): Promise<Buffer[]> {
  const documents: Buffer[] = []
  for (;;) {
    const document = await stream.ahead(documents.length)
    if (document === undefined || identityKey(document) !== key) return documents
    documents.push(document)
  }
}

function without(documents: Buffer[], others: Buffer[]): Buffer[] {
  const left = [...others]
  return documents.filter((document) => {
    const at = left.findIndex((other) => other.equals(document))
    if (at !== -1) left.splice(at, 1)
    return at === -1
  })
}
