import { setTimeout as sleep } from 'node:timers/promises'
import type { Document } from 'mongodb'
import { StoppedError } from '../domain/errors.ts'
import { all } from '../domain/in-parallel.ts'
import { type OwnerToken, ownerToken } from '../domain/owner.ts'
import type { Cluster } from './cluster.ts'
import { TransientReplyError } from './errors.ts'
import { type HostMoment, hostClocks } from './host-clocks.ts'
import { hostProcess } from './host-process.ts'
import { type FailureDetector, givenUp, type LeaseLoss, LeaseWatch, leaseMS } from './lease-watch.ts'
import { hasHolderEnded, predecessorsOf, writesEnded } from './predecessors.ts'
import { type RetryContext, retry } from './retry.ts'
import { leaseEnd, StoredLease } from './stored-lease.ts'
import { isEvicted, leaseFields } from './stored-names.ts'
import { closeSessions, type LeaseSessions, sessionsFor, WriteSessions } from './write-sessions.ts'

const renewMS = 2_500
/**
 * Writes stop this long before the lease expires, so that the last one that was sent normally reaches the server before
 * a successor takes the lease. The successor waits until the writes that still run have ended.
 */
const marginMS = 2_000

/** With a failure detector, the lease is confirmed at this interval, and writes stop this long before the window ends. */
const confirmMS = 700
const confirmMarginMS = 800

const openingPatienceMS = 1_000 // much less than the duration of a lease, which is not renewed meanwhile

export interface LeaseOwner {
  /** mongosyncID. */
  id: string
  /** One per process. */
  incarnation: string
}

/**
 * The right to write to the destination. A lease has one holder. Each term of a lease has its own epoch, which every
 * stored position carries. A process that is restarted under the same kernel can prove that its predecessor has ended,
 * and takes over at once. Every other process waits until it has observed the lease unrenewed for the whole lease
 * duration.
 */
export class Lease {
  /** The sessions that carry every write under this lease. */
  readonly sessions: WriteSessions
  readonly #cluster: Cluster
  readonly #stored: StoredLease
  readonly #name: string
  readonly #owner: LeaseOwner
  readonly #context: RetryContext
  readonly #detector: FailureDetector | null
  #epoch = 0
  /** The epoch of a lease term that this object has requested and that has not begun yet; 0 if there is none. */
  #requestedEpoch = 0
  #holder: string | null = null
  /** The stored lease with which the next attempt begins; null if that attempt reads it. */
  #expected: { stored: Document | undefined } | null = null
  /** When the request that last confirmed the lease was sent. Null while this process does not hold the lease. */
  #confirmedAt: HostMoment | null = null
  #trouble: unknown = null
  readonly #watch = new LeaseWatch()
  #timer: NodeJS.Timeout | null = null
  #onLost: ((reason: LeaseLoss) => void) | null = null
  #onTaken: (() => void) | null = null
  #acquiring: Promise<void> | null = null
  /** Ends a pending attempt to take the lease. */
  #attempt = new AbortController()
  /** Aborted at the end of the current lease term. */
  #term = new AbortController()
  #termSignal: AbortSignal | null = null

  /**
   * @param detector decides whether the holder of a lease is alive; if it is null, the expiry of the lease decides, which
   * each renewal extends
   */
  constructor(
    destination: Cluster,
    name: string,
    owner: LeaseOwner,
    context: RetryContext,
    detector: FailureDetector | null = null,
  ) {
    this.#detector = detector
    this.#cluster = destination
    this.#stored = new StoredLease(destination, name)
    this.#name = name
    this.#owner = owner
    this.#context = context
    this.sessions = new WriteSessions(
      destination,
      owner.incarnation,
      () => this.#epoch,
      () => void this.verify(),
    )
  }

  get epoch(): number {
    return this.#epoch
  }

  /** mongosyncID of the last observed holder. Null until a holder is known. */
  get holder(): string | null {
    return this.#holder
  }

  /** Identifies this process to other instances while it holds the lease. */
  get token(): OwnerToken {
    return ownerToken(this.#owner.id, this.#epoch)
  }

  /** The last error while the lease was taken or renewed; null if the last attempt reached the destination. */
  get trouble(): unknown {
    return this.#trouble
  }

  /**
   * True while this process holds the lease, as far as it knows. `fence` decides whether the process may write at this
   * moment.
   */
  get held(): boolean {
    return this.#timer !== null
  }

  /**
   * Aborted when this lease term ends (lost or given back) or the process stops. Null without the lease. Writes under
   * this term are not retried after that, because its fence can never pass again.
   */
  get termSignal(): AbortSignal | null {
    return this.held ? this.#termSignal : null
  }

  /**
   * Throws while this process must not write. This includes a process that resumes after SIGSTOP or after its machine
   * was suspended.
   */
  fence(): void {
    if (this.#confirmedAt === null || hostClocks.longestSince(this.#confirmedAt) > this.#validMS) {
      throw new TransientReplyError('the lease on the destination could not be renewed in time')
    }
  }

  /**
   * The next attempt to take the lease first assumes that this lease is stored, which saves reading it. If another one is
   * stored by now, the write of that attempt has no effect, and the lease is read.
   * @param stored undefined: none is stored
   */
  expect(stored: Document | undefined): void {
    this.#expected = { stored }
  }

  /** Called when another process has taken the lease or other instances have fenced this one. */
  set onLost(listener: ((reason: LeaseLoss) => void) | null) {
    this.#onLost = listener
  }

  /** Called when a lease term begins. */
  set onTaken(listener: (() => void) | null) {
    this.#onTaken = listener
  }

  /**
   * Resolves when this process holds the lease, at once if it already does. Rejects with StoppedError when `release` is
   * called first.
   */
  acquire(): Promise<void> {
    if (this.held) return Promise.resolve()
    if (this.#acquiring && this.#attempt.signal.aborted) {
      return this.#acquiring.catch(() => {}).then(() => this.acquire())
    }
    this.#acquiring ??= this.#acquire().finally(() => {
      this.#acquiring = null
    })
    return this.#acquiring
  }

  async #acquire(): Promise<void> {
    const began = performance.now()
    this.#attempt = new AbortController()
    const attempt = this.#attempt.signal
    try {
      await this.#untilTaken(attempt)
      if (attempt.aborted) throw new StoppedError()
    } catch (error) {
      // The lease may have been taken in the meantime.
      if (attempt.aborted && this.#epoch > 0) await this.#giveBack()
      throw error
    }
    this.#timer ??= setInterval(() => this.#renew(), this.#detector ? confirmMS : renewMS)
    this.#term = new AbortController()
    this.#termSignal = AbortSignal.any([this.#context.signal, this.#term.signal])
    const seconds = (performance.now() - began) / 1_000
    this.#context.journal?.('lease taken', { lease: this.#name, epoch: this.#epoch, seconds })
    this.#onTaken?.()
  }

  async #untilTaken(attempt: AbortSignal): Promise<void> {
    const signal = AbortSignal.any([this.#context.signal, attempt])
    const onRetry = (what: string, error: unknown): void => {
      this.#trouble = error
      this.#context.onRetry?.(what, error)
    }
    const context = { ...this.#context, signal, onRetry }
    for (;;) {
      if (signal.aborted) throw new StoppedError()
      const isTaken = await retry('taking the lease', context, () => this.#tryAcquire(attempt))
      this.#trouble = null
      if (isTaken) return
      await sleep(200)
    }
  }

  /** Resolves when no attempt to take the lease is in progress. */
  async attemptEnded(): Promise<void> {
    await this.#acquiring?.catch(() => {})
  }

  /**
   * Gives the lease back. Also cancels a pending attempt to take it; `attemptEnded` resolves when that attempt has
   * ended.
   */
  async release(): Promise<void> {
    this.#attempt.abort()
    if (this.#timer) clearInterval(this.#timer)
    this.#timer = null
    this.#term.abort()
    if (this.#epoch === 0) return
    this.#context.journal?.('lease given back', { lease: this.#name, epoch: this.#epoch })
    await this.#giveBack()
  }

  async #giveBack(): Promise<void> {
    this.#confirmedAt = null
    this.#requestedEpoch = 0
    // While the stored value does not exceed the epoch, the instances that take over wait for the writes of this term
    // and of its predecessors.
    const stored = `$${leaseFields.drained}`
    const drained = { $cond: [{ $gte: [stored, '$epoch'] }, this.#epoch + 1, stored] }
    const areDrained = !this.#context.signal.aborted && !this.sessions.areOpen
    const released = { expiresAt: givenUp, ...(areDrained ? { [leaseFields.drained]: drained } : {}) }
    await this.#stored.update({ epoch: this.#epoch }, [{ $set: released }]).catch(() => {})
  }

  /**
   * Stores for the other instances whether this one accepts new work, whether it is preferred as coordinator, and for
   * which convergence its work has stopped (`LeaseView`).
   */
  async announce(state: { takesWork: boolean; atWork: boolean; stoppedFor?: number }): Promise<void> {
    if (!this.held) return
    await this.#stored.update({ epoch: this.#epoch }, { $set: state })
  }

  async #tryAcquire(stopped: AbortSignal): Promise<boolean> {
    const expected = this.#expected
    this.#expected = null
    if (!expected) return await this.#tryTake(stopped, await this.#stored.find())
    try {
      if (await this.#tryTake(stopped, expected.stored)) return true
    } finally {
      // If the lease is stored with this epoch, that may be an earlier term of this process. The next attempt takes a new
      // epoch.
      if (this.#confirmedAt === null) this.#requestedEpoch = 0
    }
    return stopped.aborted ? false : await this.#tryTake(stopped, await this.#stored.find())
  }

  async #tryTake(stopped: AbortSignal, stored: Document | undefined): Promise<boolean> {
    let renewedAt = hostClocks.now()
    this.#holder = (stored?.['owner'] as string | undefined) ?? null
    const epoch = ((stored?.['epoch'] as number | undefined) ?? 0) + 1
    let predecessors = stored ? predecessorsOf(stored) : []
    // Sessions of an earlier lease term of this process have to be closed as well.
    const former = stored?.['incarnation'] === this.#owner.incarnation ? [this.#owner.incarnation] : []
    const storedSessions = (stored?.['sessions'] as LeaseSessions | null | undefined) ?? null
    const sessions = this.#cluster.sharded ? null : sessionsFor(storedSessions)
    // A predecessor may have confirmed its lease just before it was taken, and consider it valid for one more window.
    let mustWait = predecessors.length > 0
    // $literal: a pipeline would read a text that begins with `$` as a field path.
    const fields = {
      owner: { $literal: this.#owner.id },
      incarnation: { $literal: this.#owner.incarnation },
      process: { $literal: hostProcess.identity() },
      epoch,
      expiresAt: leaseEnd,
      takesWork: false,
      atWork: false,
      stoppedFor: 0,
      [leaseFields.evicted]: false,
      sessions: { $literal: sessions },
      schemaVersion: 1,
      // If no process has held this lease before, there are no earlier writes to wait for.
      ...(stored ? {} : { [leaseFields.drained]: epoch, predecessors: [] }),
    }
    if (!stored) {
      this.#requestedEpoch = epoch
      if (!(await this.#stored.update({ epoch: { $exists: false } }, [{ $set: fields }], true))) return false
      this.#epoch = epoch
    } else if (stored['incarnation'] !== this.#owner.incarnation) {
      const proven = hasHolderEnded(stored, this.#owner.id)
      if (this.#detector && !proven && (await this.#detector.knows(stored['owner'], stored['incarnation'])))
        return false
      const expiresAt = stored['expiresAt'] as Date
      const unrenewed = this.#watch.isUnrenewed(this.#name, { epoch: stored['epoch'], expiresAt })
      if (!proven && !this.#detector && !unrenewed) return false
      const free = proven || this.#detector ? {} : { expiresAt }
      predecessors = [...predecessors, stored['incarnation'] as string]
      mustWait ||= !proven
      const successor = { ...fields, predecessors: { $literal: predecessors } }
      this.#requestedEpoch = epoch
      if (!(await this.#stored.update({ epoch: stored['epoch'], ...free }, [{ $set: successor }]))) return false
      this.#epoch = epoch
    } else if (stored['epoch'] === this.#requestedEpoch && !isEvicted(stored)) {
      // An earlier attempt of this object took the lease, and its reply was lost.
      this.#epoch = this.#requestedEpoch
    } else {
      // This process held the lease, but that term is over: it was given back, or others fenced it. The process no
      // longer owns what it owned in that term. The new term needs a new epoch even if the stored lease does not show
      // yet that the former term is over: the numbers of the sessions begin again with each epoch, and the server
      // acknowledges a write whose number it has already executed without executing it.
      this.#requestedEpoch = epoch
      if (!(await this.#stored.update({ epoch: stored['epoch'] }, [{ $set: fields }]))) return false
      this.#epoch = epoch
    }
    // `release` was called before the server confirmed that the lease is taken. `#acquire` gives the lease back.
    if (stopped.aborted) return false
    if (this.#detector && mustWait) await sleep(this.#detector.windowMS)
    // The destination rejects writes of expired predecessors that arrive from now on. Their writes that already run end
    // before this process begins to write: closing a session waits for the write in it, `writesEnded` for all others.
    const holders = [...predecessors, ...former]
    // The sessions are closed over open connections, unless one of them takes too long to open.
    await Promise.race([this.#cluster.opening, sleep(openingPatienceMS, undefined, { ref: false })])
    await all([
      writesEnded(this.#cluster, predecessors),
      storedSessions ? closeSessions(this.#cluster, storedSessions, holders, this.#epoch) : null,
    ])
    // If the lease was given back meanwhile, other instances may take it. They wait for the same writes.
    if (stopped.aborted) return false
    if (stored) renewedAt = hostClocks.now()
    const drained = { expiresAt: leaseEnd, [leaseFields.drained]: this.#epoch, predecessors: [] }
    if (stored && !(await this.#stored.update({ epoch: this.#epoch }, [{ $set: drained }]))) return false
    this.#requestedEpoch = 0
    this.#holder = this.#owner.id
    if (sessions) this.sessions.beginTerm(sessions)
    this.#confirmedAt = renewedAt
    return true
  }

  /** Checks now whether this process still holds the lease. Calls `onLost` when it does not. */
  async verify(): Promise<void> {
    if (this.held) await this.#renew()
  }

  get #validMS(): number {
    return this.#detector ? this.#detector.windowMS - confirmMarginMS : leaseMS - marginMS
  }

  /**
   * Reads whether this process still holds the lease, without extending it, because the failure detector decides
   * whether this process is alive. Returns null while the detector does not count it as alive.
   */
  async #confirm(): Promise<boolean | null> {
    if (!this.#detector?.holds()) return null
    const found = await this.#stored.find()
    return found?.['epoch'] === this.#epoch && found['incarnation'] === this.#owner.incarnation
  }

  async #renew(): Promise<void> {
    const sentAt = hostClocks.now()
    const epoch = this.#epoch
    try {
      const renewed = this.#detector ? await this.#confirm() : await this.#extend()
      // The reply may belong to an earlier term: several renewals may be in flight when one of them finds the lease
      // fenced and the lease is taken again.
      if (epoch !== this.#epoch) return
      this.#trouble = null
      if (renewed) this.#confirmedAt = sentAt
      else if (renewed === false) await this.#lost(epoch)
    } catch (error) {
      this.#trouble = error
      // The next tick retries. The fence stops writes when that takes too long.
    }
  }

  #extend(): Promise<boolean> {
    return this.#stored.update({ epoch: this.#epoch }, [{ $set: { expiresAt: leaseEnd } }])
  }

  async #lost(epoch: number): Promise<void> {
    this.#confirmedAt = null
    const found = await this.#stored.find()
    if (!this.#timer || epoch !== this.#epoch) return
    clearInterval(this.#timer)
    this.#timer = null
    this.#holder = null
    this.#term.abort()
    const own = found?.['incarnation'] === this.#owner.incarnation
    const reason = own && isEvicted(found) ? 'evicted' : 'taken'
    this.#context.journal?.('lease lost', { lease: this.#name, epoch, reason })
    this.#onLost?.(reason)
  }
}
