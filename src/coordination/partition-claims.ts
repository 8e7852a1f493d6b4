import { wantedOwners } from '../domain/assignment.ts'
import { isAlive, isExpired, type OwnerToken, ownerToken } from '../domain/owner.ts'
import type { Lease } from '../mongo/lease.ts'
import { type RetryContext, retry } from '../mongo/retry.ts'
import type { OwnershipLog } from './ownership-log.ts'
import type { Claim, ClaimKey, Ownership, OwnershipStore } from './ownership-store.ts'

export interface PartitionClaimsParts {
  /** mongosyncID. */
  id: string
  /** Number of partitions of the sync. */
  partitions: number
  lease: Lease
  store: OwnershipStore
  log: OwnershipLog
  context: RetryContext
  /**
   * Closes the open write sessions, so that a delayed write of this instance cannot overwrite a write of the next
   * owner.
   */
  closeWrites: () => Promise<void>
  /** Adds claims that this owner has taken to the history, in the background. */
  record: (taken: ReadonlyMap<ClaimKey, Claim | undefined>, owner: OwnerToken, since: Date) => void
  /** Called when `share` has given partitions back. */
  onGivenBack: () => void
}

/**
 * The partitions that this instance owns. Each round claims the free partitions that are assigned to this instance.
 * Owned partitions that are now assigned to another instance stay owned until event application gives them back.
 */
export class PartitionClaims {
  readonly #parts: PartitionClaimsParts
  #held = new Map<number, number>()
  #wanted = new Set<number>()
  #takesWork = false
  #yields = false
  /** Counts the calls of `release`, because a read that began earlier still shows the partitions as owned. */
  #releases = 0

  constructor(parts: PartitionClaimsParts) {
    this.#parts = parts
  }

  /** Each owned partition with the epoch of its ownership. */
  get held(): ReadonlyMap<number, number> {
    return this.#held
  }

  /** The partitions of `held` that this instance keeps, because they are not assigned to other instances. */
  get staying(): ReadonlySet<number> {
    return this.#wanted
  }

  /** False while this instance keeps its partitions and claims no others. */
  get takesWork(): boolean {
    return this.#takesWork
  }

  /** Number of times that `release` gave partitions back. Read it before the ownership that `share` receives. */
  get releases(): number {
    return this.#releases
  }

  takeWork(takesWork: boolean): void {
    this.#takesWork = takesWork
    if (takesWork) this.#yields = false
  }

  /** Forgets all partitions after the loss or the end of the lease, without giving them back. */
  clear(): void {
    this.#held = new Map()
    this.#wanted = new Set()
  }

  async release(partitions: number[]): Promise<void> {
    const { lease, store, log, context, closeWrites } = this.#parts
    const { token } = lease
    const claims = [...this.#held].filter(([partition]) => partitions.includes(partition))
    await retry('giving partitions back', context, async () => {
      await closeWrites()
      await store.release(claims, token)
    })
    this.#releases += 1
    log.givenBack(claims)
    for (const partition of partitions) {
      this.#held.delete(partition)
      this.#wanted.delete(partition)
    }
  }

  /** Makes every round give all partitions back, until `takeWork(true)` is called. */
  yield(): void {
    this.#yields = true
  }

  /**
   * Claims the free partitions that are assigned to this instance. After `yield`, gives all owned partitions back.
   * @param token this instance's owner token when the ownership was read
   * @param releases value of `releases` when the ownership was read
   */
  async share({ leases, claims }: Ownership, token: OwnerToken, releases: number): Promise<void> {
    const { id, partitions, lease, store, log, closeWrites, record, onGivenBack } = this.#parts
    const held = new Map<number, number>()
    const owners: (OwnerToken | null)[] = []
    for (let partition = 0; partition < partitions; partition++) {
      const claim = claims.get(partition)
      const owner = claim?.owner && !isExpired(claim.owner, leases) ? claim.owner : null
      owners.push(owner)
      if (claim && owner === token) held.set(partition, claim.epoch)
    }
    const members = leases
      .filter((one) => isAlive(one) && (one.id === id ? this.#takesWork : one.takesWork))
      .map((one) => ownerToken(one.id, one.epoch))
      .sort()
    const wanted = wantedOwners(owners, members)
    const mine = [...wanted.keys()].filter((partition) => wanted[partition] === token)
    if (this.#takesWork) {
      const free = mine.filter((partition) => owners[partition] === null)
      const since = new Date()
      const taken = await store.takeAll(
        new Map(free.map((partition) => [partition, claims.get(partition)])),
        token,
        since,
      )
      const claimed = free.filter((partition) => taken.has(partition))
      for (const partition of claimed) held.set(partition, (claims.get(partition)?.epoch ?? 0) + 1)
      record(new Map(claimed.map((partition) => [partition, claims.get(partition)])), token, since)
      log.claimed(claimed, claims)
    }
    if (this.#yields && held.size > 0) {
      await closeWrites()
      await store.release(held, token)
      log.givenBack([...held])
      onGivenBack()
      held.clear()
    }
    const stay = new Set(mine.filter((partition) => held.has(partition)))
    if (!lease.held || token !== lease.token || releases !== this.#releases) return
    this.#held = held
    this.#wanted = stay
  }
}
