import { setTimeout as sleep } from 'node:timers/promises'
import type { Document } from 'mongodb'
import { StoppedError } from '../domain/errors.ts'
import { metadataDatabase } from '../domain/namespace.ts'
import { type OwnerToken, ownerToken } from '../domain/owner.ts'
import type { Cluster } from './cluster.ts'
import { code, TransientReplyError } from './errors.ts'
import { type HostMoment, hostClocks } from './host-clocks.ts'
import { hostProcess } from './host-process.ts'
import { givenUp, LeaseWatch, leaseMS } from './lease-watch.ts'
import { isProvenDead, predecessorsOf, writesEnded } from './predecessors.ts'
import { type RetryContext, retry } from './retry.ts'
import { closeSessions, type LeaseSessions, sessionsFor, WriteSessions } from './write-sessions.ts'

const renewMS = 2_500
/** Writes stop this much before the lease ends, so that one just sent has ended when a successor begins. */
const marginMS = 2_000

/** Where a store other than the metadata database says who is alive. */
export interface FailureDetector {
  /** How long a confirmation counts, ms: a lease is confirmed by looking, and its successor waits this long. */
  readonly windowMS: number
  /** The store has heard of this instance lately. */
  holds(): boolean
  /** Whether it has heard of that process lately. Throws TransientReplyError when it does not answer. */
  knows(id: string, incarnation: string): Promise<boolean>
}
/** While a belief decides: how often a lease is confirmed, and how much before the window ends writes stop. */
const confirmMS = 700
const confirmMarginMS = 800

export interface LeaseOwner {
  /** mongosyncID. */
  id: string
  /** One per process. */
  incarnation: string
}

/**
 * The right to write to the destination: one holder per lease, each with an epoch of its own that every stored position
 * carries. A process started again under the same kernel proves that its predecessor has ended, and takes over at once; anybody
 * else waits until it has itself seen the lease unrenewed for as long as it lasts.
 */
export class Lease {
  /** What is written under it goes with them. */
  readonly sessions: WriteSessions
  readonly #cluster: Cluster
  readonly #name: string
  readonly #owner: LeaseOwner
  readonly #context: RetryContext
  readonly #belief: FailureDetector | null
  #epoch = 0
  #holder: string | null = null
  /** Before the request was sent that confirmed the lease last; null when it is not this process's. */
  #confirmedAt: HostMoment | null = null
  readonly #watch = new LeaseWatch()
  #timer: NodeJS.Timeout | null = null
  #onLost: ((reason: LeaseLoss) => void) | null = null
  #onTaken: (() => void) | null = null
  #acquiring: Promise<void> | null = null
  /** Ends an attempt to take the lease that is given up. */
  #attempt = new AbortController()
  /** Ends with the lease's present life. */
  #life = new AbortController()
  #lived: AbortSignal | null = null

  /** @param belief null: the lease's own expiry, which renewing moves on, tells whether its holder is alive */
  constructor(
    destination: Cluster,
    name: string,
    owner: LeaseOwner,
    context: RetryContext,
    belief: FailureDetector | null = null,
  ) {
    this.#belief = belief
    this.#cluster = destination
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

  /** mongosyncID of the holder as last seen; null before anybody is known. */
  get holder(): string | null {
    return this.#holder
  }

  /** Who this process is to the others while it holds the lease. */
  get token(): OwnerToken {
    return ownerToken(this.#owner.id, this.#epoch)
  }

  /** Taken, and not known to be lost; whether it may still write now is for `fence` to say. */
  get held(): boolean {
    return this.#timer !== null
  }

  /**
   * Aborted when this life of the lease is over (lost, or given back) or the process stops; null without the lease. What is to be stored
   * by it is not tried for longer, since that fence can never hold again.
   */
  get life(): AbortSignal | null {
    return this.held ? this.#lived : null
  }

  /** Throws while this process may not write, also when it was stopped, or its machine suspended, and has just gone on. */
  fence(): void {
    if (this.#confirmedAt === null || hostClocks.longestSince(this.#confirmedAt) > this.#validMS) {
      throw new TransientReplyError('the lease on the destination could not be renewed in time')
    }
  }

  /** Called when the lease is found in other hands, or buried. */
  set onLost(listener: ((reason: LeaseLoss) => void) | null) {
    this.#onLost = listener
  }

  /** Called when a life of the lease begins. */
  set onTaken(listener: (() => void) | null) {
    this.#onTaken = listener
  }

  /** Resolves when this process holds the lease; at once when it does. Rejects with StoppedError when it is given back before. */
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
      // It may have been taken by then.
      if (attempt.aborted && this.#epoch > 0) await this.#giveBack()
      throw error
    }
    this.#timer ??= setInterval(() => this.#renew(), this.#belief ? confirmMS : renewMS)
    this.#life = new AbortController()
    this.#lived = AbortSignal.any([this.#context.signal, this.#life.signal])
    const seconds = (performance.now() - began) / 1_000
    this.#context.journal?.('lease taken', { lease: this.#name, epoch: this.#epoch, seconds })
    this.#onTaken?.()
  }

  async #untilTaken(attempt: AbortSignal): Promise<void> {
    const signal = AbortSignal.any([this.#context.signal, attempt])
    const context = { ...this.#context, signal }
    for (;;) {
      if (signal.aborted) throw new StoppedError()
      if (await retry('taking the lease', context, () => this.#tryAcquire(attempt))) return
      await sleep(200)
    }
  }

  /** Resolves when no attempt to take it is under way. */
  async settled(): Promise<void> {
    await this.#acquiring?.catch(() => {})
  }

  /** An attempt to take it is given up as well; `settled` tells when that has ended. */
  async release(): Promise<void> {
    this.#attempt.abort()
    if (this.#timer) clearInterval(this.#timer)
    this.#timer = null
    this.#life.abort()
    if (this.#epoch === 0) return
    this.#context.journal?.('lease given back', { lease: this.#name, epoch: this.#epoch })
    await this.#giveBack()
  }

  async #giveBack(): Promise<void> {
    this.#confirmedAt = null
    // Given up on while something was under way (its own, or a predecessor's that it still waited for), nobody knows
    // whether that has ended: then it is for the others to find out.
    const ended = { $cond: [{ $gte: ['$settled', '$epoch'] }, this.#epoch + 1, '$settled'] }
    const isOver = !this.#context.signal.aborted && !this.sessions.areOpen
    const settled = isOver ? { settled: ended } : {}
    const over = { expiresAt: givenUp, ...settled }
    await this.#update({ _id: this.#name, epoch: this.#epoch }, [{ $set: over }]).catch(() => {})
  }

  /** Whether the instance takes work or only keeps what it has, and whether it is at work at all; shown to the others. */
  async announce(shown: { takesWork: boolean; atWork: boolean }): Promise<void> {
    if (!this.held) return
    await this.#update({ _id: this.#name, epoch: this.#epoch }, { $set: shown })
  }

  async #tryAcquire(stopped: AbortSignal): Promise<boolean> {
    const held = await this.#find()
    this.#holder = (held?.['owner'] as string | undefined) ?? null
    const epoch = ((held?.['epoch'] as number | undefined) ?? 0) + 1
    let predecessors = held ? predecessorsOf(held) : []
    // Those of a former life of this process as well.
    const former = held?.['incarnation'] === this.#owner.incarnation ? [this.#owner.incarnation] : []
    const found = (held?.['sessions'] as LeaseSessions | null | undefined) ?? null
    const sessions = this.#cluster.sharded ? null : sessionsFor(found)
    // One of them may have looked just before its lease was taken, and believe for so long that it is still its own.
    let believes = predecessors.length > 0
    // Literal: in a pipeline a text that begins with `$` would be taken for the name of a field.
    const fields = {
      owner: { $literal: this.#owner.id },
      incarnation: { $literal: this.#owner.incarnation },
      process: { $literal: hostProcess.identity() },
      epoch,
      expiresAt: leaseEnd,
      takesWork: false,
      atWork: false,
      buried: false,
      sessions: { $literal: sessions },
      schemaVersion: 1,
    }
    if (!held) {
      if (!(await this.#update({ _id: this.#name, epoch: { $exists: false } }, [{ $set: fields }], true))) return false
      this.#epoch = epoch
    } else if (held['incarnation'] !== this.#owner.incarnation) {
      const proven = isProvenDead(held, this.#owner.id)
      if (this.#belief && !proven && (await this.#belief.knows(held['owner'], held['incarnation']))) return false
      const expiresAt = held['expiresAt'] as Date
      const unrenewed = this.#watch.isUnrenewed(this.#name, { epoch: held['epoch'], expiresAt })
      if (!proven && !this.#belief && !unrenewed) return false
      const free = proven || this.#belief ? {} : { expiresAt }
      predecessors = [...predecessors, held['incarnation'] as string]
      believes ||= !proven
      const successor = { ...fields, predecessors: { $literal: predecessors } }
      if (!(await this.#update({ _id: this.#name, epoch: held['epoch'], ...free }, [{ $set: successor }]))) return false
      this.#epoch = epoch
    } else if (held['buried'] || (held['settled'] as number) > (held['epoch'] as number)) {
      // Its own, but that life is over: given back, or buried by others. What it owned then is no longer its own.
      if (!(await this.#update({ _id: this.#name, epoch: held['epoch'] }, [{ $set: fields }]))) return false
      this.#epoch = epoch
    } else {
      // Taken by an attempt whose answer was lost.
      this.#epoch = held['epoch'] as number
    }
    if (this.#belief && believes) await sleep(this.#belief.windowMS)
    // Writes of dead predecessors that the destination gets now are refused, those that it is still working on end before ours begin.
    if (found) await closeSessions(this.#cluster, found, [...predecessors, ...former], this.#epoch)
    await writesEnded(this.#cluster, predecessors)
    // Given back meanwhile, it is free for others, who wait for the same.
    if (stopped.aborted) return false
    const renewedAt = hostClocks.now()
    const settled = { expiresAt: leaseEnd, settled: this.#epoch, predecessors: [] }
    if (!(await this.#update({ _id: this.#name, epoch: this.#epoch }, [{ $set: settled }]))) return false
    this.#holder = this.#owner.id
    if (sessions) this.sessions.renewed(sessions)
    this.#confirmedAt = renewedAt
    return true
  }

  /** Asks now whether the lease is still this process's; `onLost` is called when it is not. */
  async verify(): Promise<void> {
    if (this.held) await this.#renew()
  }

  get #validMS(): number {
    return this.#belief ? this.#belief.windowMS - confirmMarginMS : leaseMS - marginMS
  }

  /** Nobody is told by it that this process lives: that is the store's to say. It only looks. */
  async #confirm(): Promise<boolean | null> {
    if (!this.#belief?.holds()) return null
    const found = await this.#find()
    return found?.['epoch'] === this.#epoch && found['incarnation'] === this.#owner.incarnation
  }

  async #renew(): Promise<void> {
    const sentAt = hostClocks.now()
    const epoch = this.#epoch
    try {
      const renewed = this.#belief ? await this.#confirm() : await this.#extend()
      // Of another life: several may have been under way when this one's lease was found buried, and taken anew.
      if (epoch !== this.#epoch) return
      if (renewed) this.#confirmedAt = sentAt
      else if (renewed === false) await this.#lost(epoch)
    } catch {
      // Tried again at the next tick; the fence stops writes when it takes too long.
    }
  }

  #extend(): Promise<boolean> {
    return this.#update({ _id: this.#name, epoch: this.#epoch }, [{ $set: { expiresAt: leaseEnd } }])
  }

  async #lost(epoch: number): Promise<void> {
    this.#confirmedAt = null
    const found = await this.#find()
    if (!this.#timer || epoch !== this.#epoch) return
    clearInterval(this.#timer)
    this.#timer = null
    this.#holder = null
    this.#life.abort()
    const own = found?.['incarnation'] === this.#owner.incarnation
    const reason = own && found['buried'] ? 'buried' : 'taken'
    this.#context.journal?.('lease lost', { lease: this.#name, epoch, reason })
    this.#onLost?.(reason)
  }

  async #find(): Promise<Document | undefined> {
    const found = await this.#cluster.read(metadataDatabase, {
      find: 'leases',
      filter: { _id: this.#name },
      readConcern: { level: 'majority' },
    })
    return found['cursor'].firstBatch[0] as Document | undefined
  }

  /** True when the filter matched (or, with upsert, nothing stood there). */
  async #update(filter: Document, change: Document | Document[], upsert = false): Promise<boolean> {
    const reply = await this.#cluster.write(
      metadataDatabase,
      { update: 'leases', updates: [{ q: filter, u: change, upsert }] },
      { unfenced: true, timeoutMS: 5_000 },
    )
    const errors = reply['writeErrors'] as { code: number; errmsg: string }[] | undefined
    if (errors?.[0]) {
      if (errors[0].code === code.duplicateKey) return false
      throw new Error(`lease write failed: ${errors[0].errmsg}`)
    }
    return (reply['n'] as number) > 0
  }
}

/** `buried`: it expired, and the others took over what this instance had. `taken`: another process has this instance's id. */
export type LeaseLoss = 'buried' | 'taken'

const leaseEnd = { $add: ['$$NOW', leaseMS] }
