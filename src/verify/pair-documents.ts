import { hash } from 'node:crypto'
import { idElementOf, identityKey } from '../documents/identity.ts'
import type { Side } from './rechecks.ts'

/** Maximum number of unpaired documents of one side. With more, the unpaired documents of both sides become suspects. */
const unpairedMax = 4_000

interface Unpaired {
  digest: string
  idElement: Buffer
}

/** SHA-256. Equal digests mean equal bytes. */
export function digestOf(document: Buffer): string {
  return hash('sha256', document, 'binary')
}

/**
 * Pairs the documents of two cursors, which should return equal documents in (nearly) the same order, and reports those
 * that are not equal byte for byte. It compares `_id`s only for equality, so it does not depend on MongoDB's sort
 * order. A document that only one side has stays unpaired.
 */
export class DocumentPairing {
  readonly #suspect: (idElement: Buffer) => void
  readonly #unpaired: Record<Side, Map<string, Unpaired>> = { source: new Map(), destination: new Map() }
  equal = 0

  constructor(suspect: (idElement: Buffer) => void) {
    this.#suspect = suspect
  }

  /** Pairs documents until one list ends, and advances both positions in `from`. */
  take(source: Buffer[], destination: Buffer[], from: Record<Side, number>): void {
    while (from.source < source.length && from.destination < destination.length) {
      const left = source[from.source] as Buffer
      const right = destination[from.destination] as Buffer
      if (left.equals(right)) {
        this.equal += 1
        from.source += 1
        from.destination += 1
      } else if (source[from.source + 1]?.equals(right)) {
        this.single('source', left)
        from.source += 1
      } else if (destination[from.destination + 1]?.equals(left)) {
        this.single('destination', right)
        from.destination += 1
      } else {
        this.single('source', left)
        this.single('destination', right)
        from.source += 1
        from.destination += 1
      }
    }
  }

  /**
   * Takes a document without an equal document at the same position on the other side. The other side may return a
   * document with the same `_id` at this position, earlier, later, or not at all.
   */
  single(side: Side, document: Buffer): void {
    const idElement = idElementOf(document)
    const key = identityKey(idElement)
    const others = this.#unpaired[side === 'source' ? 'destination' : 'source']
    const other = others.get(key)
    const digest = digestOf(document)
    if (other) {
      others.delete(key)
      if (other.digest === digest) this.equal += 1
      else this.#suspect(idElement)
      return
    }
    const own = this.#unpaired[side]
    // Two documents on two shards may have the same `_id`. The second replaces the first here, so the `_id` is suspect.
    if (own.has(key)) this.#suspect(idElement)
    own.set(key, { digest, idElement: Buffer.from(idElement) })
    if (own.size > unpairedMax) this.end()
  }

  /** Reports all unpaired documents as suspects. */
  end(): void {
    for (const unpaired of Object.values(this.#unpaired)) {
      for (const { idElement } of unpaired.values()) this.#suspect(idElement)
      unpaired.clear()
    }
  }
}
