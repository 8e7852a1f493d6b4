import { setTimeout as sleep } from 'node:timers/promises'
import { createActor, fromPromise } from 'xstate'
import { electionMachine } from '../../machines/election.ts'
import { wantedOwners } from '../domain/assignment.ts'
import { deferred } from '../domain/deferred.ts'
import { StoppedError } from '../domain/errors.ts'
import { isExpired, type LeaseView, type OwnerToken, ownerToken, parseOwner } from '../domain/owner.ts'
import type { Cluster } from '../mongo/cluster.ts'
import type { Lease, LeaseLoss } from '../mongo/lease.ts'
import { type RetryContext, retry } from '../mongo/retry.ts'
import { Evictions } from './evictions.ts'
import type { StoreFailureDetector } from './failure-detector.ts'
import type { Liveness } from './liveness.ts'
import { type Claim, type Ownership, OwnershipStore } from './ownership-store.ts'

export interface CoordinationParts {
  destination: Cluster
  lease: Lease
  /** mongosyncID. */
  id: string
  /** How many partitions the sync has. */
  partitions: number
  context: RetryContext
  liveness: Liveness
  /** Null: the leases themselves tell who is alive. */
  belief: StoreFailureDetector | null
  onLeaseLost: (reason: LeaseLoss) => void
}

const roundMS = 400

/**
 * This instance's part in the team: looks at who owns what a few times a second, buries those whose lease has expired,
 * stands for the coordinator's office when it is vacant, and claims or gives back partitions until everybody has a share.
 * It decides ownership only; whoever applies events asks `held` and waits for `changed`.
 */
export class Coordination {
  readonly #parts: CoordinationParts
  readonly #store: OwnershipStore
  readonly #election
  #stop = new AbortController()
  #loop: Promise<void> = Promise.resolve()
  #running = false
  #takesWork = false
  #yields = false
  #lastHolder: string | null = null
  #atWork = false
  #seen: Ownership = { leases: [], claims: new Map() }
  #term = 0
  #held = new Map<number, number>()
  #wanted = new Set<number>()
  #change = deferred<void>()
  #wake = new AbortController()
  readonly #burials: Evictions
  /** Rises when partitions were given back: a look that began before shows them as owned still. */
  #releases = 0
  /** The coordinator that the log has last. */
  #logged: Pick<Claim, 'owner' | 'epoch'> = { owner: null, epoch: 0 }

  constructor(parts: CoordinationParts) {
    this.#parts = parts
    this.#store = new OwnershipStore(parts.destination)
    this.#burials = new Evictions({
      id: parts.id,
      store: this.#store,
      confirmMS: parts.belief?.windowMS ?? 0,
      onFailed: (id, error) => parts.context.onRetry?.(`taking over from ${id}`, error),
      onEvicted: ({ id, epoch }, seconds) =>
        parts.context.journal?.('instance evicted', { instance: id, epoch, seconds }),
      onDrained: () => this.wake(),
    })
    this.#election = createActor(
      electionMachine.provide({
        actors: {
          campaign: fromPromise(() => this.#campaign()),
        },
      }),
      { input: { self: parts.id } },
    )
    this.#election.subscribe(() => this.#changed())
    this.#election.start()
    parts.lease.onLost = (reason) => {
      this.#held = new Map()
      this.#wanted = new Set()
      this.#election.send({ type: 'lease.lost' })
      parts.onLeaseLost(reason)
    }
  }

  /** mongosyncID. */
  get id(): string {
    return this.#parts.id
  }

  /** Who this instance is to the others in its present life. */
  get token(): OwnerToken {
    return this.#parts.lease.token
  }

  get leading(): boolean {
    return this.#parts.lease.held && this.#election.getSnapshot().matches('leading')
  }

  /** mongosyncID of the coordinator; null until one is known. */
  get coordinatorID(): string | null {
    return this.#election.getSnapshot().context.holder ?? this.#lastHolder
  }

  /** Fences what only the coordinator writes: the epoch of this instance's own last tenure; 0 when it never had one. */
  get term(): number {
    return this.#term
  }

  /** The epoch of the present tenure, whosever it is. */
  get coordinatorEpoch(): number {
    return this.#seen.claims.get('coordinator')?.epoch ?? 0
  }

  /** Partitions owned, each with the epoch of its ownership. */
  get held(): ReadonlyMap<number, number> {
    return this.#held
  }

  /** Those of `held` that stay: the others are wanted elsewhere and should be given back soon. */
  get staying(): ReadonlySet<number> {
    return this.#wanted
  }

  get ownsAll(): boolean {
    return this.#held.size === this.#parts.partitions && this.#wanted.size === this.#held.size
  }

  /** It owns every partition, so nobody else applies anything, or can begin to. */
  get hasEverything(): boolean {
    return this.#parts.lease.held && this.#held.size === this.#parts.partitions
  }

  /** Every partition is owned by another instance, one that is not dead. */
  get othersHaveAll(): boolean {
    const own = this.#parts.id
    const isOthers = (partition: number): boolean => {
      const owner = this.#seen.claims.get(partition)?.owner
      return !!owner && !this.isDead(owner) && parseOwner(owner).id !== own
    }
    return Array.from({ length: this.#parts.partitions }, (_, partition) => partition).every(isOthers)
  }

  /** mongosyncIDs of the others that own partitions. */
  get otherOwners(): string[] {
    const owners = [...this.#seen.claims].flatMap(([key, { owner }]) =>
      key === 'coordinator' || !owner ? [] : [owner],
    )
    const ids = new Set(owners.filter((owner) => !this.isDead(owner)).map((owner) => parseOwner(owner).id))
    ids.delete(this.#parts.id)
    return [...ids].sort()
  }

  /** mongosyncIDs of the instances whose leases hold, this one included. */
  get members(): string[] {
    return this.#seen.leases.filter((lease) => isAlive(lease)).map((lease) => lease.id)
  }

  /** No other instance is known. */
  get isAlone(): boolean {
    return this.#seen.leases.every((lease) => lease.id === this.#parts.id)
  }

  /** It gave its lease back, or lost it for good. */
  hasLeft(id: string): boolean {
    return this.#seen.leases.some((lease) => lease.id === id && lease.drained > lease.epoch)
  }

  isDead(owner: OwnerToken): boolean {
    return isExpired(owner, this.#seen.leases)
  }

  /**
   * Begins to look; resolves when the first look has shown who coordinates. Call with the lease held. Rejects with StoppedError when
   * that is lost before: nobody looks without it, and it is not taken again before everything that was begun under it has ended.
   */
  async start(): Promise<void> {
    if (!this.#running) {
      this.#running = true
      this.#stop = new AbortController()
      this.#loop = this.#rounds()
    }
    while (!this.#parts.context.signal.aborted && !this.#stop.signal.aborted) {
      if (this.#election.getSnapshot().matches('leading') || this.#election.getSnapshot().matches('following')) return
      if (!this.#parts.lease.held) throw new StoppedError()
      await this.changed()
    }
  }

  async stop(): Promise<void> {
    this.#stop.abort()
    this.#wake.abort()
    await this.#loop
    this.#running = false
    this.#held = new Map()
    this.#wanted = new Set()
    // Who begins again leads by what it sees then, not by what it was.
    this.#election.send({ type: 'lease.lost' })
    this.#changed()
  }

  /**
   * @param atWork neither paused nor failed. One that is not holds the coordinator's office only while no other instance is at work:
   * it gives it up to whoever is, and takes it where it is vacant, for an aborted commit is undone also then
   */
  engage(atWork: boolean): void {
    this.#atWork = atWork
    this.wake()
  }

  /** @param takesWork gets partitions; else it keeps what it has (while paused) and gets no new ones */
  takeWork(takesWork: boolean): void {
    this.#takesWork = takesWork
    if (takesWork) this.#yields = false
    this.wake()
  }

  /** Who coordinated last, for an instance that takes no part. */
  async readHolder(): Promise<void> {
    const { claims } = await this.#store.read()
    this.#lastHolder = holderOf(claims.get('coordinator'))
  }

  /** Asks the others to look at once. */
  notify(): void {
    this.#parts.liveness.notify()
  }

  /** Look now, not at the next turn. */
  wake(): void {
    this.#wake.abort()
  }

  /** Gives partitions back, whose events this instance no longer applies and whose positions are stored. */
  async release(partitions: number[]): Promise<void> {
    if (partitions.length === 0) return
    const { token } = this
    const claims = [...this.#held].filter(([partition]) => partitions.includes(partition))
    await retry('giving partitions back', this.#parts.context, () => this.#store.release(claims, token))
    this.#releases += 1
    this.#logGivenBack(claims)
    for (const partition of partitions) {
      this.#held.delete(partition)
      this.#wanted.delete(partition)
    }
    this.#parts.liveness.notify()
    this.wake()
  }

  /**
   * Gives everything back, until work is taken again: also what a claim that is under way now will bring. Nobody applies that
   * here any more, and whoever finishes a commit waits for it.
   */
  async yieldAll(): Promise<void> {
    this.#yields = true
    await this.release([...this.#held.keys()])
  }

  /** Resolves at the next change of anything this tells, and with every look. */
  changed(): Promise<void> {
    return this.#change.promise
  }

  #changed(): void {
    const change = this.#change
    this.#change = deferred()
    change.resolve()
  }

  async #rounds(): Promise<void> {
    const { context, liveness } = this.#parts
    liveness.onNotified = () => this.wake()
    while (!this.#stop.signal.aborted && !context.signal.aborted) {
      this.#wake = new AbortController()
      try {
        if (this.#parts.lease.held) {
          // By what was seen, not by what was sent: a lease begins without work in every life, and an earlier word that was
          // given up as lost may have come after a later one.
          const { token } = this
          const shown = this.#seen.leases.find(({ id, epoch }) => ownerToken(id, epoch) === token)
          const [takesWork, atWork] = [this.#takesWork, this.#atWork]
          if (shown?.takesWork !== takesWork || shown.atWork !== atWork) {
            await this.#parts.lease.announce({ takesWork, atWork })
          }
          await this.#round()
        }
      } catch (error) {
        // Looked again at the next turn; meanwhile the fence ends what this instance may write.
        context.onRetry?.('coordinating', error)
      }
      this.#changed()
      await sleep(roundMS, undefined, { signal: this.#wake.signal }).catch(() => {})
    }
  }

  async #round(): Promise<void> {
    const token = this.token
    const releases = this.#releases
    const seen = await this.#store.read()
    const { belief, id } = this.#parts
    if (belief) seen.leases = await belief.judge(seen.leases, id)
    if (token !== this.token || !this.#parts.lease.held) return
    this.#seen = seen
    this.#burials.begin(seen.leases, this.#stop.signal)
    const office = seen.claims.get('coordinator')
    if (office?.owner === token) this.#term = office.epoch
    const eligible = this.#atWork || !seen.leases.some((one) => one.id !== id && isAlive(one) && one.atWork)
    if (office?.owner === token && !eligible) {
      // Before it is done: once it is, another may lead, and what this one began to do now would be in its old tenure.
      this.#election.send({ type: 'lease.lost' })
      await this.#store.release([['coordinator', office.epoch]], token)
      office.owner = null
    }
    this.#logCoordinator(office)
    const vacant = !office?.owner || isExpired(office.owner, seen.leases)
    this.#election.send({
      type: 'office.seen',
      holder: holderOf(office),
      mine: office?.owner === token,
      vacant,
      eligible,
    })
    await this.#share(seen, token, releases)
  }

  async #campaign(): Promise<boolean> {
    const { claims } = this.#seen
    const seen = claims.get('coordinator')
    const owner = this.token
    const won = await this.#store.claim('coordinator', seen, owner)
    // Known at once: what is written in this tenure carries its epoch.
    if (won) this.#term = (seen?.epoch ?? 0) + 1
    if (won) claims.set('coordinator', { owner, epoch: (seen?.epoch ?? 0) + 1, last: { owner, since: new Date() } })
    this.#logCoordinator(claims.get('coordinator'))
    return won
  }

  async #share({ leases, claims }: Ownership, token: OwnerToken, releases: number): Promise<void> {
    const { partitions, lease } = this.#parts
    const held = new Map<number, number>()
    const owners: (OwnerToken | null)[] = []
    for (let partition = 0; partition < partitions; partition++) {
      const claim = claims.get(partition)
      const owner = claim?.owner && !isExpired(claim.owner, leases) ? claim.owner : null
      owners.push(owner)
      if (claim && owner === token) held.set(partition, claim.epoch)
    }
    const members = leases
      .filter((one) => isAlive(one) && (one.id === this.#parts.id ? this.#takesWork : one.takesWork))
      .map((one) => ownerToken(one.id, one.epoch))
      .sort()
    const wanted = wantedOwners(owners, members)
    const mine = [...wanted.keys()].filter((partition) => wanted[partition] === token)
    if (this.#takesWork) {
      const free = mine.filter((partition) => owners[partition] === null)
      const claimed: number[] = []
      await Promise.all(
        free.map(async (partition) => {
          const claim = claims.get(partition)
          if (!(await this.#store.claim(partition, claim, token))) return
          held.set(partition, (claim?.epoch ?? 0) + 1)
          claimed.push(partition)
        }),
      )
      this.#logClaimed(claimed, claims)
    }
    if (this.#yields && held.size > 0) {
      await this.#store.release(held, token)
      this.#logGivenBack([...held])
      this.#parts.liveness.notify()
      held.clear()
    }
    const stay = new Set(mine.filter((partition) => held.has(partition)))
    if (!lease.held || token !== this.token || releases !== this.#releases) return
    this.#held = held
    this.#wanted = stay
  }

  #logCoordinator(office: Claim | undefined): void {
    const { owner = null, epoch = 0 } = office ?? {}
    if (owner === this.#logged.owner && epoch === this.#logged.epoch) return
    this.#logged = { owner, epoch }
    const isThisInstance = owner === this.token
    this.#parts.context.journal?.('coordinator', { coordinatorID: holderOf(office), term: epoch, isThisInstance })
  }

  #logClaimed(partitions: number[], claims: Ownership['claims']): void {
    if (partitions.length === 0) return
    const owners = partitions.flatMap((partition) => claims.get(partition)?.owner ?? [])
    const from = [...new Set(owners.map((owner) => parseOwner(owner).id))].sort()
    this.#parts.context.journal?.('partitions claimed', { partitions: inOrder(partitions), from })
  }

  #logGivenBack(claims: (readonly [partition: number, epoch: number])[]): void {
    if (claims.length === 0) return
    const partitions = inOrder(claims.map(([partition]) => partition))
    this.#parts.context.journal?.('partitions given back', { partitions })
  }
}

function inOrder(partitions: number[]): number[] {
  return partitions.sort((one, other) => one - other)
}

function holderOf(office: Claim | undefined): string | null {
  return office?.owner ? parseOwner(office.owner).id : null
}

function isAlive(lease: LeaseView): boolean {
  return !lease.expired && lease.drained <= lease.epoch
}
