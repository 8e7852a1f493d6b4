import { setTimeout as sleep } from 'node:timers/promises'
import { createActor, fromPromise } from 'xstate'
import { type CampaignInput, electionMachine } from '../../machines/election.ts'
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
import { OwnershipLog } from './ownership-log.ts'
import { holderOf, type Ownership, OwnershipStore } from './ownership-store.ts'

export interface CoordinationParts {
  destination: Cluster
  lease: Lease
  /** mongosyncID. */
  id: string
  /** Number of partitions of the sync. */
  partitions: number
  context: RetryContext
  liveness: Liveness
  /** Null when the expiry of the leases decides which instances are alive. */
  failureDetector: StoreFailureDetector | null
  onLeaseLost: (reason: LeaseLoss) => void
}

const roundMS = 400

/**
 * This instance's part in the cluster of instances. A few times a second it reads which instance owns what, evicts instances whose
 * lease has expired, claims the coordinator role when it is vacant, and claims or releases partitions until every
 * instance has its share. It decides ownership only; event application reads `held` and waits for `changed`.
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
  #observed: Ownership = { leases: [], claims: new Map() }
  #term = 0
  #held = new Map<number, number>()
  #wanted = new Set<number>()
  #change = deferred<void>()
  #wake = new AbortController()
  readonly #evictions: Evictions
  /** Increases when partitions are given back: a read that began earlier still shows them as owned. */
  #releases = 0
  readonly #log: OwnershipLog

  constructor(parts: CoordinationParts) {
    this.#parts = parts
    this.#store = new OwnershipStore(parts.destination)
    this.#log = new OwnershipLog(parts.context.journal)
    this.#evictions = new Evictions({
      id: parts.id,
      store: this.#store,
      confirmMS: parts.failureDetector?.windowMS ?? 0,
      context: parts.context,
      onDrained: () => this.wake(),
    })
    const campaign = fromPromise<boolean, CampaignInput>(() => this.#campaign())
    this.#election = createActor(electionMachine.provide({ actors: { campaign } }), { input: { self: parts.id } })
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

  /** The token under which this instance owns claims in its current lease term. */
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

  /**
   * Epoch of this instance's last term as coordinator, which fences the coordinator's writes; 0 when it has had none.
   */
  get term(): number {
    return this.#term
  }

  /** Epoch of the current coordinator term, which may be another instance's. */
  get coordinatorEpoch(): number {
    return this.#observed.claims.get('coordinator')?.epoch ?? 0
  }

  /** The partitions that this instance owns, each with the epoch of its ownership. */
  get held(): ReadonlyMap<number, number> {
    return this.#held
  }

  /**
   * The partitions of `held` that this instance keeps. The others are assigned to other instances and are to be given
   * back.
   */
  get staying(): ReadonlySet<number> {
    return this.#wanted
  }

  get ownsAll(): boolean {
    return this.#held.size === this.#parts.partitions && this.#wanted.size === this.#held.size
  }

  /** True when this instance owns every partition, so that no other instance applies events or can begin to. */
  get hasEverything(): boolean {
    return this.#parts.lease.held && this.#held.size === this.#parts.partitions
  }

  /** True when every partition is owned by another instance whose lease term has not expired. */
  get othersHaveAll(): boolean {
    const own = this.#parts.id
    const isOthers = (partition: number): boolean => {
      const owner = this.#observed.claims.get(partition)?.owner
      return !!owner && !this.isExpired(owner) && parseOwner(owner).id !== own
    }
    return Array.from({ length: this.#parts.partitions }, (_, partition) => partition).every(isOthers)
  }

  /** mongosyncIDs of the other instances that own partitions. */
  get otherOwners(): string[] {
    const owners = [...this.#observed.claims].flatMap(([key, { owner }]) =>
      key === 'coordinator' || !owner ? [] : [owner],
    )
    const ids = new Set(owners.filter((owner) => !this.isExpired(owner)).map((owner) => parseOwner(owner).id))
    ids.delete(this.#parts.id)
    return [...ids].sort()
  }

  /** mongosyncIDs of the instances that hold a lease, this one included. */
  get members(): string[] {
    return this.#observed.leases.filter((lease) => isAlive(lease)).map((lease) => lease.id)
  }

  /** True when no other instance is known. */
  get isAlone(): boolean {
    return this.#observed.leases.every((lease) => lease.id === this.#parts.id)
  }

  /** True when the instance gave its lease back or was evicted. */
  hasLeft(id: string): boolean {
    return this.#observed.leases.some((lease) => lease.id === id && lease.drained > lease.epoch)
  }

  isExpired(owner: OwnerToken): boolean {
    return isExpired(owner, this.#observed.leases)
  }

  /**
   * Starts the rounds; resolves when the first of them has shown which instance coordinates. Call it while the lease is held.
   * Rejects with StoppedError when the lease is lost first: no round runs without it, and the lease is not taken again
   * before everything that was begun under it has ended.
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
    // After the next start, the instance leads only if it then reads that it holds the role.
    this.#election.send({ type: 'lease.lost' })
    this.#changed()
  }

  /**
   * @param atWork true when this instance is neither paused nor failed. Otherwise it holds the coordinator role only
   * while no other instance is at work, and gives the role up to one that is. It still takes a vacant role, because an
   * aborted commit must be undone even when no instance is at work
   */
  engage(atWork: boolean): void {
    this.#atWork = atWork
    this.wake()
  }

  /** @param takesWork true: it gets partitions; false: it keeps what it has (while paused) and gets no new ones */
  takeWork(takesWork: boolean): void {
    this.#takesWork = takesWork
    if (takesWork) this.#yields = false
    this.wake()
  }

  /** Reads which instance coordinated last, for an instance that takes no part. */
  async readHolder(): Promise<void> {
    const { claims } = await this.#store.read()
    this.#lastHolder = holderOf(claims.get('coordinator'))
  }

  /** Asks the other instances to begin a round at once. */
  notify(): void {
    this.#parts.liveness.notify()
  }

  /** Begins the next round now. */
  wake(): void {
    this.#wake.abort()
  }

  /** Gives partitions back. The caller has stopped applying their events and has stored their positions. */
  async release(partitions: number[]): Promise<void> {
    if (partitions.length === 0) return
    const { token } = this
    const claims = [...this.#held].filter(([partition]) => partitions.includes(partition))
    await retry('giving partitions back', this.#parts.context, async () => {
      await this.#closeWrites()
      await this.#store.release(claims, token)
    })
    this.#releases += 1
    this.#log.givenBack(claims)
    for (const partition of partitions) {
      this.#held.delete(partition)
      this.#wanted.delete(partition)
    }
    this.#parts.liveness.notify()
    this.wake()
  }

  /** The next owner must not be overwritten by a delayed write of this instance. */
  async #closeWrites(): Promise<void> {
    await this.#parts.destination.sessions?.closeOpen()
  }

  /**
   * Gives all partitions back until work is taken again, including those that a claim now under way obtains. This
   * instance no longer applies their events, and the coordinator that finishes a commit waits for them.
   */
  async yieldAll(): Promise<void> {
    this.#yields = true
    await this.release([...this.#held.keys()])
  }

  /** Resolves at the next change of anything that this class reports, and after every round. */
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
          // Compare with what was read, not with what was sent: each lease term begins without work, and a delayed
          // write that was given up as lost may have been applied after a later one.
          const { token } = this
          const shown = this.#observed.leases.find(({ id, epoch }) => ownerToken(id, epoch) === token)
          const [takesWork, atWork] = [this.#takesWork, this.#atWork]
          if (shown?.takesWork !== takesWork || shown.atWork !== atWork) {
            await this.#parts.lease.announce({ takesWork, atWork })
          }
          await this.#round()
        }
      } catch (error) {
        // The next round tries again. In the meantime the fence limits what this instance may write.
        context.onRetry?.('coordinating', error)
      }
      this.#changed()
      await sleep(roundMS, undefined, { signal: this.#wake.signal }).catch(() => {})
    }
  }

  async #round(): Promise<void> {
    const token = this.token
    const releases = this.#releases
    const observed = await this.#store.read()
    const { failureDetector, id } = this.#parts
    if (failureDetector) observed.leases = await failureDetector.judge(observed.leases, id)
    if (token !== this.token || !this.#parts.lease.held) return
    this.#observed = observed
    this.#evictions.begin(observed.leases, this.#stop.signal)
    const role = observed.claims.get('coordinator')
    if (role?.owner === token) this.#term = role.epoch
    const eligible = this.#atWork || !observed.leases.some((one) => one.id !== id && isAlive(one) && one.atWork)
    if (role?.owner === token && !eligible) {
      // Stop leading before the release: after it another instance may lead, and this one would act in a term that is
      // over.
      this.#election.send({ type: 'lease.lost' })
      await this.#closeWrites()
      await this.#store.release([['coordinator', role.epoch]], token)
      role.owner = null
    }
    this.#log.coordinator(role, this.token)
    const vacant = !role?.owner || isExpired(role.owner, observed.leases)
    this.#election.send({
      type: 'office.seen',
      holder: holderOf(role),
      mine: role?.owner === token,
      vacant,
      eligible,
    })
    await this.#share(observed, token, releases)
  }

  async #campaign(): Promise<boolean> {
    const { claims } = this.#observed
    const observed = claims.get('coordinator')
    const owner = this.token
    const won = await this.#store.claim('coordinator', observed, owner)
    // Set at once, because writes of this term carry its epoch.
    if (won) this.#term = (observed?.epoch ?? 0) + 1
    if (won) claims.set('coordinator', { owner, epoch: (observed?.epoch ?? 0) + 1, last: { owner, since: new Date() } })
    this.#log.coordinator(claims.get('coordinator'), this.token)
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
      this.#log.claimed(claimed, claims)
    }
    if (this.#yields && held.size > 0) {
      await this.#closeWrites()
      await this.#store.release(held, token)
      this.#log.givenBack([...held])
      this.#parts.liveness.notify()
      held.clear()
    }
    const stay = new Set(mine.filter((partition) => held.has(partition)))
    if (!lease.held || token !== this.token || releases !== this.#releases) return
    this.#held = held
    this.#wanted = stay
  }
}

function isAlive(lease: LeaseView): boolean {
  return !lease.expired && lease.drained <= lease.epoch
}
