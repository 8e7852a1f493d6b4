import { createHash, timingSafeEqual } from 'node:crypto'
import type { TokenUse } from '../domain/audit-entry.ts'

/** What requests may show. */
export interface TokenPair {
  /** Allows everything. */
  control: string
  /** Allows GET alone; null: there is no such token. */
  read: string | null
}

/** The tokens of an instance, which may be replaced while it runs. Only their digests are kept. */
export class Tokens {
  #control: Buffer
  #read: Buffer | null

  constructor(pair: TokenPair) {
    this.#control = digestOf(pair.control)
    this.#read = pair.read === null ? null : digestOf(pair.read)
  }

  replace(pair: TokenPair): void {
    this.#control = digestOf(pair.control)
    this.#read = pair.read === null ? null : digestOf(pair.read)
  }

  /** @param authorization the header of that name */
  shownIn(authorization: string | undefined): TokenUse {
    const given = bearerOf(authorization)
    if (given === null) return 'none'
    const digest = digestOf(given)
    // Digests have one length: the duration of the comparison reveals neither the token nor its length.
    if (timingSafeEqual(digest, this.#control)) return 'control'
    return this.#read !== null && timingSafeEqual(digest, this.#read) ? 'read' : 'none'
  }
}

/** The token of an `Authorization: Bearer …`; null without one. */
export function bearerOf(authorization: string | undefined): string | null {
  return /^Bearer +(\S+)$/i.exec(authorization ?? '')?.[1] ?? null
}

function digestOf(text: string): Buffer {
  return createHash('sha256').update(text).digest()
}
