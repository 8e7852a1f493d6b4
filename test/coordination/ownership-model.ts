import { wantedOwners } from '../../src/domain/assignment.ts'
import { isExpired, type LeaseView, type OwnerToken, ownerToken } from '../../src/domain/owner.ts'

/**
 * A model of the protocol by which partitions change owners: the contents of the metadata database, and instances that
 * act on their last read of it, which may be out of date. The rules are those of the product (`wantedOwners`,
 * `isExpired`). The compare-and-sets are written here as OwnershipStore and Lease send them. Time is a step like any
 * other: a lease expires when a test lets it expire. From that moment its holder's fence is closed, because a fence
 * ends before the lease does.
 */
export interface StoredLease extends LeaseView {
  evicted: boolean
}

export interface StoredClaim {
  owner: OwnerToken | null
  epoch: number
}

export class World {
  readonly partitions: number
  readonly leases = new Map<string, StoredLease>()
  readonly claims: StoredClaim[]
  /** The owner of each partition in each epoch, as `ownershipHistory` stores it. */
  readonly history = new Map<string, OwnerToken>()
  readonly instances: ModelInstance[]

  constructor(instances: number, partitions: number) {
    this.partitions = partitions
    this.claims = Array.from({ length: partitions }, () => ({ owner: null, epoch: 0 }))
    this.instances = Array.from({ length: instances }, (_, index) => new ModelInstance(this, `i${index}`))
  }

  /** True while the server still executes writes of an instance, which may have crashed. */
  isWriting(id: string): boolean {
    return this.instances.some((one) => one.id === id && one.writing.size > 0)
  }

  expire(id: string): void {
    const lease = this.leases.get(id)
    if (!lease) return
    lease.expired = true
    for (const instance of this.instances) if (instance.id === id) instance.fenceOpen = false
  }

  /** Ids of the instances that write to a partition, or could do so now. */
  writersOf(partition: number): string[] {
    return this.instances.filter((one) => one.mayWrite(partition) || one.writing.has(partition)).map(({ id }) => id)
  }
}

export class ModelInstance {
  readonly id: string
  readonly #world: World
  /**
   * The token of its lease term; null before it has taken its lease, and after it has noticed the loss of the lease.
   */
  token: OwnerToken | null = null
  /** The epoch of the lease that it is taking; null while it is taking none. */
  #taking: number | null = null
  fenceOpen = false
  takesWork = true
  held = new Set<number>()
  readonly writing = new Set<number>()
  #observed: { leases: StoredLease[]; claims: StoredClaim[] } | null = null

  constructor(world: World, id: string) {
    this.#world = world
    this.id = id
  }

  mayWrite(partition: number): boolean {
    return this.fenceOpen && this.token !== null && this.held.has(partition)
  }

  /**
   * Performs the first step of taking the lease. From here on no other process can take it, and the claims of the last
   * lease term are not free yet.
   */
  beginLease(): void {
    if (this.token !== null || this.#taking !== null) return
    const { leases } = this.#world
    const epoch = (leases.get(this.id)?.epoch ?? 0) + 1
    const drained = leases.get(this.id)?.drained ?? 0
    const fresh = {
      expired: false,
      evicted: false,
      takesWork: false,
      stoppedFor: 0,
      atWork: false,
      incarnation: `${this.id} ${epoch}`,
    }
    leases.set(this.id, {
      id: this.id,
      epoch,
      drained,
      expiresAt: new Date(epoch),
      predecessors: [],
      sessions: null,
      ...fresh,
    })
    this.#taking = epoch
  }

  /** Performs the second step of taking the lease, once the writes of the last lease term have ended. */
  completeLease(): void {
    const epoch = this.#taking
    if (epoch === null || this.#world.isWriting(this.id)) return
    this.#taking = null
    const lease = this.#world.leases.get(this.id)
    if (lease?.epoch !== epoch) return
    Object.assign(lease, { drained: epoch, expired: false, takesWork: this.takesWork })
    this.token = ownerToken(this.id, epoch)
    this.fenceOpen = true
  }

  /** Renews its lease. If the instance finds that it was evicted, its lease term ends. */
  renew(): void {
    if (this.token === null) return
    const lease = this.#world.leases.get(this.id)
    if (lease && ownerToken(this.id, lease.epoch) === this.token && !lease.evicted) {
      Object.assign(lease, { expired: false, takesWork: this.takesWork })
      this.fenceOpen = true
    } else this.#end()
  }

  /** Kills the process. The server continues to execute its writes. */
  crash(): void {
    this.#end()
    this.#taking = null
  }

  #end(): void {
    this.token = null
    this.fenceOpen = false
    this.held = new Set()
    this.#observed = null
  }

  read(): void {
    if (this.token === null) return
    const { leases, claims } = this.#world
    this.#observed = {
      leases: [...leases.values()].map((one) => ({ ...one })),
      claims: claims.map((one) => ({ ...one })),
    }
    this.held = new Set(claims.flatMap(({ owner }, partition) => (owner === this.token ? [partition] : [])))
  }

  /** The wanted owner of each partition, computed from the last read. */
  get #wanted(): (OwnerToken | null)[] {
    if (!this.#observed) return []
    const { leases, claims } = this.#observed
    const members = leases
      .filter((one) => !one.expired && one.drained <= one.epoch && one.takesWork)
      .map((one) => ownerToken(one.id, one.epoch))
    return wantedOwners(
      claims.map(({ owner }) => (owner !== null && !isExpired(owner, leases) ? owner : null)),
      members,
    )
  }

  /** Claims a partition that was free at the last read. Returns true if this instance owns it now. */
  claim(partition: number): boolean {
    const observed = this.#observed?.claims[partition]
    if (!observed || this.token === null || !this.takesWork || !this.fenceOpen) return false
    if (this.#wanted[partition] !== this.token || observed.owner === this.token) return false
    if (observed.owner !== null && !isExpired(observed.owner, this.#observed?.leases ?? [])) return false
    const stored = this.#world.claims[partition] as StoredClaim
    if (stored.epoch !== observed.epoch || stored.owner !== observed.owner) return false
    Object.assign(stored, { owner: this.token, epoch: stored.epoch + 1 })
    const key = `${partition}:${stored.epoch}`
    if (this.#world.history.has(key)) throw new Error(`two owners in epoch ${key}`)
    this.#world.history.set(key, this.token)
    this.held.add(partition)
    return true
  }

  /** Gives back the partitions that are assigned to other instances, once their writes have ended. */
  release(): void {
    if (!this.#observed || this.token === null) return
    for (const partition of [...this.held]) {
      const leaves = this.#wanted[partition] !== this.token
      if (!leaves || this.writing.has(partition)) continue
      const stored = this.#world.claims[partition] as StoredClaim
      if (stored.owner === this.token) stored.owner = null
      this.held.delete(partition)
    }
  }

  beginEviction(id: string): void {
    const observed = this.#observed?.leases.find((one) => one.id === id)
    if (!observed || id === this.id || !observed.expired || observed.drained > observed.epoch) return
    const stored = this.#world.leases.get(id)
    if (!stored || stored.epoch !== observed.epoch || !stored.expired || stored.evicted) return
    Object.assign(stored, { epoch: stored.epoch + 1, evicted: true, takesWork: false })
  }

  /**
   * Completes an eviction. Any instance may do this with the stored lease, because the instance that began the eviction
   * may have died.
   */
  completeEviction(id: string): void {
    if (this.token === null || this.#world.isWriting(id)) return
    const stored = this.#world.leases.get(id)
    if (stored?.evicted) stored.drained = stored.epoch + 1
  }

  startWrite(partition: number): void {
    if (this.mayWrite(partition)) this.writing.add(partition)
  }
}
