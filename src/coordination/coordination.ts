import { setTimeout as sleep } from 'node:timers/promises'
import { createActor, fromPromise } from 'xstate'
import { type CampaignInput, electionMachine } from '../../machines/election.ts'
import { deferred } from '../domain/deferred.ts'
import { StoppedError } from '../domain/errors.ts'
import { both } from '../domain/in-parallel.ts'
import { isAlive, isExpired, type OwnerToken } from '../domain/owner.ts'
import type { Cluster } from '../mongo/cluster.ts'
import type { Lease } from '../mongo/lease.ts'
import type { LeaseLoss } from '../mongo/lease-watch.ts'
import { type RetryContext, retry } from '../mongo/retry.ts'
import { isAnnounced } from './announcement.ts'
import { ClaimNumbers } from './claim-numbers.ts'
import { Evictions } from './evictions.ts'
import type { StoreFailureDetector } from './failure-detector.ts'
import type { Liveness } from './liveness.ts'
import { haveOthersAll, otherOwners } from './other-owners.ts'
import { OwnershipLog } from './ownership-log.ts'
import { type Claim, type ClaimKey, holderOf, type Ownership, OwnershipStore, unread } from './ownership-store.ts'
import { PartitionClaims } from './partition-claims.ts'
import { RoundPace } from './round-pace.ts'
import { RoundParts } from './round-parts.ts'

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

/**
 * Coordinates this instance with the other instances. Up to a few times a second it reads the ownership of the coordinator
 * role and the partitions, evicts instances whose lease has expired, claims the coordinator role when it is vacant, and
 * claims or releases partitions until every instance has its share. It decides ownership only; event application reads
 * `held` and waits for `changed`.
 */
export class Coordination {
  readonly segmentClaims = new ClaimNumbers()
  /** What rounds read in addition, about once a second. */
  readonly alsoRead = new RoundParts()
  /** Returns true while nothing is under way that needs quick rounds. */
  mayRest: () => boolean = () => false
  readonly #parts: CoordinationParts
  readonly #store: OwnershipStore
  readonly #election
  #stop = new AbortController()
  #loop: Promise<void> = Promise.resolve()
  #running = false
  #lastHolder: string | null = null
  #atWork = false
  #stoppedFor = 0
  #observed = unread()
  #term = 0
  #change = deferred<void>()
  #wake = new AbortController()
  readonly #evictions: Evictions
  readonly #claims: PartitionClaims
  readonly #log: OwnershipLog
  readonly #pace: RoundPace

  constructor(parts: CoordinationParts) {
    this.#parts = parts
    this.#store = new OwnershipStore(parts.destination)
    this.#log = new OwnershipLog(parts.context.journal)
    const { id, partitions, lease, context } = parts
    this.#pace = new RoundPace(id, parts.failureDetector === null)
    this.#claims = new PartitionClaims({
      ...{ id, partitions, lease, context, store: this.#store, log: this.#log },
      closeWrites: () => this.#closeWrites(),
      record: (...taken) => this.#record(...taken),
      onGivenBack: () => this.notify(),
    })
    this.#evictions = new Evictions({
      id,
      store: this.#store,
      confirmMS: parts.failureDetector?.windowMS ?? 0,
      context,
      onEnded: () => this.wake(),
    })
    const campaign = fromPromise<boolean, CampaignInput>(() => this.#campaign())
    this.#election = createActor(electionMachine.provide({ actors: { campaign } }), { input: { self: id } })
    this.#election.subscribe(() => this.#changed())
    this.#election.start()
    lease.onLost = (reason) => {
      this.#claims.clear()
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
    return this.#claims.held
  }

  /**
   * The partitions of `held` that this instance keeps. The others are assigned to other instances, so this instance has
   * to give them back.
   */
  get staying(): ReadonlySet<number> {
    return this.#claims.staying
  }

  /** The ownership as the last round read it. */
  get observed(): Readonly<Ownership> {
    return this.#observed
  }

  /** True when this instance owns every partition and no partition is assigned to another instance. */
  get ownsAll(): boolean {
    return this.held.size === this.#parts.partitions && this.staying.size === this.held.size
  }

  /** True when this instance owns every partition, so that no other instance applies events or can begin to. */
  get hasEverything(): boolean {
    return this.#parts.lease.held && this.held.size === this.#parts.partitions
  }

  /** True when every partition is owned by other instances whose lease terms have not expired. */
  get othersHaveAll(): boolean {
    return haveOthersAll(this.#observed, this.#parts)
  }

  /** mongosyncIDs of the other instances that own partitions. */
  get otherOwners(): string[] {
    return otherOwners(this.#observed, this.#parts)
  }

  /** mongosyncIDs of the instances that hold a lease, this one included. */
  get members(): string[] {
    return this.#observed.leases.filter((lease) => isAlive(lease)).map((lease) => lease.id)
  }

  /** The number of other live instances that are neither paused nor failed. */
  get othersAtWork(): number {
    return this.#observed.leases.filter((lease) => isAlive(lease) && lease.atWork && lease.id !== this.#parts.id).length
  }

  /** True when the leases that were read last show no other instance, alive or not. */
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
   * Starts the rounds. Resolves when a round has shown which instance coordinates. Call it while the lease is held.
   * Rejects with StoppedError when the lease is lost first. No round runs without the lease, and the lease is not taken
   * again before all work that began under it has ended.
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
    this.#claims.clear()
    // After the next start, the instance leads only if it then reads that it holds the role.
    this.#election.send({ type: 'lease.lost' })
    this.#changed()
  }

  /**
   * @param atWork true when this instance is neither paused nor failed. Otherwise it takes and keeps the coordinator
   * role only while no other live instance is at work: an aborted commit must be undone even if all are paused or failed
   */
  engage(atWork: boolean): void {
    this.#atWork = atWork
    this.wake()
  }

  /**
   * @param takesWork true if this instance may claim partitions; false (while paused) if it keeps those that it owns
   * and claims no others
   */
  takeWork(takesWork: boolean): void {
    this.#claims.takeWork(takesWork)
    this.wake()
  }

  /** Reads which instance holds the coordinator role, for an instance that runs no rounds. */
  async readHolder(): Promise<void> {
    const { claims } = await this.#store.read()
    this.#lastHolder = holderOf(claims.get('coordinator'))
  }

  /** Asks the other instances to begin a round at once. */
  notify(): void {
    this.#parts.liveness.notify()
  }

  /** Begins the next round now. The rounds after it follow quickly for a while. */
  wake(): void {
    this.#pace.active()
    this.#wake.abort()
  }

  /** Gives partitions back. The caller has stopped applying their events and has stored their positions. */
  async release(partitions: number[]): Promise<void> {
    if (partitions.length === 0) return
    await this.#claims.release(partitions)
    this.notify()
    this.wake()
  }

  /**
   * Closes the open write sessions, so that a delayed write of this instance cannot overwrite a write of the next
   * owner.
   */
  async #closeWrites(): Promise<void> {
    await this.#parts.destination.sessions?.closeOpen()
  }

  /**
   * Gives all partitions back and keeps none until `takeWork(true)` is called. A claim that is in progress may still
   * succeed. Its partitions are given back too, because this instance no longer applies events, and the coordinator
   * cannot finish a commit without them.
   */
  async yieldAll(): Promise<void> {
    this.#claims.yield()
    await this.release([...this.held.keys()])
  }

  /** Number of the last convergence for which this instance has declared, by `stopFor`, that its work has stopped. */
  get stoppedFor(): number {
    return this.#stoppedFor
  }

  /**
   * Gives all partitions back and closes the write sessions, after which replica sets refuse delayed writes of this
   * instance. Then declares to the coordinator that all work which this instance began before this convergence has
   * ended.
   */
  async stopFor(convergence: number): Promise<void> {
    await this.yieldAll()
    await retry('closing sessions', this.#parts.context, () => this.#closeWrites())
    this.#stoppedFor = convergence
    this.wake()
  }

  /**
   * Reads which other instances may still do work that they began before this convergence. An instance may do so until
   * the writes of its lease term have ended, unless it has declared that it has stopped.
   */
  async notStoppedFor(convergence: number): Promise<string[]> {
    const { leases } = await retry('reading the leases', this.#parts.context, () => this.#store.read())
    const others = leases.filter(({ id, drained, epoch }) => id !== this.#parts.id && drained <= epoch)
    return others.filter(({ stoppedFor }) => stoppedFor < convergence).map(({ id }) => id)
  }

  /** Resolves at the next change of the coordinator election, at the end of a round, or on `wakeWaiting`. */
  changed(): Promise<void> {
    return this.#change.promise
  }

  /** Resolves `changed` after a change in the state of this instance, which callers of `changed` may also wait for. */
  wakeWaiting(): void {
    this.#changed()
    this.wake()
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
          const state = { takesWork: this.#claims.takesWork, atWork: this.#atWork, stoppedFor: this.#stoppedFor }
          const isShown = isAnnounced(state, this.#observed.leases, this.token)
          // A round claims nothing before its announcement is stored.
          await this.#round(isShown ? null : this.#parts.lease.announce(state))
        }
      } catch (error) {
        // The next round tries again. In the meantime the fence limits what this instance may write.
        context.onRetry?.('coordinating', error)
      }
      this.#changed()
      await sleep(this.#pace.pauseMS(this.mayRest()), undefined, { signal: this.#wake.signal }).catch(() => {})
    }
  }

  async #round(announcing: Promise<void> | null): Promise<void> {
    const [token, { releases }] = [this.token, this.#claims]
    const [observed] = await both(this.#store.read(this.alsoRead.takeDue()), announcing ?? Promise.resolve())
    const { failureDetector, id } = this.#parts
    if (failureDetector) observed.leases = await failureDetector.judge(observed.leases, id)
    if (token !== this.token || !this.#parts.lease.held) return
    this.#observed = observed
    this.#pace.observed(observed)
    this.#evictions.begin(observed.leases, this.#stop.signal)
    const role = observed.claims.get('coordinator')
    if (role?.owner === token) this.#term = role.epoch
    const eligible = this.#atWork || !observed.leases.some((one) => one.id !== id && isAlive(one) && one.atWork)
    if (role?.owner === token && !eligible) {
      // Stop leading before the release, because another instance may lead after it.
      this.#election.send({ type: 'lease.lost' })
      await this.#closeWrites()
      await this.#store.release([['coordinator', role.epoch]], token)
      role.owner = null
    }
    this.#log.coordinator(role, this.token)
    const vacant = !role?.owner || isExpired(role.owner, observed.leases)
    this.#election.send({
      type: 'coordinator.observed',
      holder: holderOf(role),
      mine: role?.owner === token,
      vacant,
      eligible,
    })
    await this.#claims.share(observed, token, releases)
  }

  /** The work under a claim does not wait for the history. Over distance that would delay every start and takeover. */
  #record(taken: ReadonlyMap<ClaimKey, Claim | undefined>, owner: OwnerToken, since: Date): void {
    const recording = this.#store.record(taken, owner, since)
    this.#parts.destination.endLater(
      recording.catch((error) => this.#parts.context.onRetry?.('adding to the history of owners', error)),
    )
  }

  async #campaign(): Promise<boolean> {
    const { claims } = this.#observed
    const observed = claims.get('coordinator')
    const [owner, since] = [this.token, new Date()]
    const won = await this.#store.take('coordinator', observed, owner, since)
    if (won) {
      const epoch = (observed?.epoch ?? 0) + 1
      // The term is set at once, because writes of this term carry its epoch.
      this.#term = epoch
      claims.set('coordinator', { owner, epoch, last: { owner, since } })
      this.#record(new Map([['coordinator', observed]]), owner, since)
    }
    this.#log.coordinator(claims.get('coordinator'), this.token)
    return won
  }
}
