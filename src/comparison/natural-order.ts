import type { DocumentStream } from './document-stream.ts'
import { identityKey } from './identity-key.ts'

/**
 * Documents of a capped collection that were already found to have no partner under the same `_id`. Bounded: a
 * collection that differs in more of them needs no word about its order.
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

/** The first document of the left stream, both in natural order, that stands elsewhere in the right one; null if none. */
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
      // Another content under the same `_id`, which is listed already.
      left.advance()
      right.advance()
    }
  }
}
