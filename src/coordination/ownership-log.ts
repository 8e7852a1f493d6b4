import { type OwnerToken, parseOwner } from '../domain/owner.ts'
import type { RetryContext } from '../mongo/retry.ts'
import { type Claim, holderOf, type Ownership } from './ownership-store.ts'

/** Logs which instance coordinates, and which partitions this instance claims and gives back. */
export class OwnershipLog {
  readonly #journal: RetryContext['journal']
  /** The coordinator that was logged last. */
  #logged: Pick<Claim, 'owner' | 'epoch'> = { owner: null, epoch: 0 }

  constructor(journal: RetryContext['journal']) {
    this.#journal = journal
  }

  /**
   * Logs the coordinator if it has changed.
   * @param token this instance's own token
   */
  coordinator(role: Claim | undefined, token: OwnerToken): void {
    const { owner = null, epoch = 0 } = role ?? {}
    if (owner === this.#logged.owner && epoch === this.#logged.epoch) return
    this.#logged = { owner, epoch }
    const isThisInstance = owner === token
    this.#journal?.('coordinator', { coordinatorID: holderOf(role), term: epoch, isThisInstance })
  }

  claimed(partitions: number[], claims: Ownership['claims']): void {
    if (partitions.length === 0) return
    const owners = partitions.flatMap((partition) => claims.get(partition)?.owner ?? [])
    const from = [...new Set(owners.map((owner) => parseOwner(owner).id))].sort()
    this.#journal?.('partitions claimed', { partitions: inOrder(partitions), from })
  }

  givenBack(claims: (readonly [partition: number, epoch: number])[]): void {
    if (claims.length === 0) return
    this.#journal?.('partitions given back', { partitions: inOrder(claims.map(([partition]) => partition)) })
  }
}

function inOrder(partitions: number[]): number[] {
  return [...partitions].sort((one, other) => one - other)
}
