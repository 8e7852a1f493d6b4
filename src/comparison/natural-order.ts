import type { DocumentStream } from './document-stream.ts'
import { identityKey } from './identity-key.ts'

/**
 * Documents of a capped collection that have no partner with the same `_id`. If there are more than `unpairedMax`, the
 * order is not compared.
 */
export class Unpaired {
  readonly left = new Set<string>()
  readonly right = new Set<string>()

  add(side: 'left' | 'right', document: Buffer): void {
    if (!this.overflowed) this[side].add(identityKey(document))
  }

  get overflowed(): boolean {
    return this.left.size + this.right.size > unpairedMax
  }
}

const unpairedMax = 100_000

/**
 * Compares the order of two streams that are read in natural order, without the unpaired documents. Returns the
 * document at the first position where the streams differ, or null if they do not differ.
 */
export async function firstOutOfOrder(
  left: DocumentStream,
  right: DocumentStream,
  unpaired: Unpaired,
): Promise<Buffer | null> {
  for (;;) {
    if (left.drained || right.drained) await Promise.all([left.fill(), right.fill()])
    const [a, b] = [left.head, right.head]
    if (a && b && a.equals(b)) {
      left.advance()
      right.advance()
      continue
    }
    const [ours, theirs] = [a && identityKey(a), b && identityKey(b)]
    if (ours !== undefined && unpaired.left.has(ours)) left.advance()
    else if (theirs !== undefined && unpaired.right.has(theirs)) right.advance()
    else if (ours !== theirs) return a ?? b ?? null
    else if (ours === undefined) return null
    else {
      // The documents have the same `_id` and different contents, which the comparison by `_id` has already reported.
      left.advance()
      right.advance()
    }
  }
}
