import type { Document } from 'mongodb'

/** Documents of another collection of the metadata database that the rounds of the coordination read as well. */
export interface RoundPart {
  collection: string
  pipeline: Document[]
  /** False while nobody needs the documents. They are then not read. */
  isNeeded?: () => boolean
  /** Receives the documents. If it throws, they count as not read, and a command of their own reads them. */
  take(documents: Document[]): void
}

/** Passes the documents on. A document that cannot be read must not prevent the round, which renews claims and leases. */
export function takePart({ take }: RoundPart, rows: readonly Document[]): void {
  try {
    take(rows.map(({ part: _, ...document }) => document))
  } catch {
    // The direct read of these documents fails likewise, and reports its error.
  }
}

/** How often the parts are read, ms. Rounds that follow each other quickly do not all read them. */
const everyMS = 700

export class RoundParts {
  #readAt = Number.NEGATIVE_INFINITY
  all: readonly RoundPart[] = []

  /** The parts that the round which begins now reads. */
  takeDue(): readonly RoundPart[] {
    const now = performance.now()
    if (now - this.#readAt < everyMS) return []
    this.#readAt = now
    return this.all.filter(({ isNeeded }) => isNeeded?.() ?? true)
  }
}
