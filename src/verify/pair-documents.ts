import { hash } from 'node:crypto'
import { idElementOf, identityKey } from '../documents/identity.ts'
import type { Side } from './rechecks.ts'

/** Documents seen on one side only so far; beyond it all of them are given up as suspects, which are looked at again. */
const unpairedMax = 4_000

interface Unpaired {
  digest: string
  idElement: Buffer
}

/** Equal digests stand for equal bytes: SHA-256. */
export function digestOf(document: Buffer): string {
  return hash('sha256', document, 'binary')
}

/**
 * Pairs the documents of two streams that should be the same, in (nearly) the same order, and names those that are not
 * byte for byte equal. No comparison of `_id`s is needed, so no rule of MongoDB's sort order can be got wrong: a
 * document that is on one side only stays unpaired.
 */
export class DocumentPairing {
  readonly #suspect: (idElement: Buffer) => void
  readonly #unpaired: Record<Side, Map<string, Unpaired>> = { source: new Map(), destination: new Map() }
  equal = 0

  constructor(suspect: (idElement: Buffer) => void) {
    this.#suspect = suspect
  }

  /** Pairs as far as both lists reach; returns how many of each were consumed. */
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

  /** A document without its counterpart beside it: the counterpart came earlier, comes later, or does not exist. */
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
    // Two documents under one `_id`, on two shards: the second must not be forgotten for the first.
    if (own.has(key)) this.#suspect(idElement)
    own.set(key, { digest, idElement: Buffer.from(idElement) })
    if (own.size > unpairedMax) this.end()
  }

  /** What is unpaired now is on one side only, as far as can be told. */
  end(): void {
    for (const unpaired of Object.values(this.#unpaired)) {
      for (const { idElement } of unpaired.values()) this.#suspect(idElement)
      unpaired.clear()
    }
  }
}
