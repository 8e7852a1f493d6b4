import { wantedOwners } from '../../src/domain/assignment.ts'
import { isExpired, type LeaseView, type OwnerToken, ownerToken } from '../../src/domain/owner.ts'

/**
 * The protocol by which partitions change hands, as a model: what stands in the metadata database, and instances that act on
 * what they saw of it, which may be old. Rules are the product's (`wantedOwners`, `isDead`); the compare-and-sets are written
 * here as OwnershipStore and Lease send them. Time is a step like any other: a lease expires when a test says so, and from
 * that moment its holder's fence is closed, as the fence ends before the lease does.
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
  /** Who owned each partition in each epoch, as `ownershipHistory` keeps it. */
  readonly history = new Map<string, OwnerToken>()
  readonly instances: ModelInstance[]

  constructor(instances: number, partitions: number) {
    this.partitions = partitions
    this.claims = Array.from({ length: partitions }, () => ({ owner: null, epoch: 0 }))
    this.instances = Array.from({ length: instances }, (_, index) => new ModelInstance(this, `i${index}`))
  }

  /** What the server still works on for an instance, dead or alive. */
  isWriting(id: string): boolean {
    return this.instances.some((one) => one.id === id && one.writing.size > 0)
  }

  expire(id: string): void {
    const lease = this.leases.get(id)
    if (!lease) return
    lease.expired = true
    for (const instance of this.instances) if (instance.id === id) instance.fenceOpen = false
  }

  /** Those who write to a partition, or could now. */
  writersOf(partition: number): string[] {
    return this.instances.filter((one) => one.mayWrite(partition) || one.writing.has(partition)).map(({ id }) => id)
  }
}

export class ModelInstance {
  readonly id: string
  readonly #world: World
  /** Its life, once its lease is taken; null before, and after it was found lost. */
  token: OwnerToken | null = null
  /** Half-way through taking its lease. */
  #taking: number | null = null
  fenceOpen = false
  takesWork = true
  held = new Set<number>()
  readonly writing = new Set<number>()
  #seen: { leases: StoredLease[]; claims: StoredClaim[] } | null = null

  constructor(world: World, id: string) {
    this.#world = world
    this.id = id
  }

  mayWrite(partition: number): boolean {
    return this.fenceOpen && this.token !== null && this.held.has(partition)
  }

  /** First half of taking the lease: from here on nobody else can have it, and what it owned is not dead yet. */
  arrive(): void {
    if (this.token !== null || this.#taking !== null) return
    const { leases } = this.#world
    const epoch = (leases.get(this.id)?.epoch ?? 0) + 1
    const settled = leases.get(this.id)?.drained ?? 0
    const fresh = {
      expired: false,
      evicted: false,
      takesWork: false,
      atWork: false,
      incarnation: `${this.id} ${epoch}`,
    }
    leases.set(this.id, {
      id: this.id,
      epoch,
      drained: settled,
      expiresAt: new Date(epoch),
      predecessors: [],
      sessions: null,
      ...fresh,
    })
    this.#taking = epoch
  }

  /** Second half, once the writes of its former life have ended. */
  settle(): void {
    const epoch = this.#taking
    if (epoch === null || this.#world.isWriting(this.id)) return
    this.#taking = null
    const lease = this.#world.leases.get(this.id)
    if (lease?.epoch !== epoch) return
    Object.assign(lease, { drained: epoch, expired: false, takesWork: this.takesWork })
    this.token = ownerToken(this.id, epoch)
    this.fenceOpen = true
  }

  /** Renews its lease, or finds that it is buried: then this life is over. */
  renew(): void {
    if (this.token === null) return
    const lease = this.#world.leases.get(this.id)
    if (lease && ownerToken(this.id, lease.epoch) === this.token && !lease.evicted) {
      Object.assign(lease, { expired: false, takesWork: this.takesWork })
      this.fenceOpen = true
    } else this.#end()
  }

  /** The process dies; what the server works on for it goes on. */
  die(): void {
    this.#end()
    this.#taking = null
  }

  #end(): void {
    this.token = null
    this.fenceOpen = false
    this.held = new Set()
    this.#seen = null
  }

  look(): void {
    if (this.token === null) return
    const { leases, claims } = this.#world
    this.#seen = { leases: [...leases.values()].map((one) => ({ ...one })), claims: claims.map((one) => ({ ...one })) }
    this.held = new Set(claims.flatMap(({ owner }, partition) => (owner === this.token ? [partition] : [])))
  }

  /** What the last look asks for, as it was then. */
  get #wanted(): (OwnerToken | null)[] {
    if (!this.#seen) return []
    const { leases, claims } = this.#seen
    const members = leases
      .filter((one) => !one.expired && one.drained <= one.epoch && one.takesWork)
      .map((one) => ownerToken(one.id, one.epoch))
    return wantedOwners(
      claims.map(({ owner }) => (owner !== null && !isExpired(owner, leases) ? owner : null)),
      members,
    )
  }

  /** Claims one partition that was free when it looked. True when it is its now. */
  claim(partition: number): boolean {
    const seen = this.#seen?.claims[partition]
    if (!seen || this.token === null || !this.takesWork || !this.fenceOpen) return false
    if (this.#wanted[partition] !== this.token || seen.owner === this.token) return false
    if (seen.owner !== null && !isExpired(seen.owner, this.#seen?.leases ?? [])) return false
    const stored = this.#world.claims[partition] as StoredClaim
    if (stored.epoch !== seen.epoch || stored.owner !== seen.owner) return false
    Object.assign(stored, { owner: this.token, epoch: stored.epoch + 1 })
    const key = `${partition}:${stored.epoch}`
    if (this.#world.history.has(key)) throw new Error(`two owners in epoch ${key}`)
    this.#world.history.set(key, this.token)
    this.held.add(partition)
    return true
  }

  /** Gives back what is wanted elsewhere, once nothing of it is under way. */
  release(): void {
    if (!this.#seen || this.token === null) return
    for (const partition of [...this.held]) {
      const leaves = this.#wanted[partition] !== this.token
      if (!leaves || this.writing.has(partition)) continue
      const stored = this.#world.claims[partition] as StoredClaim
      if (stored.owner === this.token) stored.owner = null
      this.held.delete(partition)
    }
  }

  buryFirst(id: string): void {
    const seen = this.#seen?.leases.find((one) => one.id === id)
    if (!seen || id === this.id || !seen.expired || seen.drained > seen.epoch) return
    const stored = this.#world.leases.get(id)
    if (!stored || stored.epoch !== seen.epoch || !stored.expired || stored.evicted) return
    Object.assign(stored, { epoch: stored.epoch + 1, evicted: true, takesWork: false })
  }

  /** By whoever has the patience: it goes by what stands there, so a burial that its beginner left is ended by another. */
  burySecond(id: string): void {
    if (this.token === null || this.#world.isWriting(id)) return
    const stored = this.#world.leases.get(id)
    if (stored?.evicted) stored.drained = stored.epoch + 1
  }

  startWrite(partition: number): void {
    if (this.mayWrite(partition)) this.writing.add(partition)
  }
}
