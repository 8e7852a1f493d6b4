import { createHash, timingSafeEqual } from 'node:crypto'
import type { TokenUse } from '../domain/audit-entry.ts'

/** The tokens that requests may send. */
export interface TokenPair {
  /** Allows everything. */
  control: string
  /** Allows only GET; null: there is no such token. */
  read: string | null
}

/** The tokens of an instance. They can be replaced while it runs. Only their digests are kept. */
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

  /**
   * Returns which token the request sent.
   * @param authorization the Authorization header
   */
  sentIn(authorization: string | undefined): TokenUse {
    const given = bearerOf(authorization)
    if (given === null) return 'none'
    const digest = digestOf(given)
    // All digests have the same length, so the duration of the comparison reveals neither the token nor its length.
    if (timingSafeEqual(digest, this.#control)) return 'control'
    return this.#read !== null && timingSafeEqual(digest, this.#read) ? 'read' : 'none'
  }
}

/** Returns the token of an `Authorization: Bearer …` header; null if there is none. */
export function bearerOf(authorization: string | undefined): string | null {
  return /^Bearer +(\S+)$/i.exec(authorization ?? '')?.[1] ?? null
}

function digestOf(text: string): Buffer {
  return createHash('sha256').update(text).digest()
}
