import type { Document } from 'mongodb'
import type { Network } from './network.ts'
import type { Sender } from './operations.ts'

interface CoordinatorInvariantParts {
  destination: Network
  violated: (what: string) => void
}

/** Invariants of what the coordinator stores for all instances: the ends of barriers, and the state of the sync. */
export class CoordinatorInvariants {
  readonly #parts: CoordinatorInvariantParts

  constructor(parts: CoordinatorInvariantParts) {
    this.#parts = parts
  }

  stored(sender: Sender, collection: string, before: Document | undefined, after: Document): void {
    if (!before) return
    if (collection === 'stages') this.#syncStored(before, after)
    const isEnded = after['done'] && (!before['done'] || before['observed'] !== after['observed'])
    if (collection === 'barriers' && isEnded) this.#barrierChanged(sender, before, 'ended')
  }

  removed(sender: Sender, collection: string, documents: Document[]): void {
    if (collection !== 'barriers') return
    for (const barrier of documents) this.#barrierChanged(sender, barrier, 'removed')
  }

  /**
   * Until a coordinator has stored its term in a barrier, it has not begun the barrier's work. Until then, its
   * predecessor may end the barrier.
   */
  #barrierChanged(sender: Sender, before: Document, what: string): void {
    const coordinator = this.#parts.destination.server.collection('ownership').get('coordinator')
    if (sender.token === coordinator?.['owner'] || before['term'] !== coordinator?.['epoch']) return
    this.#parts.violated(
      `${sender.token} ${what} barrier ${before['_id']}, which ${coordinator?.['owner']} has taken over`,
    )
  }

  #syncStored(before: Document, after: Document): void {
    const [former, now] = [before['context'].term, after['context'].term]
    if (after['revision'] < before['revision'] || now < former) {
      this.#parts.violated(
        `the state of the sync went back from revision ${before['revision']} of term ${former} to revision ${after['revision']} of term ${now}`,
      )
    }
  }
}
